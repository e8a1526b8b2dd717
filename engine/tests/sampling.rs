//! Draws on the simulated device follow the exact distribution, and do not depend on how they are run.

use std::error::Error;

use bitwalk::decode::{Sampling, SamplingOptions};
use bitwalk::device::{Buffer, Device, DeviceSpec};
use bitwalk::engine::Engine;
use bitwalk::kernels::sample::{argmax_advance, argmax_partial, argmax_parts};
use bitwalk::kernels::sampling::host::BINS;
use bitwalk::kernels::sampling::{
    sample_adjust, sample_draw, sample_gather, sample_histogram, sampling_parts,
};
use bitwalk::options::EngineOptions;
use bitwalk::plan::{Arena, Plan, PlanBuilder};

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// The four launches over logits that stay as they are: each run draws one more token.
struct Draws {
    engine: Engine,
    plan: Plan,
    tokens: Buffer<u32>,
    parameters: Buffer<u32>,
}

impl Draws {
    fn new(logits: &[f32], sampling: &Sampling, most: usize) -> Outcome<Draws> {
        let engine = Engine::new(Device::open(DeviceSpec::Sim(0))?, EngineOptions::default())?;
        let (vocab, parts) = (logits.len() as u32, sampling_parts(logits.len() as u32));
        let device = engine.device();
        let logits = Buffer::from_slice(device, logits, "logits")?;
        let tokens = Buffer::from_slice(device, &vec![0; most + 1], "tokens")?;
        let position = Buffer::from_slice(device, &[0], "position")?;
        let parameters = Buffer::from_slice(device, &sampling.parameters().encode(), "parameters")?;
        let (len, parts_len) = (logits.len(), parts as usize);
        let (adjusted, best) = (engine.uninit(len, "adjusted")?, engine.uninit(parts_len, "best")?);
        let (count, mass) = (engine.uninit(BINS, "count")?, engine.uninit(BINS, "mass")?);
        let (value, index) = (engine.uninit(len, "value")?, engine.uninit(len, "index")?);
        let taken = engine.uninit(parts_len, "taken")?;
        let mut b = PlanBuilder::new(&engine, &Arena::new(engine.device()), "draws");
        let adjust = sample_adjust(
            &logits,
            &tokens,
            &position,
            &parameters,
            &adjusted,
            &best,
            &count,
            &mass,
            vocab,
            parts,
        );
        b.push("adjust", adjust)?;
        b.push("histogram", sample_histogram(&adjusted, &best, &count, &mass, vocab, parts))?;
        let gather =
            sample_gather(&adjusted, &best, &parameters, &count, &mass, &value, &index, &taken, vocab, parts);
        b.push("gather", gather)?;
        let draw =
            sample_draw(&best, &parameters, &mass, &value, &index, &taken, &tokens, &position, vocab, parts);
        b.push("draw", draw)?;
        let plan = b.finish();
        Ok(Draws { engine, plan, tokens, parameters })
    }

    fn eager(&self, draws: usize) -> Outcome<Vec<u32>> {
        (0..draws).try_for_each(|_| self.plan.run(self.engine.stream()))?;
        self.drawn(draws)
    }

    fn replayed(&self, draws: usize) -> Outcome<Vec<u32>> {
        let captured = self.plan.capture(self.engine.stream())?;
        (0..draws).try_for_each(|_| captured.replay(self.engine.stream()))?;
        self.drawn(draws)
    }

    fn drawn(&self, draws: usize) -> Outcome<Vec<u32>> {
        self.engine.synchronize()?;
        Ok(self.tokens.to_vec()?[1..=draws].to_vec())
    }
}

/// Logits that fall off like a language model's, in no order.
fn logits(vocab: u32) -> Vec<f32> {
    (0..vocab).map(|i| -0.6 * ((i * 37 % vocab) as f32).sqrt()).collect()
}

/// Bound of χ² with `freedom` degrees of freedom that is passed with probability 10⁻⁶ (Wilson and Hilferty's
/// approximation; the normal quantile is 4.7534).
fn bound(freedom: usize) -> f64 {
    let f = freedom as f64;
    f * (1.0 - 2.0 / (9.0 * f) + 4.7534 * (2.0 / (9.0 * f)).sqrt()).powi(3)
}

#[test]
fn the_bound_is_that_of_the_tables() {
    // Quantiles of χ² at 1 − 10⁻⁶: 23.93 for 1 degree of freedom is badly approximated; 10: 47.0, 30: 83.2.
    assert!((bound(10) - 47.0).abs() < 1.0, "{}", bound(10));
    assert!((bound(30) - 83.2).abs() < 1.0, "{}", bound(30));
}

/// Fixed seeds: the outcome is always the same, and was none of a million unlucky ones when it was written.
#[test]
fn draws_follow_the_exact_distribution() -> Outcome {
    const DRAWS: usize = 1500;
    let logits = logits(160);
    let off = SamplingOptions { seed: 2024, ..SamplingOptions::default() };
    for options in [
        off,
        SamplingOptions { temperature: 2.5, ..off },
        SamplingOptions { temperature: 1.6, top_k: Some(12), ..off },
        SamplingOptions { top_p: Some(0.85), seed: 1, ..off },
        SamplingOptions { min_p: Some(0.05), temperature: 1.7, ..off },
        SamplingOptions { top_k: Some(30), top_p: Some(0.9), min_p: Some(0.02), temperature: 1.3, ..off },
    ] {
        let sampling = Sampling::new(options)?;
        let probabilities = sampling.distribution(&logits, &[]);
        let drawn = Draws::new(&logits, &sampling, DRAWS)?.eager(DRAWS)?;
        let mut counts = vec![0u32; logits.len()];
        drawn.iter().for_each(|&id| counts[id as usize] += 1);
        // Cells of at least five expected draws; the rest are one cell.
        let (mut chi, mut cells, mut rest) = (0.0, 0, (0.0, 0.0));
        for (&count, &p) in counts.iter().zip(&probabilities) {
            assert!(p > 0.0 || count == 0, "a token of no probability was drawn: {options:?}");
            let expected = p * DRAWS as f64;
            if expected >= 5.0 {
                chi += (f64::from(count) - expected).powi(2) / expected;
                cells += 1;
            } else {
                rest = (rest.0 + f64::from(count), rest.1 + expected);
            }
        }
        if rest.1 >= 5.0 {
            chi += (rest.0 - rest.1).powi(2) / rest.1;
            cells += 1;
        }
        assert!(cells > 5, "{cells} cells prove little: {options:?}");
        assert!(
            chi < bound(cells - 1),
            "χ² {chi:.1} of {cells} cells, bound {:.1}: {options:?}",
            bound(cells - 1)
        );
    }
    Ok(())
}

#[test]
fn the_host_draws_the_same_tokens() -> Outcome {
    const DRAWS: usize = 40;
    let logits = logits(3000);
    let options = SamplingOptions {
        temperature: 1.4,
        top_k: Some(60),
        top_p: Some(0.97),
        repeat_penalty: 1.15,
        seed: 77,
        ..SamplingOptions::default()
    };
    let sampling = Sampling::new(options)?;
    let drawn = Draws::new(&logits, &sampling, DRAWS)?.eager(DRAWS)?;
    let mut occurred = vec![0];
    for (step, &id) in drawn.iter().enumerate() {
        assert_eq!(id, sampling.next_token(&logits, &occurred), "draw {step}");
        occurred.push(id);
    }
    assert_eq!(drawn, Draws::new(&logits, &sampling, DRAWS)?.replayed(DRAWS)?);
    Ok(())
}

#[test]
fn the_likeliest_alone_is_greedy_ties_and_all() -> Outcome {
    let mut tied = logits(2500);
    for i in [1999, 700, 1201] {
        tied[i] = 3.5;
    }
    // What greedy decoding's own kernels take, of ties within a part and across parts.
    let (vocab, parts) = (tied.len() as u32, argmax_parts(tied.len() as u32));
    let engine = Engine::new(Device::open(DeviceSpec::Sim(0))?, EngineOptions::default())?;
    let device = engine.device();
    let row = Buffer::from_slice(device, &tied, "logits")?;
    let (value, index) = (engine.uninit(parts as usize, "value")?, engine.uninit(parts as usize, "index")?);
    let tokens = Buffer::from_slice(device, &[0, 0], "tokens")?;
    let position = Buffer::from_slice(device, &[0], "position")?;
    let mut b = PlanBuilder::new(&engine, &Arena::new(device), "greedy");
    b.push("argmax", argmax_partial(&row, &value, &index, vocab))?;
    b.push("next token", argmax_advance(&value, &index, &tokens, &position, parts))?;
    b.finish().run(engine.stream())?;
    engine.synchronize()?;
    assert_eq!(tokens.to_vec()?, [0, 700]);
    for temperature in [0.01, 1.0, 50.0] {
        let sampling =
            Sampling::new(SamplingOptions { temperature, top_k: Some(1), ..SamplingOptions::default() })?;
        assert_eq!(Draws::new(&tied, &sampling, 6)?.eager(6)?, [700; 6]);
        assert_eq!(Draws::new(&[f32::NAN; 40], &sampling, 2)?.eager(2)?, [0, 0]);
    }
    Ok(())
}

#[test]
fn parameters_change_without_another_capture() -> Outcome {
    let logits = logits(300);
    let sampling =
        |seed| Sampling::new(SamplingOptions { temperature: 3.0, seed, ..SamplingOptions::default() });
    let draws = Draws::new(&logits, &sampling(5)?, 20)?;
    let captured = draws.plan.capture(draws.engine.stream())?;
    assert_eq!(captured.plan().steps().len(), 4);
    let stream = draws.engine.stream();
    (0..10).try_for_each(|_| captured.replay(stream))?;
    draws.engine.copy_into(&draws.parameters, &sampling(6)?.parameters().encode())?;
    (0..10).try_for_each(|_| captured.replay(stream))?;
    let drawn = draws.drawn(20)?;
    let [five, six] = [5, 6].map(|seed| Draws::new(&logits, &sampling(seed)?, 20)?.eager(20));
    let (five, six) = (five?, six?);
    assert_eq!((&drawn[..10], &drawn[10..]), (&five[..10], &six[10..]));
    assert_ne!(five, six);
    Ok(())
}
