//! Runs probes on a device.

use anyhow::{Context, Result};
use bitwalk::device::{Buffer, Device, Function, LaunchParams, Module};

use super::module_text;
use super::probe::{Launch, POISON, Probe};

/// What a device made of a probe: its output for each launch.
pub(super) type Outputs = Result<Vec<Vec<u8>>>;

/// Runs every probe, all of them compiled as one module for `target` (`sm_80`). Where that module is refused, each
/// probe is compiled alone, so that one bad entry is told from the good.
pub(super) fn run(device: &Device, target: &str, probes: &[&Probe], done: &dyn Fn(usize)) -> Vec<Outputs> {
    let whole = device.load_module("opcode_probes", &module_text(target, probes.iter().copied()));
    let one = |(i, probe): (usize, &&Probe)| {
        let alone;
        let module = match &whole {
            Ok(module) => module,
            Err(_) => {
                alone = device.load_module("opcode_probe", &module_text(target, [*probe]))?;
                &alone
            }
        };
        let outputs = run_probe(device, module, probe);
        done(i + 1);
        outputs
    };
    probes.iter().enumerate().map(one).collect()
}

fn run_probe(device: &Device, module: &Module, probe: &Probe) -> Outputs {
    let function = module.function(&probe.entry)?;
    let each = |(i, launch)| run_launch(device, &function, launch).with_context(|| format!("launch {i}"));
    probe.launches.iter().enumerate().map(each).collect()
}

fn run_launch(device: &Device, function: &Function, launch: &Launch) -> Result<Vec<u8>> {
    let stream = device.stream()?;
    let input = Buffer::<u8>::new(device, launch.input.len(), "probe input")?;
    let output = Buffer::<u8>::new(device, launch.expected.len(), "probe output")?;
    stream.write(&input, &launch.input)?;
    stream.fill(&output, POISON)?;
    let mut args = vec![0; function.info().param_bytes];
    let mut put = |at: usize, bytes: &[u8]| {
        let place =
            args.get_mut(at..at + bytes.len()).context("the parameter block is shorter than the probe's")?;
        place.copy_from_slice(bytes);
        anyhow::Ok(())
    };
    put(0, &input.address().to_le_bytes())?;
    put(8, &output.address().to_le_bytes())?;
    for (at, bytes) in &launch.extra {
        put(*at, bytes)?;
    }
    stream.launch(
        function,
        &LaunchParams {
            grid: launch.grid,
            block: launch.block,
            shared: 0,
            args: &args,
            access: &[],
            cooperative: false,
            programmatic: false,
        },
    )?;
    let mut bytes = vec![0; launch.expected.len()];
    stream.read(&output, &mut bytes)?;
    Ok(bytes)
}
