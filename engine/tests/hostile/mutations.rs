//! The fixture changed at random: whatever comes of it, no panic, no hang, no large allocation.

use std::cell::Cell;
use std::time::Duration;

use bitwalk::format::TensorSource;
use bitwalk::format::gguf::{GgufFile, Value};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use super::{fixture, peak_memory, processor_time, turn, use_all};

/// Mutated files.
const CASES: u32 = 6000;

#[derive(Debug, Clone)]
enum Mutation {
    Byte { at: usize, value: u8 },
    Word { at: usize, value: u64 },
    Cut { len: usize },
    Remove { at: usize, len: usize },
    Repeat { at: usize, len: usize },
}

fn mutation(len: usize) -> impl Strategy<Value = Mutation> {
    // Nearly all of the file is weights, of which any bytes are right: most changes go where the structure is.
    let at = prop_oneof![1 => 0..len, 3 => 0..64usize, 16 => 0..36_000usize];
    let word = prop_oneof![
        any::<u64>(),
        (0..64u32).prop_map(|bit| 1 << bit),
        (0..64u32).prop_map(|bit| (1u64 << bit).wrapping_sub(1)),
        0..300u64
    ];
    prop_oneof![
        4 => (at.clone(), any::<u8>()).prop_map(|(at, value)| Mutation::Byte { at, value }),
        4 => (at.clone(), word).prop_map(|(at, value)| Mutation::Word { at, value }),
        1 => at.clone().prop_map(|len| Mutation::Cut { len }),
        1 => (at.clone(), 1..100usize).prop_map(|(at, len)| Mutation::Remove { at, len }),
        1 => (at, 1..100usize).prop_map(|(at, len)| Mutation::Repeat { at, len }),
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
    }
}

/// Reads everything that a file which was accepted offers.
fn read_all(file: &GgufFile) {
    for info in file.tensors() {
        let bytes = file.bytes(&info.name).unwrap();
        assert_eq!(bytes.len() as u64, info.bytes());
        assert_eq!(info.rows() * info.cols(), info.elements());
        std::hint::black_box(bytes.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte)));
    }
    for (key, value) in file.metadata().iter() {
        assert!(!format!("{key} {value}").is_empty());
        if let Value::Array(_) = value {
            let _ = file.metadata().strings(key);
            let _ = file.metadata().integers(key);
            let _ = file.metadata().floats(key);
        }
    }
    let _ = use_all(file);
}

#[test]
fn no_mutation_does_harm() {
    let _turn = turn();
    let original = fixture();
    let before = peak_memory();
    let config = Config { cases: CASES, failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let mutations = prop::collection::vec(mutation(original.len()), 1..4);
    let (accepted, refused) = (Cell::new(0u32), Cell::new(0u32));
    let outcome = runner.run(&mutations, |mutations| {
        let mut bytes = original.clone();
        for mutation in &mutations {
            apply(&mut bytes, mutation);
        }
        let start = processor_time();
        match GgufFile::from_bytes("mutated.gguf", bytes) {
            Ok(file) => {
                accepted.set(accepted.get() + 1);
                read_all(&file);
            }
            Err(error) => {
                refused.set(refused.get() + 1);
                prop_assert!(error.to_string().starts_with("mutated.gguf: "));
            }
        }
        prop_assert!(processor_time() - start < Duration::from_secs(1));
        Ok(())
    });
    outcome.unwrap();
    let (accepted, refused) = (accepted.get(), refused.get());
    println!("{accepted} accepted, {refused} refused");
    assert!(
        accepted > CASES / 10 && refused > CASES / 10,
        "{accepted} accepted, {refused} refused: one-sided"
    );
    // Beyond the copy of the file itself.
    let grown = peak_memory().saturating_sub(before);
    assert!(grown < (64 << 20) + original.len() as u64, "took {grown} bytes of memory");
}
