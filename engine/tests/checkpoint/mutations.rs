//! Headers and configurations changed at random: whatever comes of it, no panic, no hang, no large allocation.

use std::cell::Cell;
use std::time::Duration;

use bitwalk::format::TensorSource;
use bitwalk::format::safetensors::SafetensorsSource;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use serde_json::{Value, json};

use super::{Pieces, peak_memory, processor_time, turn, use_all};

fn runner(cases: u32) -> TestRunner {
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha))
}

/// A checkpoint of the first and the fourth layer, so that a header is short and most of a file.
fn small() -> Pieces {
    let mut pieces = Pieces::read("glm5-next-tiny-nvfp4");
    for (field, count) in [("layer_types", 4), ("mlp_layer_types", 4), ("indexer_types", 4)] {
        pieces.text()[field].as_array_mut().unwrap().truncate(count);
    }
    pieces.text()["num_hidden_layers"] = json!(4);
    pieces.tensors.retain(|name, _| {
        let layer = name.strip_prefix("model.language_model.layers.").and_then(|rest| rest.split('.').next());
        layer.is_none_or(|layer| layer.parse::<u32>().unwrap() < 4)
    });
    pieces
}

#[derive(Debug, Clone)]
enum Mutation {
    Byte { at: usize, value: u8 },
    Word { at: usize, value: u64 },
    Cut { len: usize },
    Remove { at: usize, len: usize },
    Repeat { at: usize, len: usize },
    Digit { at: usize, value: u8 },
}

fn mutation(header: usize, len: usize) -> impl Strategy<Value = Mutation> {
    // Weights may be any bytes: most changes go where the structure is.
    let at = prop_oneof![1 => 0..len, 2 => 0..8usize, 16 => 8..header];
    let word = prop_oneof![
        any::<u64>(),
        (0..64u32).prop_map(|bit| 1 << bit),
        (0..64u32).prop_map(|bit| (1u64 << bit).wrapping_sub(1)),
        0..100_000u64
    ];
    prop_oneof![
        4 => (at.clone(), any::<u8>()).prop_map(|(at, value)| Mutation::Byte { at, value }),
        1 => (0..8usize, word).prop_map(|(at, value)| Mutation::Word { at, value }),
        1 => at.clone().prop_map(|len| Mutation::Cut { len }),
        1 => (at.clone(), 1..100usize).prop_map(|(at, len)| Mutation::Remove { at, len }),
        1 => (at.clone(), 1..100usize).prop_map(|(at, len)| Mutation::Repeat { at, len }),
        6 => (at, b'0'..=b'9').prop_map(|(at, value)| Mutation::Digit { at, value }),
    ]
}

fn apply(bytes: &mut Vec<u8>, mutation: &Mutation) {
    let range = |at: usize, len: usize, total: usize| at.min(total)..(at + len).min(total);
    match *mutation {
        Mutation::Byte { at, value } => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = value;
            }
        }
        Mutation::Word { at, value } => {
            for (byte, new) in bytes.iter_mut().skip(at).zip(value.to_le_bytes()) {
                *byte = new;
            }
        }
        Mutation::Cut { len } => bytes.truncate(len),
        Mutation::Remove { at, len } => drop(bytes.drain(range(at, len, bytes.len()))),
        Mutation::Repeat { at, len } => {
            let range = range(at, len, bytes.len());
            let piece = bytes[range.clone()].to_vec();
            bytes.splice(range.start..range.start, piece);
        }
        // The next digit behind this place: keeps the JSON valid and changes a shape, a range or a name.
        Mutation::Digit { at, value } => {
            if let Some(byte) = bytes.iter_mut().skip(at).find(|byte| byte.is_ascii_digit()) {
                *byte = value;
            }
        }
    }
}

#[test]
fn no_mutation_of_a_file_does_harm() {
    let _turn = turn();
    let pieces = small();
    let original = pieces.bytes();
    let header = 8 + u64::from_le_bytes(original[..8].try_into().unwrap()) as usize;
    let before = peak_memory();
    let (opened, complete, refused) = (Cell::new(0u32), Cell::new(0u32), Cell::new(0u32));
    const CASES: u32 = 3000;
    let mutations = prop::collection::vec(mutation(header, original.len()), 1..3);
    let outcome = runner(CASES).run(&mutations, |mutations| {
        let mut bytes = original.clone();
        for mutation in &mutations {
            apply(&mut bytes, mutation);
        }
        let start = processor_time();
        match SafetensorsSource::from_bytes("mutated.safetensors", bytes, pieces.config.clone()) {
            Ok(source) => {
                opened.set(opened.get() + 1);
                for info in source.tensors() {
                    let bytes = source.bytes(&info.name).unwrap();
                    prop_assert_eq!(bytes.len() as u64, info.bytes());
                    prop_assert_eq!(info.rows() * info.cols(), info.elements());
                }
                match use_all(&source) {
                    Ok(_) => complete.set(complete.get() + 1),
                    Err(error) => prop_assert!(error.to_string().starts_with("mutated.safetensors: ")),
                }
            }
            Err(error) => {
                refused.set(refused.get() + 1);
                prop_assert!(error.to_string().starts_with("mutated.safetensors: "));
            }
        }
        prop_assert!(processor_time() - start < Duration::from_secs(1));
        Ok(())
    });
    outcome.unwrap();
    let (opened, complete, refused) = (opened.get(), complete.get(), refused.get());
    println!("{opened} opened, {complete} of them complete, {refused} refused");
    assert!(opened > CASES / 20 && refused > CASES / 10 && complete > 0, "one-sided");
    let grown = peak_memory().saturating_sub(before);
    assert!(grown < (64 << 20) + original.len() as u64, "took {grown} bytes of memory");
}

/// Values that a field might be changed to.
fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (0..40u64).prop_map(Value::from),
        any::<u32>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        Just(json!(1e300)),
        "[a-z_]{0,12}".prop_map(Value::from),
        prop::collection::vec(0..12u32, 0..12).prop_map(Value::from),
        Just(json!({})),
        Just(json!({"num_heads": 4, "head_dim": 32, "gate_lower_bound": null, "kda_layers": [0, 1, 2]})),
    ]
}

#[test]
fn no_mutation_of_a_configuration_does_harm() {
    let _turn = turn();
    let pieces = small();
    let source = pieces.source().unwrap();
    let fields: Vec<String> = source.config_json()["text_config"]
        .as_object()
        .unwrap()
        .keys()
        .cloned()
        .chain(["linear_attn_config".into(), "first_k_dense_replace".into()])
        .collect();
    let place = (0..fields.len(), prop::option::weighted(0.3, 0..12usize));
    let mutations = prop::collection::vec((place, prop::option::weighted(0.8, value())), 1..4);
    let bytes = pieces.bytes();
    let before = peak_memory();
    let (accepted, refused) = (Cell::new(0u32), Cell::new(0u32));
    let outcome = runner(4000).run(&mutations, |mutations| {
        let mut config = pieces.config.clone();
        let text = config["text_config"].as_object_mut().unwrap();
        let mut changed = Vec::new();
        for ((field, entry), value) in mutations {
            let field = &fields[field];
            changed.push(field.clone());
            match (text.get_mut(field).and_then(Value::as_array_mut), entry, value) {
                (Some(entries), Some(i), Some(value)) if i < entries.len() => entries[i] = value,
                (Some(entries), Some(_), None) => drop(entries.pop()),
                (_, _, Some(value)) => drop(text.insert(field.clone(), value)),
                (_, _, None) => drop(text.remove(field)),
            }
        }
        let start = processor_time();
        let source = SafetensorsSource::from_bytes("model.safetensors", bytes.clone(), config);
        match source.and_then(|source| use_all(&source)) {
            Ok(_) => accepted.set(accepted.get() + 1),
            Err(error) => {
                refused.set(refused.get() + 1);
                let error = error.to_string();
                // Either a field that was changed (or one that disagrees with it), or a tensor of another shape.
                prop_assert!(
                    error.starts_with("config.json: field `") || error.starts_with("model.safetensors: "),
                    "{changed:?}: {error}"
                );
            }
        }
        prop_assert!(processor_time() - start < Duration::from_secs(1), "{changed:?}");
        Ok(())
    });
    outcome.unwrap();
    let (accepted, refused) = (accepted.get(), refused.get());
    println!("{accepted} accepted, {refused} refused");
    assert!(accepted > 200 && refused > 200, "{accepted} accepted, {refused} refused: one-sided");
    let grown = peak_memory().saturating_sub(before);
    assert!(grown < (64 << 20) + bytes.len() as u64, "took {grown} bytes of memory");
}
