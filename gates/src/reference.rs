//! `reference MODEL FILE`: ids and top-5 logits against data of an independent implementation.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use bitwalk::options::{Activations, EngineOptions, KvType};
use serde::Deserialize;

use crate::cli::Usage;
use crate::context::{FIXTURE, GateContext, find_file, folders, model_file};
use crate::gate::{Gate, Tooth};
use crate::outcome::{Need, Report};
use crate::runs::{Recording, Subject, eager};

/// The worst that a logit of program `exact` may be off. The reference is float32 arithmetic in another order: two such
/// orders were seen 1.7e-5 apart on a small model and are expected within 1e-3 on logits of about 25 over 30 layers.
const TOLERANCE: f64 = 2e-3;

/// The gate.
#[derive(Debug)]
pub struct Reference;

impl Gate for Reference {
    const NAME: &'static str = "reference";
    const PROVES: &'static str = "greedy ids and top-5 logits are those of an independent implementation";
    const ARGUMENTS: &'static str =
        "MODEL [FILE]   a GGUF file and its golden data (found by the model's name)";
    const TEETH: &'static [Tooth] = &[
        Tooth {
            fault: "one golden id changed",
            must_say: "id",
            bite: |cx, report| bite(cx, report, |golden| golden.cases[0].greedy_ids[3] += 1),
        },
        Tooth {
            fault: "one golden logit moved by 3e-3",
            must_say: "off by",
            bite: |cx, report| bite(cx, report, |golden| golden.cases[0].top5[2][4].1 += 3e-3),
        },
        Tooth {
            fault: "golden data without a case",
            must_say: "compared no ids",
            bite: |cx, report| bite(cx, report, |golden| golden.cases.clear()),
        },
        Tooth {
            fault: "a golden case without top-5 logits",
            must_say: "as many",
            bite: |cx, report| bite(cx, report, |golden| golden.cases[0].top5.clear()),
        },
    ];

    fn run(cx: &GateContext, report: &mut Report) -> Result<()> {
        let (model, file) = match &cx.args[..] {
            [] => {
                run_both(cx, report, &cx.fixture()?, &golden_of(FIXTURE)?)?;
                let Some(model) = &cx.model else {
                    let hint = "no --model given; `cargo xtask model smollm2` fetches one";
                    report.skip(Need::Model, "a real model", hint);
                    return Ok(());
                };
                let name = model.file_name().unwrap_or_default().to_string_lossy().into_owned();
                (model.clone(), golden_of(&name)?)
            }
            [model] => {
                let model = model_file(model)?;
                let name = model.file_name().unwrap_or_default().to_string_lossy().into_owned();
                (model, golden_of(&name)?)
            }
            [model, file] => {
                let golden = Path::new(file);
                let golden =
                    if golden.is_file() { golden.to_path_buf() } else { find_file("fixtures", file)? };
                (model_file(model)?, golden)
            }
            [_, _, rest @ ..] => return Err(Usage(format!("{rest:?}: only MODEL and FILE are taken")).into()),
        };
        run_both(cx, report, &model, &file)
    }
}

/// Golden data of one model.
#[derive(Debug, Clone, Deserialize)]
struct Golden {
    source: String,
    file: String,
    cases: Vec<Case>,
}

/// A prompt and its greedy continuation.
#[derive(Debug, Clone, Deserialize)]
struct Case {
    name: String,
    prompt_ids: Vec<u32>,
    greedy_ids: Vec<u32>,
    /// The five largest logits of each step, with their ids.
    top5: Vec<Vec<(u32, f64)>>,
}

/// The golden data whose `file` is the model's name.
pub(crate) fn golden_of(model: &str) -> Result<PathBuf> {
    #[derive(Deserialize)]
    struct Head {
        file: String,
    }
    for folder in folders("fixtures") {
        for entry in folder.read_dir().with_context(|| format!("reading {}", folder.display()))? {
            let path = entry?.path();
            if path.extension().is_none_or(|extension| extension != "json") {
                continue;
            }
            let head = serde_json::from_reader::<_, Head>(BufReader::new(File::open(&path)?));
            if head.is_ok_and(|head| head.file == model) {
                return Ok(path);
            }
        }
    }
    Err(Usage(format!("no golden data for {model}: name its file as the second argument")).into())
}

/// Reads golden data, or what of it is asked for.
pub(crate) fn read<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T> {
    let file = File::open(path).with_context(|| format!("opening {}", path.display()))?;
    serde_json::from_reader(BufReader::new(file)).with_context(|| format!("reading {}", path.display()))
}

fn bite(cx: &GateContext, report: &mut Report, plant: fn(&mut Golden)) -> Result<()> {
    let mut golden: Golden = read(&golden_of(FIXTURE)?)?;
    // As little as shows the fault.
    golden.cases.truncate(1);
    for case in &mut golden.cases {
        case.greedy_ids.truncate(6);
        case.top5.truncate(6);
    }
    plant(&mut golden);
    exact(cx, report, &cx.fixture()?, &golden)
}

fn run_both(cx: &GateContext, report: &mut Report, model: &Path, file: &Path) -> Result<()> {
    let mut golden: Golden = read(file)?;
    if cx.quick {
        golden.cases.truncate(2);
    }
    report.note(format!(
        "golden: {} cases for {}, made by {}",
        golden.cases.len(),
        golden.file,
        golden.source
    ));
    exact(cx, report, model, &golden)?;
    i16(cx, report, model, &golden)
}

/// What a program made of the golden cases.
#[derive(Debug, Default)]
struct Found {
    ids: u64,
    logits: u64,
    worst: f64,
    kept: usize,
    wrong: Vec<String>,
}

fn exact(cx: &GateContext, report: &mut Report, model: &Path, golden: &Golden) -> Result<()> {
    let found = measure(cx, report, model, golden, Activations::Exact)?;
    report.compared("ids", found.ids);
    report.compared("top-5 logits", found.logits);
    found.wrong.iter().for_each(|line| report.fail(line));
    report.check(found.worst <= TOLERANCE, || {
        format!("a top-5 logit is off by {:.3e}, the bound is {TOLERANCE:.0e}", found.worst)
    });
    Ok(())
}

/// Program `i16` states its error; it is held to nothing here.
fn i16(cx: &GateContext, report: &mut Report, model: &Path, golden: &Golden) -> Result<()> {
    let found = measure(cx, report, model, golden, Activations::I16)?;
    for line in &found.wrong {
        report.note(format!("i16 (reported, not required): {line}"));
    }
    Ok(())
}

fn measure(
    cx: &GateContext,
    report: &mut Report,
    model: &Path,
    golden: &Golden,
    activations: Activations,
) -> Result<Found> {
    // The reference keeps keys and values in float32.
    let options = EngineOptions { activations, kv: KvType::F32, ..EngineOptions::default() };
    let subject = Subject::load(cx, cx.open_for(model)?, options, model)?;
    let mut found = Found::default();
    for case in &golden.cases {
        let (prompt, tokens) = (case.prompt_ids.len(), case.greedy_ids.len());
        let bar = cx.bar(prompt + tokens, &format!("{activations}: {}", case.name));
        let recording = eager(&mut subject.session(prompt + tokens)?, &case.prompt_ids, tokens, &bar)?;
        bar.finish_and_clear();
        measure_case(case, &recording, &mut found);
    }
    report.note(format!(
        "{}: every id equal in {} of {} cases; worst top-5 logit off by {:.2e} ({} ids, {} logits)",
        subject.label(),
        found.kept,
        golden.cases.len(),
        found.worst,
        found.ids,
        found.logits
    ));
    Ok(found)
}

fn measure_case(case: &Case, recording: &Recording, found: &mut Found) {
    if case.top5.len() != case.greedy_ids.len() {
        let (top5, ids) = (case.top5.len(), case.greedy_ids.len());
        found
            .wrong
            .push(format!("{}: {top5} rows of top-5 logits, {ids} ids: there must be as many", case.name));
    }
    for step in 0..case.greedy_ids.len() {
        let logits = recording.row(step);
        for &(id, wanted) in case.top5.get(step).into_iter().flatten() {
            let Some(&bits) = logits.get(id as usize) else {
                found
                    .wrong
                    .push(format!("{}, step {step}: golden id {id} is outside the vocabulary", case.name));
                continue;
            };
            found.logits += 1;
            let off = (f64::from(f32::from_bits(bits)) - wanted).abs();
            // A NaN is worse than any number.
            found.worst = if off.is_nan() { f64::INFINITY } else { found.worst.max(off) };
        }
        found.ids += 1;
        let (got, wanted) = (recording.ids[step], case.greedy_ids[step]);
        if got != wanted {
            // From here on the two runs were fed different tokens.
            found.wrong.push(format!("{}, step {step}: id {got}, the golden one is {wanted}", case.name));
            return;
        }
    }
    found.kept += 1;
}
