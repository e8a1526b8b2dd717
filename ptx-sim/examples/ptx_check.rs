//! `ptx_check FILE…`: parses and decodes PTX files and says what the simulator makes of them.

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut failed = false;
    for path in std::env::args().skip(1) {
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) => {
                eprintln!("{path}: {error}");
                failed = true;
                continue;
            }
        };
        let name = path.trim_end_matches(".ptx");
        match ptx_sim::Module::parse(name, &text) {
            Ok(module) => {
                for kernel in module.entries() {
                    println!(
                        "{path}: {} ({} parameter bytes, {} ops)",
                        kernel.name,
                        kernel.param_bytes,
                        kernel.op_count()
                    );
                }
            }
            Err(error) => {
                eprintln!("{error}");
                failed = true;
            }
        }
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
