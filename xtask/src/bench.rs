//! `cargo xtask bench`: criterion over every declared kernel, then a table and a roofline picture. It runs from the `dist` folder
//! as well.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use bitwalk::device::{Device, DeviceSpec};
use bitwalk::engine::Engine;
use bitwalk::options::EngineOptions;
use bitwalk_benches::{kernels, roofline};
use bitwalk_gates::cli::environment;
use criterion::Criterion;

/// Options of `bench`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Only kernels and cases with this in their `kernel/case`
    filter: Option<String>,
    /// The device: auto, cuda, cuda:N, sim or sim:N [env: BITWALK_DEVICE] [default: auto]
    #[arg(long)]
    device: Option<DeviceSpec>,
    /// Folder for roofline.svg, kernels.json and criterion's own files
    #[arg(long, value_name = "FOLDER", default_value = "target/bench")]
    out: PathBuf,
    /// Seconds of measuring each kernel
    #[arg(long, value_name = "S", default_value_t = 0.3)]
    seconds: f64,
}

/// Times the kernels.
pub fn run(args: &Args) -> Result<ExitCode> {
    ensure!(
        args.seconds.is_finite() && args.seconds > 0.0 && args.seconds <= 3600.0,
        "--seconds is {}: it must be above 0 and at most 3600",
        args.seconds
    );
    let device = Device::open(args.device.unwrap_or(environment()?.device))?;
    println!("device {}", device.opened_because());
    fs::create_dir_all(&args.out).with_context(|| format!("creating {}", args.out.display()))?;
    let engine = Engine::new(device, EngineOptions::default())?;
    let mut criterion = Criterion::default()
        .without_plots()
        .output_directory(&args.out.join("criterion"))
        .nresamples(2000)
        .warm_up_time(Duration::from_secs_f64(args.seconds / 5.0))
        .measurement_time(Duration::from_secs_f64(args.seconds));
    let results =
        kernels::run(&mut criterion, &engine, args.filter.as_deref()).map_err(|error| anyhow!("{error}"))?;
    ensure!(
        !results.kernels.is_empty() || !results.failures.is_empty(),
        "no kernel's `kernel/case` contains `{}`",
        args.filter.as_deref().unwrap_or_default()
    );
    println!();
    for line in kernels::table(&results) {
        println!("{line}");
    }
    let (picture, data) = (args.out.join("roofline.svg"), args.out.join("kernels.json"));
    fs::write(&picture, roofline::svg(&results)).with_context(|| format!("writing {}", picture.display()))?;
    fs::write(&data, serde_json::to_vec_pretty(&results)?)
        .with_context(|| format!("writing {}", data.display()))?;
    println!(
        "\nread-only rate, measured now: {:.3} GB/s; {} cases; {} and {}",
        results.read_only_bytes_s / 1e9,
        results.kernels.len(),
        picture.display(),
        data.display()
    );
    for failure in &results.failures {
        println!("FAIL {failure}");
    }
    Ok(if results.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
