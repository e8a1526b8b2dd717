//! The float64 oracle against data of other implementations.

use std::path::Path;

use bitwalk_gates::oracle::{Oracle, argmax, top};
use serde::Deserialize;

#[derive(Deserialize)]
struct Golden {
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    prompt_ids: Vec<u32>,
    greedy_ids: Vec<u32>,
    top5: Vec<Vec<(u32, f64)>>,
    first_logits_sum: Option<f64>,
    first_logits_l2: Option<f64>,
}

fn golden(name: &str) -> Golden {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(name);
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// Compares greedy ids and top-5 logits of the first `steps` steps; returns the largest difference of a logit.
fn compare(oracle: &mut Oracle, case: &Case, steps: usize) -> f64 {
    let mut worst = 0f64;
    for (step, logits) in oracle.greedy(&case.prompt_ids, steps - 1).iter().enumerate() {
        assert_eq!(argmax(logits), case.greedy_ids[step], "id of step {step}");
        let found = top(logits, 5);
        for (found, wanted) in found.iter().zip(&case.top5[step]) {
            assert_eq!(found.0, wanted.0, "top 5 of step {step}: {found:?} and {wanted:?}");
            worst = worst.max((found.1 - wanted.1).abs());
        }
    }
    worst
}

/// transformers' float32 logits of SmolLM2, where the model has been fetched (`cargo xtask model smollm2`).
///
/// Bound: float32 arithmetic there, float64 here; 1.7e-5 was seen on logits of about 20.
#[test]
fn smollm2_as_transformers_computes_it() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/SmolLM2-135M-Instruct.Q4_1.gguf");
    if !path.exists() {
        println!("SKIPPED: {} is absent; `cargo xtask model smollm2` fetches it", path.display());
        return;
    }
    let case = &golden("smollm2-q4_1.json").cases[1];
    let worst = compare(&mut Oracle::load(&path).unwrap(), case, 6);
    println!("worst difference of a top-5 logit: {worst:.2e}");
    assert!(worst < 1e-4, "{worst}");

    let first = Oracle::load(&path).unwrap().feed(&case.prompt_ids).pop().unwrap();
    let (sum, l2) = (first.iter().sum::<f64>(), first.iter().map(|x| x * x).sum::<f64>().sqrt());
    // 49152 differences of the size seen above, of either sign.
    assert!((sum - case.first_logits_sum.unwrap()).abs() < 49152.0 * 1e-4, "{sum}");
    assert!((l2 - case.first_logits_l2.unwrap()).abs() < 0.01, "{l2}");
}

/// The fixture's golden data is the oracle's own, so this shows that both files are of one making, and that greedy
/// continuations are far enough from ties for float32 to find the same ids.
#[test]
fn the_fixture_and_its_golden_data_belong_together() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/tiny-llama.gguf");
    for case in &golden("tiny-llama.json").cases {
        let worst = compare(&mut Oracle::load(&path).unwrap(), case, case.greedy_ids.len());
        // The golden data is rounded to float32; logits are below 16.
        assert!(worst <= 16.0 * f64::from(f32::EPSILON), "{worst}");
        for top5 in &case.top5 {
            assert!(top5[0].1 - top5[1].1 > 0.02 && (1.0..16.0).contains(&top5[0].1), "{top5:?}");
        }
        let same = case.greedy_ids.windows(8).filter(|ids| ids.iter().all(|id| *id == ids[0])).count();
        assert_eq!(same, 0, "a token is repeated eight times or more");
    }
}

/// Feeding a prompt at once, token by token, or in two pieces is the same to the last bit.
#[test]
fn pieces_make_no_difference() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/tiny-llama.gguf");
    let ids = [5, 900, 17, 17, 300];
    let whole = Oracle::load(&path).unwrap().feed(&ids);
    let mut oracle = Oracle::load(&path).unwrap();
    let mut pieces = oracle.feed(&ids[..2]);
    pieces.extend(oracle.feed(&ids[2..]));
    assert_eq!(whole, pieces);
}
