//! `text`: from a prompt to a reply, as text, against golden data; eager and replayed alike.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use bitwalk::decode::{Finish, GraphDecodeState, Production};
use bitwalk::format::gguf::GgufFile;
use bitwalk::generate::TextModel;
use bitwalk::options::{EngineOptions, KvType};
use bitwalk::tokenizer::TextStream;
use serde::Deserialize;

use crate::cli::Usage;
use crate::context::{FIXTURE, GateContext, model_file};
use crate::gate::{Gate, Tooth};
use crate::outcome::{Need, Report};
use crate::reference::{golden_of, read};
use crate::runs::Subject;

/// Tokens of a reply that are compared at most: the shortest golden reply ends before.
const TOKENS: usize = 12;

/// The gate.
#[derive(Debug)]
pub struct TextGate;

impl Gate for TextGate {
    const NAME: &'static str = "text";
    const PROVES: &'static str =
        "prompts become the golden ids, and the replies the golden text, streamed, eager and replayed";
    const ARGUMENTS: &'static str = "MODEL   a GGUF file with golden data (found by the model's name)";
    const TEETH: &'static [Tooth] = &[
        Tooth {
            fault: "a prompt that is not written in the model's template",
            must_say: "its ids are",
            bite: |cx, report| bite(cx, report, |case| case.raw = false),
        },
        Tooth {
            fault: "a stop token that is not noticed",
            must_say: "the reply is",
            bite: |cx, report| bite(cx, report, |case| case.stop.clear()),
        },
        Tooth {
            fault: "a reply of another token",
            must_say: "ids of the reply",
            bite: |cx, report| bite(cx, report, |case| case.greedy_ids[2] ^= 1),
        },
        Tooth {
            fault: "text that lost a letter",
            must_say: "the reply is",
            bite: |cx, report| bite(cx, report, |case| case.reply.truncate(case.reply.len() - 1)),
        },
    ];

    fn run(cx: &GateContext, report: &mut Report) -> Result<()> {
        let model = match &cx.args[..] {
            [] => {
                compare(cx, report, &cx.fixture()?, &fixture_cases(cx)?)?;
                let Some(model) = &cx.model else {
                    let hint = "no --model given; `cargo xtask model smollm2` fetches one";
                    report.skip(Need::Model, "a real model", hint);
                    return Ok(());
                };
                model.clone()
            }
            [model] => model_file(model)?,
            [_, rest @ ..] => return Err(Usage(format!("{rest:?}: only MODEL is taken")).into()),
        };
        compare(cx, report, &model, &model_cases(&model)?)
    }
}

/// A prompt, and what becomes of it.
#[derive(Debug, Clone, PartialEq)]
struct Case {
    prompt: String,
    /// Whether the prompt is given to the model as it is.
    raw: bool,
    prompt_ids: Vec<u32>,
    /// Without regard to stop tokens.
    greedy_ids: Vec<u32>,
    stop: Vec<u32>,
    /// The text of the ids before the first stop token.
    reply: String,
}

impl Case {
    /// The ids before the first stop token, as many as are compared.
    fn reply_ids(&self) -> &[u32] {
        let ids = &self.greedy_ids[..self.greedy_ids.len().min(TOKENS)];
        let end = ids.iter().position(|id| self.stop.contains(id)).unwrap_or(ids.len());
        &ids[..end]
    }
}

/// The golden case of the fixture whose prompt is its first special token. Its bytes are known: tokens 3 to 258 are the
/// bytes in order.
fn fixture_cases(cx: &GateContext) -> Result<Vec<Case>> {
    #[derive(Deserialize)]
    struct Golden {
        cases: Vec<Ids>,
    }
    #[derive(Deserialize)]
    struct Ids {
        prompt_ids: Vec<u32>,
        greedy_ids: Vec<u32>,
    }
    let golden: Golden = read(&golden_of(FIXTURE)?)?;
    let case = golden.cases.into_iter().find(|case| case.prompt_ids == [0]);
    let case = case.context("the fixture's golden data has no case of one token")?;
    let file = GgufFile::open(&cx.fixture()?)?;
    let names = file.metadata().require_strings("tokenizer.ggml.tokens")?;
    // Token 11 comes late enough that there is a reply before it.
    let stop = case.greedy_ids.get(11).copied().context("a golden case of twelve tokens")?;
    let mut bytes = Vec::new();
    for &id in case.greedy_ids.iter().take_while(|id| **id != stop) {
        match u8::try_from(id.wrapping_sub(3)) {
            Ok(byte) => bytes.push(byte),
            // The rest are merges of letters, which stand for themselves.
            Err(_) => bytes.extend(names[id as usize].replace('Ġ', " ").into_bytes()),
        }
    }
    Ok(vec![Case {
        prompt: "<|endoftext|>".to_owned(),
        raw: true,
        prompt_ids: case.prompt_ids,
        greedy_ids: case.greedy_ids,
        stop: vec![stop],
        reply: String::from_utf8_lossy(&bytes).into_owned(),
    }])
}

/// The golden cases of a real model that say how a prompt was written: those in the model's template, and one that is
/// continued as it is. (`reference` takes the ids of all.)
fn model_cases(model: &Path) -> Result<Vec<Case>> {
    #[derive(Deserialize)]
    struct Golden {
        cases: Vec<Written>,
    }
    #[derive(Deserialize)]
    struct Written {
        name: String,
        prompt: Option<String>,
        prompt_ids: Vec<u32>,
        greedy_ids: Vec<u32>,
        text: String,
    }
    let name = model.file_name().unwrap_or_default().to_string_lossy();
    let golden: Golden = read(&golden_of(&name)?)?;
    let file = GgufFile::open(model)?;
    let text = TextModel::from_metadata(file.metadata())?;
    let mut cases = Vec::new();
    for case in golden.cases {
        let (Some(prompt), raw) = (case.prompt, case.name != "chat") else { continue };
        if raw && cases.iter().any(|case: &Case| case.raw) {
            continue;
        }
        // In the golden text special tokens are written out; the reply ends where the first of them stands.
        let ends = text.stop.iter().map(|&id| text.tokenizer.decode(&[id])).collect::<Result<Vec<_>, _>>()?;
        let end = ends.iter().filter_map(|end| case.text.find(end.as_str())).min();
        cases.push(Case {
            prompt,
            raw,
            prompt_ids: case.prompt_ids,
            greedy_ids: case.greedy_ids,
            stop: text.stop.clone(),
            reply: case.text[..end.unwrap_or(case.text.len())].to_owned(),
        });
    }
    ensure!(!cases.is_empty(), "the golden data of {name} has no case with a prompt in text");
    Ok(cases)
}

fn bite(cx: &GateContext, report: &mut Report, plant: fn(&mut Case)) -> Result<()> {
    let mut cases = fixture_cases(cx)?;
    plant(&mut cases[0]);
    compare(cx, report, &cx.fixture()?, &cases)
}

fn compare(cx: &GateContext, report: &mut Report, path: &PathBuf, cases: &[Case]) -> Result<()> {
    // The golden data keeps keys and values in float32.
    let options = EngineOptions { kv: KvType::F32, ..EngineOptions::default() };
    let subject = Subject::load(cx, cx.open()?, options, path)?;
    let text = TextModel::from_metadata(GgufFile::open(path)?.metadata())?;
    report.note(format!("{}: {} prompts, up to {TOKENS} tokens each", subject.label(), cases.len()));
    let bar = cx.bar(cases.len() * 2, "replies");
    for case in cases {
        let quoted = format!("{:?}", case.prompt);
        let ids = text.prompt(&case.prompt, case.raw)?;
        report.check(ids == case.prompt_ids, || {
            format!("{quoted}: its ids are {ids:?}, the golden ones {:?}", case.prompt_ids)
        });
        report.compared("prompt ids", ids.len() as u64);
        let mut session = subject.session(case.prompt_ids.len() + TOKENS)?;
        session.prime(&case.prompt_ids)?;
        let mut graphs = GraphDecodeState::new();
        for (how, queue) in [("eager", 1), ("replayed", 4)] {
            // The last token of the prompt anew, whose logits choose the first of the reply.
            let last = case.prompt_ids.len() - 1;
            session.rewind(last as u32)?;
            session.prime(&case.prompt_ids[last..])?;
            let graphs = (how == "replayed").then_some(&mut graphs);
            let queue = NonZeroUsize::new(queue).context("a queue of none")?;
            let mut stream = TextStream::new(&text.tokenizer);
            let mut reply = String::new();
            let ask = Production { graphs, tokens: TOKENS, queue, stop: &case.stop };
            let mut unknown = None;
            let produced = session.produce(ask, |id| {
                match stream.push(id) {
                    Ok(piece) => reply += &piece,
                    Err(error) => unknown = Some(error),
                }
                Ok(unknown.is_none())
            })?;
            if let Some(error) = unknown {
                return Err(error.into());
            }
            let wanted = case.reply_ids();
            report.check(produced.ids == wanted, || {
                format!(
                    "{quoted}, {how}: ids of the reply {:?}, the golden ones {wanted:?} and then one of {:?}",
                    produced.ids, case.stop
                )
            });
            if matches!(produced.finish, Finish::Stop(_)) {
                reply += &stream.finish();
                report.check(reply == case.reply, || {
                    format!("{quoted}, {how}: the reply is {reply:?}, the golden one {:?}", case.reply)
                });
                report.compared("whole replies", 1);
            } else {
                // Cut at a number of tokens, where a character may be incomplete.
                report.check(!reply.is_empty() && case.reply.starts_with(&reply), || {
                    format!("{quoted}, {how}: the reply is {reply:?}, the golden one {:?}", case.reply)
                });
                report.compared("beginnings of replies", 1);
            }
            if how == "replayed" {
                report.note(format!("{quoted} -> {reply:?}"));
            }
            report.compared("reply ids", produced.ids.len() as u64);
            bar.inc(1);
        }
        report.compared("replays", graphs.counters().replays);
    }
    bar.finish_and_clear();
    Ok(())
}
