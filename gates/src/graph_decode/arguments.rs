//! The arguments of `graph-decode-gate`: `MODEL [P] [N] [bench]`.

use anyhow::{Context, Result, bail, ensure};
use bitwalk::options::{Activations, KvType};

use super::{PROMPT, TOKENS};
use crate::cli::Usage;

/// What the arguments say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arguments {
    /// The model's file, or its name in a `models` folder.
    pub model: String,
    /// Tokens of the prompt.
    pub prompt: usize,
    /// Tokens generated.
    pub tokens: usize,
    /// Time the runs and compare nothing.
    pub bench: bool,
    /// The activation programs to run.
    pub activations: Vec<Activations>,
    /// The cache types to run.
    pub kv: Vec<KvType>,
}

/// How the arguments are written.
pub const USAGE: &str = "MODEL [P] [N] [bench] [--act exact|i16|all] [--kv f32|f16|fp8|all]
  MODEL   a GGUF file
  P       tokens of the prompt (64)
  N       tokens generated (256; with `bench`, 257: 256 steps)
  bench   time eager and graph decoding, interleaved
  --act   activation program (exact)
  --kv    element type of the cache (f16)";

impl Arguments {
    /// Reads the arguments; flags may stand anywhere.
    ///
    /// # Errors
    /// [`Usage`] for anything that is not understood.
    pub fn parse(args: &[String]) -> Result<Arguments> {
        Self::read(args).map_err(|error| Usage(format!("{error:#}\nusage: graph-decode {USAGE}")).into())
    }

    fn read(args: &[String]) -> Result<Arguments> {
        let mut words = Vec::new();
        let (mut activations, mut kv) = (vec![Activations::Exact], vec![KvType::F16]);
        let mut rest = args.iter();
        while let Some(word) = rest.next() {
            match word.as_str() {
                "--act" => activations = choice(word, rest.next(), Activations::ALL)?,
                "--kv" => kv = choice(word, rest.next(), KvType::ALL)?,
                flag if flag.starts_with('-') => bail!("`{flag}` is no option"),
                word => words.push(word),
            }
        }
        let bench = words.last() == Some(&"bench") && words.len() > 1;
        if bench {
            words.pop();
        }
        ensure!(words.len() <= 3, "`{}`: at most MODEL, P and N", words[3..].join(" "));
        let model = words.first().context("no MODEL")?.to_string();
        let number = |index: usize, name: &str, default: usize| match words.get(index) {
            None => Ok(default),
            Some(word) => match word.parse() {
                Ok(0) | Err(_) => bail!("{name} is `{word}`, not a positive number"),
                Ok(number) => Ok(number),
            },
        };
        // N tokens take N − 1 steps; a bench runs a round number of steps.
        let prompt = number(1, "P", PROMPT)?;
        let tokens = number(2, "N", if bench { TOKENS + 1 } else { TOKENS })?;
        Ok(Arguments { model, prompt, tokens, bench, activations, kv })
    }
}

fn choice<T: Copy + std::str::FromStr<Err = String>>(
    flag: &str,
    value: Option<&String>,
    all: &[T],
) -> Result<Vec<T>> {
    match value.map(String::as_str) {
        None => bail!("{flag} wants a value"),
        Some("all") => Ok(all.to_vec()),
        Some(name) => Ok(vec![name.parse().map_err(anyhow::Error::msg)?]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Arguments> {
        Arguments::parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn defaults_and_all_forms() {
        let plain = parse("m.gguf").unwrap();
        assert_eq!((plain.prompt, plain.tokens, plain.bench), (64, 256, false));
        let bench = parse("m.gguf bench").unwrap();
        assert_eq!((bench.prompt, bench.tokens, bench.bench), (64, 257, true));
        let full = parse("m.gguf 8 9 bench --act all --kv fp8").unwrap();
        assert_eq!((full.prompt, full.tokens, full.bench), (8, 9, true));
        assert_eq!((full.activations.len(), &full.kv[..]), (2, &[KvType::F8][..]));
    }

    #[test]
    fn nonsense_is_wrong_usage() {
        for line in ["", "m x", "m 0", "m -1", "m 1 2 3", "m 1 2 3 bench", "m --act i8", "m --kv", "m --fast"]
        {
            let error = parse(line).expect_err(line);
            assert!(error.is::<Usage>(), "`{line}`: {error}");
        }
    }
}
