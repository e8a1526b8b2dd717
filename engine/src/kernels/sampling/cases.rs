//! Inputs on which the sampling kernels are compared with their references.

use super::{BINS, Parameters, host, run, sampling_parts};
use crate::kernel::Case;

/// Every filter alone and together, each off, the bounds of each.
fn parameters() -> Vec<(&'static str, Parameters)> {
    let off = Parameters {
        temperature: 1.0,
        repeat: 1.0,
        top_k: 0,
        top_p: 0,
        min_p: 0.0,
        seed: 0x1234_5678_9abc_def0,
    };
    vec![
        ("nothing", off),
        ("temperature 0.3", Parameters { temperature: 0.3, ..off }),
        ("temperature 3", Parameters { temperature: 3.0, seed: 7, ..off }),
        ("top-k 1", Parameters { top_k: 1, ..off }),
        ("top-k 40", Parameters { top_k: 40, seed: 2, ..off }),
        ("top-k past the vocabulary", Parameters { top_k: u32::MAX, ..off }),
        ("top-p 0.9", Parameters { top_p: 3_865_470_566, ..off }),
        ("top-p 2^-32", Parameters { top_p: 1, ..off }),
        ("min-p 0.1", Parameters { min_p: 0.1, seed: 5, ..off }),
        ("min-p 1", Parameters { min_p: 1.0, ..off }),
        ("top-p 0.99, min-p 0.2", Parameters { top_p: 4_252_017_623, min_p: 0.2, ..off }),
        (
            "all",
            Parameters {
                temperature: 0.8,
                repeat: 1.3,
                top_k: 50,
                top_p: 4_080_218_931,
                min_p: 0.02,
                seed: u64::MAX,
            },
        ),
    ]
}

/// Logits: normal, all equal, long runs of ties, spread over more than the histogram, nothing finite.
fn logits(vocab: u32) -> Vec<(&'static str, Vec<f32>)> {
    // A hash of the index, as a number in [0, 1).
    let uniform = |i: u32| (host::philox(i, 99) >> 40) as f32 / (1u64 << 24) as f32;
    let fill = |f: &dyn Fn(u32) -> f32| (0..vocab).map(f).collect::<Vec<f32>>();
    let odd = |i: u32| match i % 7 {
        0 => f32::NAN,
        1 => f32::NEG_INFINITY,
        2 => -0.0,
        3 => 0.0,
        _ => uniform(i) - 0.5,
    };
    vec![
        ("bell", fill(&|i| 4.0 * (uniform(i) + uniform(i + vocab) + uniform(i + 2 * vocab) - 1.5))),
        ("equal", fill(&|_| 2.5)),
        ("ties", fill(&|i| (uniform(i) * 5.0).floor())),
        ("spread", fill(&|i| uniform(i) * 200.0 - 150.0)),
        ("odd", fill(&odd)),
    ]
}

fn label(vocab: u32, what: &str, how: &str) -> Case {
    Case::new(format!("{vocab} {what}, {how}")).u32("vocab", vocab).u32("parts", sampling_parts(vocab))
}

/// (values, the largest of each part).
fn adjusted(vocab: u32, logits: &[f32]) -> (Vec<f32>, Vec<f32>) {
    let values = host::adjust(logits, &[], 1.0);
    let best = (0..sampling_parts(vocab)).map(|part| host::largest(values[run(part, vocab)].iter().copied()));
    let best = best.collect();
    (values, best)
}

fn histogram(values: &[f32]) -> (Vec<u32>, Vec<u64>) {
    let top = host::largest(values.iter().copied());
    let (mut count, mut mass) = (vec![0; BINS], vec![0; BINS]);
    for &v in values {
        let d = host::distance(top, v);
        count[host::bin(d)] += 1;
        mass[host::bin(d)] += host::mass(d);
    }
    (count, mass)
}

const VOCABS: [u32; 3] = [5, 1030, 2600];
/// A large model's vocabulary, for timing.
const LARGE: u32 = 154_880;

pub fn adjust_cases() -> Vec<Case> {
    let tokens: Vec<u32> = (0..40).map(|i| i * i * 13 % 3000).collect();
    let mut cases = Vec::new();
    for vocab in VOCABS {
        for (what, logits) in logits(vocab) {
            for (how, parameters) in [parameters()[0], parameters()[11]] {
                let case = label(vocab, what, how).values("logits", &logits).values("tokens", &tokens);
                cases.push(case.values("parameters", &parameters.encode()).counter("position", 38));
            }
        }
    }
    let case = label(LARGE, "normal", "all").values("tokens", &tokens).counter("position", 38);
    cases.push(case.values("parameters", &parameters()[11].1.encode()).representative());
    cases
}

pub fn histogram_cases() -> Vec<Case> {
    let case = |vocab: u32, what: &str, logits: &[f32]| {
        let (values, best) = adjusted(vocab, logits);
        let case = label(vocab, what, "").values("adjusted", &values).values("best", &best);
        case.values("count", &[0u32; BINS]).values("mass", &[0u64; BINS])
    };
    let mut cases = Vec::new();
    for vocab in VOCABS {
        cases.extend(logits(vocab).iter().map(|(what, logits)| case(vocab, what, logits)));
    }
    cases.push(case(LARGE, "bell", &logits(LARGE)[0].1).representative());
    cases
}

pub fn gather_cases() -> Vec<Case> {
    let case = |vocab: u32, what: &str, logits: &[f32], (how, parameters): (&str, Parameters)| {
        let (values, best) = adjusted(vocab, logits);
        let (count, mass) = histogram(&values);
        let case = label(vocab, what, how).values("adjusted", &values).values("best", &best);
        case.values("parameters", &parameters.encode()).values("count", &count).values("mass", &mass)
    };
    let mut cases = Vec::new();
    for vocab in VOCABS {
        for (what, logits) in logits(vocab) {
            cases.extend(parameters().into_iter().map(|how| case(vocab, what, &logits, how)));
        }
    }
    cases.push(case(LARGE, "bell", &logits(LARGE)[0].1, parameters()[4]).representative());
    cases
}

pub fn draw_cases() -> Vec<Case> {
    let case =
        |vocab: u32, what: &str, logits: &[f32], (how, parameters): (&str, Parameters), position: u32| {
            let (values, best) = adjusted(vocab, logits);
            let (count, mass) = histogram(&values);
            let (top, words) = (host::largest(best.iter().copied()), parameters.encode());
            let last = super::last_bin(&words, &count, &mass);
            let (mut value, mut index) = (vec![f32::NAN; vocab as usize], vec![u32::MAX; vocab as usize]);
            let mut taken = Vec::new();
            for part in 0..sampling_parts(vocab) {
                let range = run(part, vocab);
                let kept = range.clone().filter(|&i| host::bin(host::distance(top, values[i])) <= last);
                let mut to = range.start;
                for i in kept {
                    (value[to], index[to]) = (values[i], i as u32);
                    to += 1;
                }
                taken.push((to - range.start) as u32);
            }
            let case = label(vocab, what, how).values("best", &best).values("parameters", &words);
            let case = case.values("mass", &mass).values("value", &value).values("index", &index);
            // A token that no vocabulary has, so that the write is seen.
            case.values("taken", &taken).values("tokens", &[u32::MAX; 12]).counter("position", position)
        };
    let mut cases = Vec::new();
    for vocab in VOCABS {
        for (what, logits) in logits(vocab) {
            cases.extend(
                parameters().into_iter().zip(0..).map(|(how, i)| case(vocab, what, &logits, how, i % 11)),
            );
        }
        cases.push(case(vocab, "NaN", &vec![f32::NAN; vocab as usize], parameters()[4], 3));
    }
    cases.push(case(LARGE, "bell", &logits(LARGE)[0].1, parameters()[4], 3).representative());
    cases.push(case(LARGE, "equal", &logits(LARGE)[1].1, parameters()[6], 3).representative());
    cases
}
