//! One test a lie: each is refused at once, in little memory, with file, place and reason.

use std::fs;
use std::path::Path;

use bitwalk::format::safetensors::SafetensorsSource;
use serde_json::json;

use super::{Pieces, folder, names, open, turn, use_all, within_limits};

/// A file of this header and this many bytes of data.
fn file(header: &str, data: usize) -> Vec<u8> {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.resize(bytes.len() + data, 0);
    bytes
}

#[track_caller]
fn refused(bytes: Vec<u8>, parts: &[&str]) {
    let _turn = turn();
    let config = Pieces::read("glm5-next-tiny").config;
    let allowed = 2 * bytes.len() as u64;
    let error = within_limits(allowed, || {
        SafetensorsSource::from_bytes("hostile.safetensors", bytes, config)
            .and_then(|source| use_all(&source))
    })
    .expect_err("must be refused");
    names(&error, &["hostile.safetensors: "]);
    names(&error, parts);
}

#[test]
fn lengths_of_headers() {
    refused(vec![], &["at byte 0", "ends after 0 bytes"]);
    refused(vec![1, 0, 0], &["at byte 0", "ends after 3 bytes"]);
    // Odd, so that the JSON ends inside: and past the end, and absurd.
    let good = file(r#"{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}"#, 2);
    for (length, reason) in [
        (51u64, "the header is no valid list of tensors"),
        (0, "the header is no valid list of tensors"),
        (good.len() as u64 - 7, "are left"),
        (u64::MAX, "are left"),
        (1 << 40, "are left"),
    ] {
        let mut bytes = good.clone();
        bytes[..8].copy_from_slice(&length.to_le_bytes());
        refused(bytes, &["at byte ", reason]);
    }
    let mut bytes = file("", 0);
    bytes.resize(20 << 20, b' ');
    bytes[..8].copy_from_slice(&((20u64 << 20) - 8).to_le_bytes());
    refused(bytes, &["at byte 0", "at most 16777216"]);
}

#[test]
fn headers_that_are_no_headers() {
    refused(file("\u{fffd}", 0).iter().map(|&b| if b == 0xef { 0xff } else { b }).collect(), &["no UTF-8"]);
    refused(file("[]", 0), &["no valid list"]);
    refused(file("{\"a\":1}", 0), &["no valid list"]);
    refused(file(&"[".repeat(100_000), 0), &["no valid list"]);
    refused(file(&format!("{{\"a\":{}", "{\"a\":".repeat(100_000)), 0), &["no valid list"]);
    refused(file(r#"{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}garbage"#, 1), &["trailing"]);
    refused(file(r#"{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1,2]}}"#, 1), &["no valid list"]);
    refused(file(r#"{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,-1]}}"#, 1), &["no valid list"]);
    refused(file(r#"{"__metadata__":{"a":1}}"#, 0), &["no valid list"]);
}

#[test]
fn tensors_that_lie() {
    let one = |info: &str| format!(r#"{{"some.weight":{{{info}}}}}"#);
    for (info, data, reason) in [
        (r#""dtype":"F32","shape":[2,3],"data_offsets":[0,20]"#, 20, "takes 24"),
        (r#""dtype":"F32","shape":[2,3],"data_offsets":[0,24]"#, 20, "cut short"),
        (r#""dtype":"F32","shape":[2,3],"data_offsets":[24,0]"#, 24, "announced from byte 24 to 0"),
        (r#""dtype":"F32","shape":[0,3],"data_offsets":[0,0]"#, 0, "dimension 0 is 0"),
        (r#""dtype":"F33","shape":[2],"data_offsets":[0,8]"#, 8, "F33"),
        (r#""dtype":"F8_E5M2","shape":[2],"data_offsets":[0,2]"#, 2, "F8_E5M2"),
        (r#""dtype":"F4","shape":[2],"data_offsets":[0,1]"#, 1, "F4"),
        (
            r#""dtype":"F32","shape":[4294967296,4294967296,4294967296],"data_offsets":[0,8]"#,
            8,
            "its size overflows",
        ),
        (r#""dtype":"F32","shape":[9223372036854775808],"data_offsets":[0,8]"#, 8, "its size overflows"),
        (r#""dtype":"U8","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,1]"#, 1, "more than 8 dimensions"),
    ] {
        refused(file(&one(info), data), &["tensor `some.weight`", reason]);
    }
    let two = |begin: u32, end: u32| {
        format!(
            r#"{{"a.weight":{{"dtype":"U8","shape":[8],"data_offsets":[0,8]}},
                "b.weight":{{"dtype":"U8","shape":[8],"data_offsets":[{begin},{end}]}}}}"#
        )
    };
    refused(file(&two(4, 12), 12), &["tensor `b.weight`", "overlaps that of `a.weight`"]);
    refused(file(&two(0, 8), 8), &["tensor `b.weight`", "overlaps that of `a.weight`"]);
    refused(file(&two(9, 17), 17), &["tensor `b.weight`", "1 bytes behind `a.weight`"]);
    refused(file(&two(8, 16), 17), &["1 bytes behind the last tensor"]);
    let twice = r#"{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}"#;
    refused(file(twice, 2), &["tensor `a`", "a second time"]);
    let name = "n".repeat(300);
    let long = format!(r#"{{"{name}":{{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}}}"#);
    refused(file(&long, 1), &["is no name"]);
}

#[test]
fn many_of_everything() {
    // A shape of a million extents, a million tensors, a megabyte of metadata: none is built.
    let extents = vec!["1"; 1_000_000].join(",");
    refused(
        file(&format!(r#"{{"a":{{"dtype":"U8","shape":[{extents}],"data_offsets":[0,1]}}}}"#), 1),
        &["tensor `a`", "more than 8 dimensions"],
    );
    let entry = |i: u32| format!(r#""{i}":{{"dtype":"U8","shape":[1],"data_offsets":[{i},{}]}}"#, i + 1);
    let tensors = (0..100_000).map(entry).collect::<Vec<_>>().join(",");
    refused(file(&format!("{{{tensors}}}"), 100_000), &["more than 65536 tensors"]);
    let pairs = (0..100_000).map(|i| format!(r#""{i}":"""#)).collect::<Vec<_>>().join(",");
    refused(file(&format!(r#"{{"__metadata__":{{{pairs}}}}}"#), 0), &["__metadata__ of more than"]);
}

#[test]
fn the_largest_header_that_is_read() {
    // As many tensors as a file may have, with names as long as the header's limit lets them all be.
    let count = 65_536;
    let name = |i: u32| format!("{i:0190}");
    let entry =
        |i: u32| format!(r#""{}":{{"dtype":"U8","shape":[1],"data_offsets":[{i},{}]}}"#, name(i), i + 1);
    let header = format!("{{{}}}", (0..count).map(entry).collect::<Vec<_>>().join(","));
    assert!(header.len() > 15 << 20 && header.len() <= 16 << 20, "{}", header.len());
    refused(file(&header, count as usize), &["hc_attn_fn", "hyper-connections"]);
}

#[test]
fn an_expert_that_is_missing_is_named() {
    let _turn = turn();
    let mut pieces = Pieces::read("glm5-next-tiny");
    let name = "model.language_model.layers.5.mlp.experts.7.up_proj.weight";
    pieces.tensors.remove(name).unwrap();
    names(&pieces.check().unwrap_err(), &["missing, 1 in all", &format!("`{name}`")]);
    // All three, and a whole layer: counted, the first few named.
    for part in ["gate_proj", "down_proj"] {
        pieces.tensors.remove(&name.replace("up_proj", part)).unwrap();
    }
    names(&pieces.check().unwrap_err(), &["missing, 3 in all", "layers.5.mlp.experts.7.gate_proj.weight"]);
    pieces.tensors.retain(|name, _| !name.contains("layers.6."));
    names(
        &pieces.check().unwrap_err(),
        &["missing, 79 in all", "layers.5.mlp.experts.7.gate_proj.weight", " …"],
    );
}

#[test]
fn a_checkpoint_without_hyper_connections_is_refused() {
    let mut pieces = Pieces::read("glm5-next-tiny");
    pieces.tensors.retain(|name, _| !name.contains(".hc_"));
    names(&pieces.check().unwrap_err(), &["layers.0.hc_attn_fn", "hyper-connections", "another model"]);
    let mut pieces = Pieces::read("glm5-next-tiny");
    pieces.tensors.remove("model.language_model.layers.2.hc_ffn_scale").unwrap();
    names(&pieces.check().unwrap_err(), &["missing, 1 in all", "layers.2.hc_ffn_scale"]);
}

#[test]
fn shapes_types_and_strangers() {
    let original = Pieces::read("glm5-next-tiny");
    let name = |part: &str| format!("model.language_model.layers.3.{part}");
    let mut pieces = original.clone();
    pieces.tensors.get_mut(&name("input_layernorm.weight")).unwrap().1 = vec![2, 64];
    names(&pieces.check().unwrap_err(), &["layers.3.input_layernorm.weight", "[2, 64]", "[128]"]);
    let mut pieces = original.clone();
    pieces.tensors.get_mut(&name("self_attn.q_a_proj.weight")).unwrap().1 = vec![128, 64];
    names(&pieces.check().unwrap_err(), &["layers.3.self_attn.q_a_proj.weight", "[128, 64]", "[64, 128]"]);
    let mut pieces = original.clone();
    let gate = pieces.tensors.get_mut(&name("mlp.gate.weight")).unwrap();
    gate.0 = safetensors::Dtype::I32;
    names(&pieces.check().unwrap_err(), &["layers.3.mlp.gate.weight", "I32", "F32, F16 or BF16"]);
    let mut pieces = original.clone();
    let bias = (safetensors::Dtype::F32, vec![128], vec![0; 512]);
    pieces.tensors.insert(name("self_attn.o_proj.bias"), bias);
    names(&pieces.check().unwrap_err(), &["layers.3.self_attn.o_proj.bias", "no part of a glm5_next model"]);
}

#[test]
fn what_is_not_run_is_skipped_and_said() {
    let mut pieces = Pieces::read("glm5-next-tiny");
    let (f32, data) = (safetensors::Dtype::F32, vec![0; 16]);
    for name in ["model.visual.patch_embed.weight", "model.visual.blocks.0.norm.weight"] {
        pieces.tensors.insert(name.into(), (f32, vec![4], data.clone()));
    }
    for name in ["eh_proj.weight", "mlp.experts.3.up_proj.weight", "embed_tokens.weight"] {
        pieces.tensors.insert(format!("model.language_model.layers.9.{name}"), (f32, vec![4], data.clone()));
    }
    let skipped = pieces.check().unwrap();
    assert_eq!((skipped.visual, skipped.prediction), ((2, 32), (3, 48)));
    let line = skipped.to_string();
    assert!(line.contains("model.visual.*") && line.contains("layers.9.*"), "{line}");
    assert_eq!(line.lines().count(), 1);
}

/// Writes the tiny checkpoint in three shards with an index; the shards' names.
fn shards_of(folder: &Path) -> [String; 3] {
    let pieces = Pieces::read("glm5-next-tiny");
    fs::write(folder.join("config.json"), pieces.config.to_string()).unwrap();
    let names = [1, 2, 3].map(|i| format!("model-{i:05}-of-00003.safetensors"));
    let mut map = serde_json::Map::new();
    let each = pieces.tensors.len().div_ceil(3);
    let all: Vec<_> = pieces.tensors.iter().collect();
    for (shard, tensors) in names.iter().zip(all.chunks(each)) {
        let part = Pieces {
            config: json!({}),
            tensors: tensors.iter().map(|(name, piece)| ((*name).clone(), (*piece).clone())).collect(),
        };
        fs::write(folder.join(shard), part.bytes()).unwrap();
        map.extend(part.tensors.keys().map(|name| (name.clone(), json!(shard))));
    }
    let index = json!({"metadata": {"total_size": 1}, "weight_map": map});
    fs::write(folder.join("model.safetensors.index.json"), index.to_string()).unwrap();
    names
}

#[test]
fn shards() {
    let _turn = turn();
    let temp = tempfile::tempdir().unwrap();
    let [first, second, third] = shards_of(temp.path());
    open(temp.path()).unwrap();
    open(&temp.path().join("model.safetensors.index.json")).unwrap();
    let source = SafetensorsSource::open(temp.path()).unwrap();
    assert_eq!(source.parts(), 3);

    let (there, away) = (temp.path().join(&second), temp.path().join("away"));
    fs::rename(&there, &away).unwrap();
    names(&open(temp.path()).unwrap_err(), &[&second, "is not there"]);
    // Another shard under its name.
    fs::copy(temp.path().join(&first), &there).unwrap();
    names(&open(temp.path()).unwrap_err(), &["a second time", &second]);
    fs::rename(&away, &there).unwrap();

    let path = temp.path().join("model.safetensors.index.json");
    let index: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let change = |edit: &dyn Fn(&mut serde_json::Map<String, serde_json::Value>)| {
        let mut index = index.clone();
        edit(index["weight_map"].as_object_mut().unwrap());
        fs::write(&path, index.to_string()).unwrap();
        open(temp.path()).unwrap_err()
    };
    let ghost = change(&|map| drop(map.insert("ghost.weight".into(), json!(third))));
    names(&ghost, &["tensor `ghost.weight`", &third, "is not in"]);
    let unnamed = change(&|map| drop(map.remove("lm_head.weight")));
    names(&unnamed, &["tensor `lm_head.weight`", "does not name it"]);
    for bad in ["../model.safetensors", "/etc/passwd", "a/b", "", "."] {
        let error = change(&|map| drop(map.insert("ghost.weight".into(), json!(bad))));
        names(&error, &["index.json: field `weight_map`", "without a folder"]);
    }
    names(&change(&|map| drop(map.insert("x".into(), json!(7)))), &["weight_map", "cannot be read"]);
    names(&change(&|map| map.clear()), &["weight_map", "names no tensor"]);
    fs::write(&path, "{}").unwrap();
    names(&open(temp.path()).unwrap_err(), &["weight_map", "is missing"]);
}

#[test]
fn folders_without_a_checkpoint() {
    let temp = tempfile::tempdir().unwrap();
    names(&open(temp.path()).unwrap_err(), &[&temp.path().display().to_string(), "cannot be opened"]);
    let golden = folder("glm5-next-tiny").join("model.safetensors");
    fs::copy(&golden, temp.path().join("model.safetensors")).unwrap();
    names(&open(temp.path()).unwrap_err(), &["config.json", "cannot be opened"]);
    for (text, reason) in [("", "is empty"), ("{", "no valid JSON"), ("[]", "must be an object")] {
        fs::write(temp.path().join("config.json"), text).unwrap();
        names(&open(temp.path()).unwrap_err(), &["config.json: ", reason]);
    }
    fs::write(temp.path().join("config.json"), " ".repeat(2 << 20)).unwrap();
    names(&open(temp.path()).unwrap_err(), &["config.json", "at most 1048576"]);
    fs::write(temp.path().join("config.json"), r#"{"model_type": "qwen3_moe"}"#).unwrap();
    names(&open(temp.path()).unwrap_err(), &["model_type", "qwen3_moe", "glm5_next"]);
}
