//! How the next token is chosen: greedily, or drawn after filters, on the device and inside the captured walk.

use thiserror::Error;

use crate::cache::Cache;
use crate::device::{Buffer, DeviceError};
use crate::engine::Engine;
use crate::kernel::LaunchError;
use crate::kernels::sampling::host::{self, BINS, Parameters};
use crate::kernels::sampling::{
    MAX_VOCAB, sample_adjust, sample_draw, sample_gather, sample_histogram, sampling_parts,
};
use crate::plan::{Arena, PlanBuilder, PlanError};

/// An option that makes no sense.
#[derive(Debug, Clone, PartialEq, Error)]
#[error("{option} is {value}: it must be {must}")]
pub struct SamplingError {
    /// The option, as the command line spells it.
    pub option: &'static str,
    /// What was given.
    pub value: String,
    /// What it may be.
    pub must: &'static str,
}

/// What can be asked of a draw. Filters apply in the order repetition penalty, top-k, top-p, min-p, temperature, as
/// llama.cpp's do: top-p is a share of what top-k kept, at temperature 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SamplingOptions {
    /// Divides the logits before the draw.
    pub temperature: f32,
    /// How many of the likeliest tokens are kept; equal ones rank by id, the lowest first.
    pub top_k: Option<u32>,
    /// The fewest of the likeliest that hold this share of the probability are kept.
    pub top_p: Option<f32>,
    /// Tokens with less than this part of the likeliest's probability are dropped.
    pub min_p: Option<f32>,
    /// Divides the positive logits, and multiplies the negative ones, of every token of the session so far.
    pub repeat_penalty: f32,
    /// With the position, all that a draw depends on.
    pub seed: u64,
}

impl Default for SamplingOptions {
    fn default() -> Self {
        SamplingOptions {
            temperature: 1.0,
            top_k: None,
            top_p: None,
            min_p: None,
            repeat_penalty: 1.0,
            seed: 0,
        }
    }
}

/// Options that make sense.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampling {
    options: SamplingOptions,
    parameters: Parameters,
}

impl Sampling {
    /// Checks the options.
    ///
    /// # Errors
    /// [`SamplingError`] naming the first option that is NaN, zero, negative or past its range.
    pub fn new(options: SamplingOptions) -> Result<Sampling, SamplingError> {
        let positive = |option, value: f32| {
            let must = "a number above 0";
            let good = value > 0.0 && value.is_finite();
            if good { Ok(()) } else { Err(SamplingError { option, value: value.to_string(), must }) }
        };
        let part = |option, value: Option<f32>| match value {
            Some(value) if !(value > 0.0 && value <= 1.0) => {
                Err(SamplingError { option, value: value.to_string(), must: "above 0 and at most 1" })
            }
            _ => Ok(()),
        };
        positive("temp", options.temperature)?;
        positive("repeat-penalty", options.repeat_penalty)?;
        part("top-p", options.top_p)?;
        part("min-p", options.min_p)?;
        if options.top_k == Some(0) {
            let must = "at least 1 (leave it out to keep every token)";
            return Err(SamplingError { option: "top-k", value: "0".to_owned(), must });
        }
        // All of the probability is no filter; the least share is one unit.
        let share =
            options.top_p.filter(|&p| p < 1.0).map(|p| (f64::from(p) * 4_294_967_296.0).ceil() as u32);
        let parameters = Parameters {
            temperature: options.temperature,
            repeat: options.repeat_penalty,
            top_k: options.top_k.unwrap_or(0),
            top_p: share.unwrap_or(0),
            min_p: options.min_p.unwrap_or(0.0),
            seed: options.seed,
        };
        Ok(Sampling { options, parameters })
    }

    /// The options.
    pub fn options(&self) -> &SamplingOptions {
        &self.options
    }

    /// The parameters as the kernels read them.
    pub fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    /// The token that the device draws after `occurred`, whose last one gave `logits`: computed on the host, by sorting.
    pub fn next_token(&self, logits: &[f32], occurred: &[u32]) -> u32 {
        host::next_token(&self.parameters, logits, occurred)
    }

    /// The probabilities of a draw in float64, by the definition of each filter.
    pub fn distribution(&self, logits: &[f32], occurred: &[u32]) -> Vec<f64> {
        let p = &self.options;
        let mut order: Vec<(f64, usize)> = logits.iter().map(|&v| f64::from(v)).zip(0..).collect();
        for (v, index) in &mut order {
            if occurred.contains(&(*index as u32)) {
                let penalty = f64::from(p.repeat_penalty);
                *v = if *v > 0.0 { *v / penalty } else { *v * penalty };
            }
        }
        order.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        let top = order.first().map_or(0.0, |first| first.0);
        order.truncate(p.top_k.map_or(usize::MAX, |k| k as usize));
        let probability = |v: f64| (v - top).exp();
        if let Some(share) = p.top_p {
            let total: f64 = order.iter().map(|o| probability(o.0)).sum();
            let mut sum = 0.0;
            let last = order.iter().position(|o| {
                sum += probability(o.0);
                sum >= f64::from(share) * total
            });
            order.truncate(last.map_or(order.len(), |last| last + 1));
        }
        order.retain(|o| probability(o.0) >= f64::from(p.min_p.unwrap_or(0.0)));
        let weight = |v: f64| ((v - top) / f64::from(p.temperature)).exp();
        let total: f64 = order.iter().map(|o| weight(o.0)).sum();
        let mut out = vec![0.0; logits.len()];
        for (v, index) in order {
            out[index] = weight(v) / total;
        }
        out
    }
}

/// The device's buffer of parameters. A captured walk reads it anew at each replay.
#[derive(Debug)]
pub struct Sampler {
    parameters: Buffer<u32>,
}

impl Sampler {
    /// A buffer for the parameters, set to those of [`SamplingOptions::default`].
    ///
    /// # Errors
    /// Out of memory.
    pub fn new(engine: &Engine) -> Result<Sampler, DeviceError> {
        let sampler = Sampler { parameters: engine.uninit(Parameters::WORDS, "sampling parameters")? };
        let parameters =
            Parameters { temperature: 1.0, repeat: 1.0, top_k: 0, top_p: 0, min_p: 0.0, seed: 0 };
        engine.copy_into(&sampler.parameters, &parameters.encode())?;
        Ok(sampler)
    }

    /// Draws from here on are as `sampling` says.
    ///
    /// # Errors
    /// What the device says.
    pub fn set(&self, engine: &Engine, sampling: &Sampling) -> Result<(), DeviceError> {
        engine.copy_into(&self.parameters, &sampling.parameters.encode())
    }

    /// Appends the draw of `tokens[position + 1]` from `logits` `[vocab]`; the position advances.
    ///
    /// # Errors
    /// A vocabulary past [`MAX_VOCAB`]; out of memory.
    pub fn push(
        &self,
        b: &mut PlanBuilder<'_>,
        arena: &Arena,
        cache: &Cache,
        logits: &Buffer<f32>,
        vocab: u32,
    ) -> Result<(), PlanError> {
        if vocab > MAX_VOCAB {
            let reason = format!("a vocabulary of {vocab}: at most {MAX_VOCAB} tokens can be sampled from");
            b.push(
                "adjust",
                Err::<crate::kernel::Launch, _>(LaunchError {
                    kernel: "sample_adjust",
                    argument: "vocab",
                    reason,
                }),
            )?;
        }
        let (parts, len) = (sampling_parts(vocab), vocab as usize);
        let (tokens, position, parameters) = (cache.tokens(), cache.position(), &self.parameters);
        let adjusted = arena.take(len, "adjusted logits")?;
        let best = arena.take(parts as usize, "largest logits")?;
        let count = arena.take(BINS, "logits by distance")?;
        let mass = arena.take(BINS, "mass by distance")?;
        b.push(
            "penalise",
            sample_adjust(
                logits, tokens, position, parameters, &adjusted, &best, &count, &mass, vocab, parts,
            ),
        )?;
        b.push("histogram", sample_histogram(&adjusted, &best, &count, &mass, vocab, parts))?;
        let value = arena.take(len, "candidates")?;
        let index = arena.take(len, "candidates' ids")?;
        let taken = arena.take(parts as usize, "candidates' counts")?;
        b.push(
            "filter",
            sample_gather(&adjusted, &best, parameters, &count, &mass, &value, &index, &taken, vocab, parts),
        )?;
        b.push(
            "next token",
            sample_draw(&best, parameters, &mass, &value, &index, &taken, tokens, position, vocab, parts),
        )?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_make_no_sense_are_named() {
        let good = SamplingOptions::default();
        for (option, options) in [
            ("temp", SamplingOptions { temperature: 0.0, ..good }),
            ("temp", SamplingOptions { temperature: -1.0, ..good }),
            ("temp", SamplingOptions { temperature: f32::NAN, ..good }),
            ("temp", SamplingOptions { temperature: f32::INFINITY, ..good }),
            ("repeat-penalty", SamplingOptions { repeat_penalty: 0.0, ..good }),
            ("repeat-penalty", SamplingOptions { repeat_penalty: f32::NAN, ..good }),
            ("top-k", SamplingOptions { top_k: Some(0), ..good }),
            ("top-p", SamplingOptions { top_p: Some(0.0), ..good }),
            ("top-p", SamplingOptions { top_p: Some(-0.5), ..good }),
            ("top-p", SamplingOptions { top_p: Some(1.01), ..good }),
            ("top-p", SamplingOptions { top_p: Some(f32::NAN), ..good }),
            ("min-p", SamplingOptions { min_p: Some(0.0), ..good }),
            ("min-p", SamplingOptions { min_p: Some(f32::NAN), ..good }),
        ] {
            let error = Sampling::new(options).map(|_| ()).map_err(|error| error.option);
            assert_eq!(error, Err(option), "{options:?}");
        }
        let error = Sampling::new(SamplingOptions { top_p: Some(f32::NAN), ..good }).map(|_| ());
        let words = error.map_err(|error| error.to_string());
        assert_eq!(words, Err("top-p is NaN: it must be above 0 and at most 1".to_owned()));
    }

    #[test]
    fn bounds_that_do_make_sense_are_taken() {
        let options = SamplingOptions {
            top_k: Some(u32::MAX),
            top_p: Some(1.0),
            min_p: Some(1.0),
            ..SamplingOptions::default()
        };
        let sampling = Sampling::new(options);
        assert_eq!(sampling.map(|s| (s.parameters.top_p, s.parameters.min_p)), Ok((0, 1.0)));
        let tiny = SamplingOptions { top_p: Some(f32::MIN_POSITIVE), ..SamplingOptions::default() };
        assert_eq!(Sampling::new(tiny).map(|s| s.parameters.top_p), Ok(1));
    }

    /// The host's draw over all counters is the distribution: each token's share of many draws.
    #[test]
    fn draws_follow_the_weights() {
        let logits: Vec<f32> = [0.5f32, 0.25, 0.125, 0.125].map(f32::ln).to_vec();
        let sampling = Sampling::new(SamplingOptions { seed: 3, ..SamplingOptions::default() });
        let parameters = sampling.map(|s| s.parameters).unwrap_or_else(|e| panic!("{e}"));
        let adjusted = host::adjust(&logits, &[], 1.0);
        let top = host::largest(adjusted.iter().copied());
        let kept = host::keep(&parameters, adjusted.into_iter().zip(0..).collect(), top, 0);
        let mut counts = [0u32; 4];
        (0..40_000).for_each(|position| counts[host::draw(&parameters, &kept, position) as usize] += 1);
        // Five standard deviations of a binomial of 40 000 draws at ½ are 500.
        for (count, wanted) in counts.into_iter().zip([20_000, 10_000, 5_000, 5_000]) {
            assert!(count.abs_diff(wanted) < 500, "{counts:?}");
        }
    }
}
