//! Model configurations read from GGUF metadata: what is right is taken as it is, what is wrong is named.

use bitwalk::config::{ModelConfig, RopePairing, check_tensors, tensors};
use bitwalk::format::gguf::{GgufFile, GgufWriter};
use bitwalk::format::{DType, TensorSource};

enum Pair {
    U(u32),
    F(f32),
    S(&'static str),
}
use Pair::{F, S, U};

/// The metadata of a small model: width 64, 3 query heads a KV head.
fn pairs() -> Vec<(&'static str, Pair)> {
    vec![
        ("general.architecture", S("llama")),
        ("llama.block_count", U(2)),
        ("llama.context_length", U(128)),
        ("llama.embedding_length", U(64)),
        ("llama.feed_forward_length", U(96)),
        ("llama.attention.head_count", U(6)),
        ("llama.attention.head_count_kv", U(2)),
        ("llama.attention.key_length", U(8)),
        ("llama.attention.layer_norm_rms_epsilon", F(1e-5)),
        ("llama.rope.freq_base", F(100.0)),
        ("tokenizer.ggml.bos_token_id", U(1)),
        ("tokenizer.ggml.eos_token_id", U(2)),
    ]
}

/// A model with these pairs in place of (or beside) the usual ones, and tensors as `change` leaves them.
fn model(
    changes: Vec<(&'static str, Option<Pair>)>,
    change: impl FnOnce(&mut Vec<(String, Vec<u64>, DType)>),
) -> GgufFile {
    let mut all = pairs();
    for (key, value) in changes {
        all.retain(|(k, _)| *k != key);
        all.extend(value.map(|value| (key, value)));
    }
    let mut writer = GgufWriter::new();
    for (key, value) in all {
        match value {
            U(n) => writer.u32(key, n),
            F(x) => writer.f32(key, x),
            S(s) => writer.str(key, s),
        }
    }
    let mut table = vec![("token_embd.weight".to_string(), vec![32, 64], DType::F32)];
    for i in 0..2 {
        let layer = [
            ("attn_norm", vec![64], DType::F32),
            ("attn_q", vec![48, 64], DType::Q4_1),
            ("attn_k", vec![16, 64], DType::Q4_1),
            ("attn_v", vec![16, 64], DType::Q8_0),
            ("attn_output", vec![64, 48], DType::F16),
            ("ffn_norm", vec![64], DType::F32),
            ("ffn_gate", vec![96, 64], DType::Q4_0),
            ("ffn_up", vec![96, 64], DType::Q4_0),
            ("ffn_down", vec![64, 96], DType::Bf16),
        ];
        table.extend(layer.map(|(name, shape, dtype)| (format!("blk.{i}.{name}.weight"), shape, dtype)));
    }
    table.push(("output_norm.weight".into(), vec![64], DType::F32));
    change(&mut table);
    for (name, shape, dtype) in table {
        let elements: u64 = shape.iter().product();
        let bytes = elements as usize / dtype.block_len() * dtype.block_bytes();
        // 1.0 in F32, so that a tensor of divisors is valid too.
        let data: Vec<u8> = 1f32.to_le_bytes().into_iter().cycle().take(bytes).collect();
        writer.tensor(&name, &shape, dtype, &data);
    }
    GgufFile::from_bytes("tiny.gguf", writer.finish()).unwrap()
}

fn config(changes: Vec<(&'static str, Option<Pair>)>) -> Result<ModelConfig, String> {
    model(changes, |_| {}).config().map_err(|error| error.to_string())
}

#[test]
fn a_sound_model() {
    let file = model(vec![], |_| {});
    let config = file.config().unwrap();
    assert_eq!((config.layers, config.hidden, config.ff, config.vocab, config.context), (2, 64, 96, 32, 128));
    assert_eq!((config.heads, config.kv_heads, config.head_dim), (6, 2, 8));
    assert_eq!((config.q_width(), config.kv_width(), config.eps), (48, 16, 1e-5));
    assert_eq!((config.bos, &config.eos[..], config.tied_head), (Some(1), &[2][..], true));
    // 100^(−2i/8): 1, 10^(−1/2), 10^(−1), 10^(−3/2).
    assert_eq!(config.rope.inv_freq, [1.0, 0.31622776, 0.1, 0.031622775]);
    assert_eq!((config.rope.base, config.rope.pairing), (100.0, RopePairing::Interleaved));
    assert_eq!(tensors(&config).count(), 1 + 2 * 9 + 1);
    check_tensors(&file, &config).unwrap();
}

#[test]
fn what_may_be_left_out() {
    let changes = vec![
        ("llama.attention.head_count_kv", None),
        ("llama.attention.head_count", Some(U(8))),
        ("llama.attention.key_length", None),
        ("llama.rope.freq_base", None),
        ("tokenizer.ggml.bos_token_id", None),
        ("tokenizer.ggml.eos_token_id", None),
    ];
    let config = config(changes).unwrap();
    assert_eq!((config.heads, config.kv_heads, config.head_dim), (8, 8, 8));
    assert_eq!((config.rope.base, config.bos, config.eos.len()), (10_000.0, None, 0));
}

#[test]
fn rotary_frequencies_are_scaled_and_cut() {
    let linear = config(vec![
        ("llama.rope.scaling.type", Some(S("linear"))),
        ("llama.rope.scaling.factor", Some(F(4.0))),
        ("llama.rope.dimension_count", Some(U(4))),
    ]);
    // Two rotated pairs, 100^(−2i/4) / 4; the others stand still.
    assert_eq!(linear.unwrap().rope.inv_freq, [0.25, 0.025, 0.0, 0.0]);

    let file = model(vec![], |table| table.push(("rope_freqs.weight".into(), vec![4], DType::F32)));
    assert_eq!(file.config().unwrap().rope.inv_freq, [1.0, 0.31622776, 0.1, 0.031622775], "divided by ones");
    check_tensors(&file, &file.config().unwrap()).unwrap();
    let file = model(vec![], |table| table.push(("rope_freqs.weight".into(), vec![3], DType::F32)));
    let error = file.config().unwrap_err().to_string();
    assert!(error.starts_with("tiny.gguf: tensor `rope_freqs.weight`: has shape [3]"), "{error}");
}

#[test]
fn an_untied_head_is_seen() {
    let file = model(vec![], |table| table.push(("output.weight".into(), vec![32, 64], DType::Q8_0)));
    let config = file.config().unwrap();
    assert!(!config.tied_head);
    assert_eq!(tensors(&config).count(), 1 + 2 * 9 + 2);
    check_tensors(&file, &config).unwrap();
}

#[test]
fn each_wrong_key_is_named_with_its_reason() {
    let cases: Vec<(&'static str, Option<Pair>, &str)> = vec![
        ("general.architecture", None, "is missing"),
        ("general.architecture", Some(S("mamba")), "is \"mamba\", which bitwalk does not run; it runs llama"),
        ("llama.block_count", None, "is missing"),
        ("llama.block_count", Some(U(0)), "is 0, but a number from 1 to 1024"),
        ("llama.block_count", Some(U(u32::MAX)), "is 4294967295, but a number from 1 to 1024"),
        ("llama.context_length", None, "is missing"),
        ("llama.embedding_length", None, "is missing"),
        ("llama.embedding_length", Some(S("64")), "is \"64\", but an integer"),
        ("llama.feed_forward_length", None, "is missing"),
        ("llama.attention.head_count", None, "is missing"),
        ("llama.attention.head_count_kv", Some(U(4)), "is 4, which does not divide the 6 query heads"),
        ("llama.attention.head_count_kv", Some(U(0)), "is 0, but a number from 1"),
        ("llama.attention.key_length", None, "is missing, and the width 64 is no multiple of the 6 heads"),
        ("llama.attention.key_length", Some(U(7)), "is 7, but rotary embedding needs an even head size"),
        ("llama.attention.key_length", Some(U(1 << 26)), "is 67108864, which times 6 heads exceeds"),
        ("llama.attention.value_length", Some(U(16)), "is 16, but keys have 8"),
        ("llama.attention.layer_norm_rms_epsilon", None, "is missing"),
        ("llama.attention.layer_norm_rms_epsilon", Some(F(-1.0)), "is -1, but must be positive"),
        ("llama.attention.layer_norm_rms_epsilon", Some(F(f32::NAN)), "is NaN, but a finite number"),
        ("llama.rope.freq_base", Some(F(0.0)), "is 0, but must be positive"),
        ("llama.rope.dimension_count", Some(U(10)), "is 10, but a number from 1 to 8"),
        ("llama.rope.dimension_count", Some(U(3)), "is 3, but must be even"),
        ("llama.rope.scaling.type", Some(S("yarn")), "is \"yarn\", which is not supported"),
        ("llama.rope.scaling.factor", Some(F(-2.0)), "is -2, but must be positive"),
        ("llama.expert_count", Some(U(8)), "is 8: routed experts are not supported for llama"),
        ("llama.vocab_size", Some(U(31)), "is 31, but `token_embd.weight` has 32 rows"),
        ("tokenizer.ggml.eos_token_id", Some(U(32)), "is 32, but there are only 32 tokens"),
    ];
    for (key, value, reason) in cases {
        let error = config(vec![(key, value)]).expect_err(key);
        assert!(error.starts_with(&format!("tiny.gguf: metadata key `{key}`: {reason}")), "{error}");
    }
}

#[test]
fn each_wrong_tensor_is_named_with_its_reason() {
    type Change = fn(&mut Vec<(String, Vec<u64>, DType)>);
    let cases: [(Change, &str, &str); 6] = [
        (|t| t.retain(|x| x.0 != "blk.1.ffn_up.weight"), "blk.1.ffn_up.weight", "is missing"),
        (
            |t| t[2].1 = vec![64, 64],
            "blk.0.attn_q.weight",
            "has shape [64, 64], but the model's configuration asks",
        ),
        (|t| t[1].2 = DType::F16, "blk.0.attn_norm.weight", "is F16, but norms must be F32"),
        (|t| t[2].2 = DType::Q5_1, "blk.0.attn_q.weight", "is Q5_1; weights that run are F32"),
        (
            |t| t.push(("blk.0.attn_q.bias".into(), vec![48], DType::F32)),
            "blk.0.attn_q.bias",
            "is no part of a llama model as bitwalk runs it",
        ),
        (|t| t.retain(|x| x.0 != "output_norm.weight"), "output_norm.weight", "is missing"),
    ];
    for (change, tensor, reason) in cases {
        let file = model(vec![], change);
        let error = check_tensors(&file, &file.config().unwrap()).unwrap_err().to_string();
        assert!(error.starts_with(&format!("tiny.gguf: tensor `{tensor}`: {reason}")), "{error}");
    }
    let error = model(vec![], |t| drop(t.remove(0))).config().unwrap_err().to_string();
    assert!(error.starts_with("tiny.gguf: tensor `token_embd.weight`: is missing"), "{error}");
    let error = model(vec![], |t| t[0].1 = vec![32, 32]).config().unwrap_err().to_string();
    assert!(error.starts_with("tiny.gguf: tensor `token_embd.weight`: has shape [32, 32]"), "{error}");
}
