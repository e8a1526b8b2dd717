//! `bitwalk chat`: a conversation whose cache is kept from turn to turn.

use std::io::{self, BufRead, IsTerminal, Write};

use anyhow::{Context, Result, bail};
use bitwalk::tokenizer::Message;
use serde_json::json;

use super::generate::{DecodeArgs, reply};
use super::interrupt::{self, Interrupted, interrupted, waiting};
use super::model::{ModelArgs, SamplingArgs, prime};
use super::tell;

/// Arguments of `bitwalk chat`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,
    /// What the model is told before the conversation
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,
    /// Tokens that the conversation may have [default: the model's context, at most 8192]
    #[arg(long, value_name = "N")]
    context: Option<usize>,
    /// Tokens a reply may have
    #[arg(long, value_name = "N", default_value_t = 1024)]
    max_tokens: usize,
    #[command(flatten)]
    decode: DecodeArgs,
    #[command(flatten)]
    sampling: SamplingArgs,
    /// Print each reply, or why there is none, as one line of JSON
    #[arg(long)]
    json: bool,
}

/// A message of a conversation.
fn message(role: &str, content: &str) -> Message {
    Message { role: role.to_owned(), content: content.to_owned() }
}

/// Reads messages, a line each, and replies.
pub fn run(args: &Args) -> Result<()> {
    let sampling = args.sampling.sampling()?;
    interrupt::install()?;
    let loaded = args.model.load()?;
    let text = loaded.text()?;
    if text.template.is_none() {
        bail!(
            "{} has no chat template, so it is no instruct model: `bitwalk generate --raw` continues text",
            loaded.file.source().path().display()
        );
    }
    let capacity = args.context.unwrap_or(8192).min(loaded.model.config().context as usize);
    let mut session = loaded.session(capacity)?;
    session.set_sampling(sampling.as_ref())?;
    let mut graphs = args.decode.graphs(&loaded.options);
    let opening: Vec<Message> = args.system.iter().map(|system| message("system", system)).collect();
    let mut messages = opening.clone();
    // The ids whose keys and values are in the cache.
    let mut cached: Vec<u32> = Vec::new();
    let asks = io::stdin().is_terminal();
    if asks {
        tell("/clear begins anew, /exit or Ctrl-D ends");
    }
    loop {
        let Some(line) = line(asks)? else { return Ok(()) };
        match line.trim() {
            "" => continue,
            "/exit" => return Ok(()),
            "/clear" => {
                messages.clone_from(&opening);
                continue;
            }
            said => messages.push(message("user", said)),
        }
        let ids = text.conversation(&messages)?;
        // At least one token must be run, so that there are logits to go on from.
        let kept = cached.iter().zip(&ids).take_while(|(a, b)| a == b).count().min(ids.len() - 1);
        if ids.len() >= capacity {
            let words = format!(
                "the conversation has {} tokens, and there is room for {capacity}: /clear begins anew",
                ids.len()
            );
            if args.json {
                writeln!(io::stdout(), "{}", json!({ "error": words }))?;
            } else {
                tell(format_args!("bitwalk: {words}"));
            }
            messages.pop();
            continue;
        }
        session.rewind(kept as u32)?;
        cached.truncate(kept);
        let primed = prime(&mut session, &ids[kept..])?;
        let mut out = io::stdout().lock();
        let reply = reply(&mut session, graphs.as_mut(), &text, &args.decode, args.max_tokens, |piece| {
            if args.json {
                return Ok(());
            }
            out.write_all(piece.as_bytes())?;
            out.flush()
        })?;
        cached = ids;
        cached.extend(&reply.produced.ids);
        cached.truncate(session.cache().held() as usize);
        if args.json {
            let line = json!({
                "reply": reply.text,
                "finish": reply.finish(),
                "tokens": reply.produced.ids.len(),
                "read": cached.len() - reply.produced.walks - kept,
                "reused": kept,
                "read_s": primed.as_secs_f64(),
                "reply_s": reply.time.as_secs_f64(),
            });
            write!(out, "{line}")?;
        }
        writeln!(out)?;
        out.flush()?;
        if interrupted() {
            return Err(Interrupted.into());
        }
        messages.push(message("assistant", &reply.text));
    }
}

/// The next line; `None` at the end.
fn line(asks: bool) -> Result<Option<String>> {
    if asks {
        let _ = write!(io::stderr(), "> ");
    }
    let mut line = String::new();
    let read = waiting(|| io::stdin().lock().read_line(&mut line)).context("reading standard input")?;
    if read == 0 && asks {
        tell("");
    }
    Ok((read > 0).then_some(line))
}
