//! What was measured, as a table and as JSON.

use std::io::{self, Write};

use anyhow::Result;
use serde_json::json;

use super::Args;
use super::arms::{Arm, Bench};

/// What a walk moves, and how fast memory could be read.
struct Walk {
    bytes: u64,
    launches: usize,
    /// Bytes a second.
    ceiling: Option<f64>,
}

impl Walk {
    fn of(bench: &mut Bench, ceiling: Option<f64>) -> Result<Walk> {
        // Of all stages: they run one after the other.
        let stages: Vec<_> = bench.session.walks()?.into_iter().map(|walk| walk.launches()).collect();
        let bytes = stages.iter().map(|plan| plan.cost().read + plan.cost().write).sum();
        Ok(Walk { bytes, launches: stages.iter().map(|plan| plan.steps().len()).sum(), ceiling })
    }

    /// Per cent of the ceiling that a walk of `ms` reaches.
    fn share(&self, ms: f64) -> Option<f64> {
        self.ceiling.map(|ceiling| self.bytes as f64 / (ms * 1e-3) / ceiling * 100.0)
    }
}

/// Prints the table or the object.
pub fn print(args: &Args, repetitions: usize, benches: &mut [Bench], ceiling: Option<f64>) -> Result<()> {
    let mut out = io::stdout().lock();
    if args.json {
        serde_json::to_writer_pretty(&mut out, &object(args, repetitions, benches, ceiling)?)
            .map_err(io::Error::from)?;
        writeln!(out)?;
        return Ok(out.flush()?);
    }
    let context = match args.context {
        Some(context) => format!(", decoding from a context of {context} positions of zeros"),
        None => String::new(),
    };
    writeln!(
        out,
        "prompt {} tokens{context}, {} decoded, {} a synchronisation, repetitions: {repetitions}",
        args.prompt_tokens,
        args.tokens(),
        args.queue
    )?;
    writeln!(
        out,
        "{:<14} {:>10} {:>8} {:>10} {:>14} {:>14} {:>11}",
        "", "ms/token", "spread", "tok/s", "prompt tok/s", "of read-only", "submitting"
    )?;
    for bench in benches.iter_mut() {
        let walk = Walk::of(bench, ceiling)?;
        let program = bench.loaded.engine.options().activations;
        for (name, arm) in [("eager", &bench.eager), ("graph", &bench.graph)] {
            let ms = arm.ms(args)?;
            let percent = |share: Option<f64>| share.map_or("-".to_owned(), |share| format!("{share:.1} %"));
            let submitting = arm.submitting.map(|share| share * 100.0);
            let spread = (ms.count > 1).then(|| ms.spread());
            writeln!(
                out,
                "{:<14} {:>10.4} {:>8} {:>10.1} {:>14.1} {:>14} {:>11}",
                format!("{name} {program}"),
                ms.median,
                percent(spread),
                1e3 / ms.median,
                arm.prompt_tok_s(args)?,
                percent(walk.share(ms.median)),
                percent(submitting),
            )?;
        }
    }
    for bench in benches.iter_mut() {
        let walk = Walk::of(bench, ceiling)?;
        writeln!(
            out,
            "{}: {} launches and {:.3} MB a token; {:.1} MB on the device, loaded in {:.2} s",
            bench.loaded.engine.options().activations,
            walk.launches,
            walk.bytes as f64 / 1e6,
            bench.device_bytes as f64 / 1e6,
            bench.loaded.load.as_secs_f64()
        )?;
        writeln!(out, "{}: {}", bench.loaded.engine.options().activations, bench.loaded.load_line())?;
    }
    if let Some(ceiling) = ceiling {
        writeln!(out, "read-only rate of this device, measured now: {:.3} TB/s", ceiling / 1e12)?;
    }
    Ok(out.flush()?)
}

fn object(
    args: &Args,
    repetitions: usize,
    benches: &mut [Bench],
    ceiling: Option<f64>,
) -> Result<serde_json::Value> {
    let mut programs = Vec::new();
    for bench in benches.iter_mut() {
        let walk = Walk::of(bench, ceiling)?;
        let arm = |arm: &Arm| figures(args, arm, &walk);
        programs.push(json!({
            "act": bench.loaded.engine.options().activations.to_string(),
            "program": bench.loaded.engine.options().program(),
            "load_s": bench.loaded.load.as_secs_f64(),
            "device_bytes": bench.device_bytes,
            "bytes_per_token": walk.bytes,
            "launches_per_token": walk.launches,
            "eager": arm(&bench.eager)?,
            "graph": arm(&bench.graph)?,
        }));
    }
    let mut object = benches[0].loaded.about();
    let run = json!({
        "prompt_tokens": args.prompt_tokens,
        "tokens": args.tokens(),
        "context": args.context,
        "queue": args.queue.get(),
        "repetitions": repetitions,
        "read_only_bytes_s": ceiling,
        "programs": programs,
    });
    if let serde_json::Value::Object(run) = run {
        object.extend(run);
    }
    Ok(object.into())
}

fn figures(args: &Args, arm: &Arm, walk: &Walk) -> Result<serde_json::Value> {
    let ms = arm.ms(args)?;
    Ok(json!({
        "ms_per_token": ms.median,
        "ms_least": ms.least,
        "ms_most": ms.most,
        "tok_s": 1e3 / ms.median,
        "prompt_tok_s": arm.prompt_tok_s(args)?,
        "percent_of_read_only": walk.share(ms.median),
        "submitting_cpu_share": arm.submitting,
        "thread_cpu_share": arm.busy,
    }))
}
