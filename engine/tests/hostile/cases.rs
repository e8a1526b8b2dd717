//! One lie at a time.

use std::process::Command;

use bitwalk::format::DType;
use bitwalk::format::gguf::GgufWriter;

use super::{fixture, refused, refused_path, turn};

/// Byte offset just behind the first place where `name` stands in the file as a length-prefixed string.
fn behind(bytes: &[u8], name: &str) -> usize {
    let needle = [&(name.len() as u64).to_le_bytes()[..], name.as_bytes()].concat();
    let at = bytes.windows(needle.len()).position(|window| window == needle);
    at.unwrap_or_else(|| panic!("{name} is in the fixture")) + needle.len()
}

/// The fixture with `new` written at `skip` bytes behind the string `name`.
fn patched(name: &str, skip: usize, new: &[u8]) -> Vec<u8> {
    let mut bytes = fixture();
    let at = behind(&bytes, name) + skip;
    bytes[at..at + new.len()].copy_from_slice(new);
    bytes
}

/// A file of one pair and one tensor.
fn small(change: impl FnOnce(&mut GgufWriter)) -> Vec<u8> {
    let mut writer = GgufWriter::new();
    change(&mut writer);
    writer.tensor("a", &[2, 32], DType::F32, &[0; 256]);
    writer.finish()
}

// Behind a tensor's name: u32 number of dimensions, u64 each, u32 type, u64 offset.
const DIMENSIONS: usize = 0;
const FIRST: usize = 4;
const TYPE: usize = 4 + 2 * 8;
const OFFSET: usize = TYPE + 4;
// Behind a key: u32 type, then the value; for an array u32 element type, u64 length, elements.
const VALUE: usize = 4;
const LENGTH: usize = 4 + 4;
const ELEMENTS: usize = LENGTH + 8;

#[test]
fn cut_in_the_header() {
    for len in [1, 3] {
        refused(&fixture()[..len], "at byte 0: not a GGUF file", "it begins with");
    }
    refused(&fixture()[..6], "at byte 4", "ends inside the version");
    refused(&fixture()[..12], "at byte 8", "the file ends inside the tensor count: 8 bytes");
    refused(&fixture()[..20], "at byte 16", "the file ends inside the metadata pair count");
    refused(&fixture()[..28], "at byte 24", "the length of the key of metadata pair 0");
    let bytes = fixture();
    let at = behind(&bytes, "general.name");
    refused(&bytes[..at], &format!("at byte {at}"), "the type of metadata key `general.name`");
    refused(&bytes[..at + 14], &format!("at byte {}", at + 12), "the value of metadata key `general.name`");
}

#[test]
fn cut_in_the_tensor_table() {
    let bytes = fixture();
    let at = behind(&bytes, "blk.1.attn_k.weight");
    refused(
        &bytes[..at + 6],
        &format!("at byte {}", at + 4),
        "the file ends inside dimension 0 of tensor `blk.1.attn_k",
    );
}

#[test]
fn cut_inside_the_last_tensor() {
    let bytes = fixture();
    let cut = bytes.len() - 200;
    let reason = format!("but the file ends at {cut}; cut short?");
    refused(&bytes[..cut], "tensor `output_norm.weight`: its data is announced from byte", &reason);
}

#[test]
fn wrong_magic() {
    let mut bytes = fixture();
    bytes[..4].copy_from_slice(b"GGML");
    refused(&bytes, "at byte 0: not a GGUF file", "it begins with [47, 47, 4d, 4c], not with `GGUF`");
    bytes[..4].copy_from_slice(b"tjgg");
    refused(&bytes, "at byte 0: not a GGUF file", "one of ggml's formats from before GGUF");
    bytes[..4].copy_from_slice(b"PK\x03\x04");
    refused(&bytes, "at byte 0: not a GGUF file", "zip archive");
}

#[test]
fn versions_that_are_not_read() {
    let mut bytes = fixture();
    bytes[4..8].copy_from_slice(&3u32.to_be_bytes());
    refused(&bytes, "at byte 4", "a big-endian file");
    for version in [0u32, 1, 4, 0xdead_beef] {
        bytes[4..8].copy_from_slice(&version.to_le_bytes());
        refused(&bytes, "at byte 4", &format!("GGUF version {version} is not supported"));
    }
}

#[test]
fn counts_beyond_reason() {
    let mut bytes = fixture();
    bytes[8..16].copy_from_slice(&u64::MAX.to_le_bytes());
    refused(&bytes, "at byte 8", "18446744073709551615 tensors announced; at most 65536");
    let mut bytes = fixture();
    bytes[16..24].copy_from_slice(&(1u64 << 40).to_le_bytes());
    refused(&bytes, "at byte 16", "1099511627776 metadata pairs announced");
    // One more tensor than there is: the table runs on into the data.
    let mut bytes = fixture();
    bytes[8] += 1;
    refused(&bytes, "at byte", "the name of tensor 29");
}

#[test]
fn tensor_of_unknown_type() {
    let bytes = patched("blk.0.attn_q.weight", TYPE, &250u32.to_le_bytes());
    refused(&bytes, "tensor `blk.0.attn_q.weight`: has type 250 at byte", "which ggml does not define");
}

#[test]
fn dimensions_beyond_reason() {
    let bytes = patched("blk.0.attn_q.weight", FIRST, &(1u64 << 42).to_le_bytes());
    refused(&bytes, "tensor `blk.0.attn_q.weight`: its data is announced from byte", "but the file ends at");
    let bytes = patched("blk.0.attn_q.weight", FIRST, &[(1u64 << 42).to_le_bytes(); 2].concat());
    refused(
        &bytes,
        "tensor `blk.0.attn_q.weight`: its size overflows",
        "[4398046511104, 4398046511104] of Q4_1",
    );
    let bytes = patched("blk.0.attn_q.weight", FIRST, &0u64.to_le_bytes());
    refused(&bytes, "tensor `blk.0.attn_q.weight`: dimension 0 is 0 at byte", "");
    let bytes = patched("blk.0.attn_q.weight", FIRST, &95u64.to_le_bytes());
    refused(
        &bytes,
        "tensor `blk.0.attn_q.weight`: its rows of 95 elements are no whole blocks of 32 (Q4_1)",
        "",
    );
    let bytes = patched("blk.0.attn_q.weight", DIMENSIONS, &9u32.to_le_bytes());
    refused(&bytes, "tensor `blk.0.attn_q.weight`: has 9 dimensions at byte", "at most 4");
}

#[test]
fn alignments_that_are_none() {
    for alignment in [0, 1, 48, 1 << 30, u32::MAX] {
        let bytes = small(|writer| writer.u32("general.alignment", alignment));
        let reason = format!("is {alignment}, but a power of two from 8 to 65536 is wanted");
        refused(&bytes, "metadata key `general.alignment`", &reason);
    }
    let bytes = small(|writer| writer.str("general.alignment", "32"));
    refused(&bytes, "metadata key `general.alignment`", "is \"32\", but an integer");
}

#[test]
fn arrays_longer_than_the_file() {
    for length in [1u64 << 63, u64::MAX, 1 << 32] {
        for key in ["tokenizer.ggml.tokens", "tokenizer.ggml.token_type"] {
            let bytes = patched(key, LENGTH, &length.to_le_bytes());
            let at = behind(&bytes, key) + LENGTH;
            let reason = format!("metadata key `{key}` announces an array of {length} entries");
            refused(&bytes, &format!("at byte {at}"), &reason);
        }
    }
    // One entry more than there is.
    let bytes = patched("tokenizer.ggml.tokens", LENGTH, &1025u64.to_le_bytes());
    refused(&bytes, "at byte", "");
    let bytes = patched("tokenizer.ggml.tokens", ELEMENTS, &(u64::MAX - 3).to_le_bytes());
    refused(&bytes, "at byte", "entry 0 of metadata key `tokenizer.ggml.tokens`");
}

#[test]
fn arrays_nested_without_end() {
    // An array of one array of one array …: 12 bytes a level.
    let level = [&9u32.to_le_bytes()[..], &1u64.to_le_bytes()].concat();
    let mut bytes = [b"GGUF", &3u32.to_le_bytes()[..], &0u64.to_le_bytes(), &1u64.to_le_bytes()].concat();
    bytes.extend([&1u64.to_le_bytes()[..], b"k", &9u32.to_le_bytes()].concat());
    bytes.extend(level.repeat(100_000));
    refused(&bytes, "at byte 85", "metadata key `k` nests arrays deeper than 4");
}

#[test]
fn metadata_of_unknown_type_or_twice() {
    let bytes = patched("llama.block_count", 0, &13u32.to_le_bytes());
    refused(&bytes, "at byte", "metadata key `llama.block_count` has type 13, which GGUF does not define");
    let bytes = small(|writer| {
        writer.u32("k", 1);
        writer.u32("k", 2);
    });
    refused(&bytes, "metadata key `k`: appears a second time at byte 41", "");
}

#[test]
fn tensors_that_share_bytes() {
    let fixture = fixture();
    let at = behind(&fixture, "blk.0.attn_q.weight") + OFFSET;
    let offset = u64::from_le_bytes(fixture[at..at + 8].try_into().unwrap());
    let bytes = patched("blk.0.attn_k.weight", OFFSET, &offset.to_le_bytes());
    refused(&bytes, "tensor `blk.0.attn_", "overlaps that of tensor `blk.0.attn_");
    let bytes = patched("blk.0.attn_q.weight", OFFSET, &(offset + 4).to_le_bytes());
    let reason = format!("its offset {} is no multiple of the alignment 32", offset + 4);
    refused(&bytes, "tensor `blk.0.attn_q.weight`", &reason);
    for offset in [u64::MAX - 31, 1 << 62] {
        let bytes = patched("blk.0.attn_q.weight", OFFSET, &offset.to_le_bytes());
        refused(&bytes, "tensor `blk.0.attn_q.weight`: its ", "");
    }
    let bytes = small(|writer| writer.tensor("a", &[2, 32], DType::F32, &[0; 256]));
    refused(&bytes, "tensor `a`: appears a second time", "");
}

#[test]
fn a_missing_tensor() {
    let mut bytes = fixture();
    let at = behind(&bytes, "blk.1.ffn_up.weight");
    bytes[at - 1] = b'x';
    refused(&bytes, "tensor `blk.1.ffn_up.weight`: is missing, and the model needs it", "");
}

#[test]
fn a_wrong_shape() {
    // Columns and rows swapped: the same number of bytes in F32.
    let swapped = [96u64.to_le_bytes(), 352u64.to_le_bytes()].concat();
    let bytes = patched("blk.2.ffn_down.weight", FIRST, &swapped);
    let reason = "has shape [352, 96], but the model's configuration asks for [96, 352]";
    refused(&bytes, "tensor `blk.2.ffn_down.weight`", reason);
}

#[test]
fn heads_that_do_not_divide() {
    let bytes = patched("llama.attention.head_count_kv", VALUE, &4u32.to_le_bytes());
    let reason = "is 4, which does not divide the 6 query heads";
    refused(&bytes, "metadata key `llama.attention.head_count_kv`", reason);
}

#[test]
fn a_vocabulary_shorter_than_the_embedding() {
    let mut writer = GgufWriter::new();
    writer.str("general.architecture", "llama");
    for key in
        ["block_count", "embedding_length", "feed_forward_length", "attention.head_count", "context_length"]
    {
        writer.u32(&format!("llama.{key}"), if key == "embedding_length" { 32 } else { 1 });
    }
    writer.f32("llama.attention.layer_norm_rms_epsilon", 1e-5);
    writer.strings("tokenizer.ggml.tokens", &["a", "b"]);
    writer.tensor("token_embd.weight", &[3, 32], DType::F32, &[0; 3 * 32 * 4]);
    let reason = "has 2 entries, but `token_embd.weight` has 3 rows";
    refused(&writer.finish(), "metadata key `tokenizer.ggml.tokens`", reason);
}

#[test]
fn text_that_is_not_utf_8() {
    let bytes = patched("tokenizer.ggml.tokens", ELEMENTS + 8, &[0xff]);
    let at = behind(&bytes, "tokenizer.ggml.tokens") + ELEMENTS + 8;
    let reason = "entry 0 of metadata key `tokenizer.ggml.tokens` is not valid UTF-8 at its byte 0";
    refused(&bytes, &format!("at byte {at}"), reason);
    // Names that would play tricks with a terminal.
    let mut bytes = fixture();
    let at = behind(&bytes, "blk.1.ffn_up.weight");
    bytes[at - 1] = 0x1b;
    refused(
        &bytes,
        "at byte",
        "the name of tensor 17 has a control character in it: \"blk.1.ffn_up.weigh\\u{1b}\"",
    );
}

#[test]
fn tokens_and_templates_that_make_no_sense() {
    let bytes = patched("tokenizer.ggml.token_type", ELEMENTS, &77i32.to_le_bytes());
    refused(
        &bytes,
        "metadata key `tokenizer.ggml.token_type`",
        "entry 0 is 77; kinds are numbered from 1 to 6",
    );
    // The first merge, "Ġ a", becomes "Ġaa": 4 bytes either way.
    let bytes = patched("tokenizer.ggml.merges", ELEMENTS + 8 + 2, b"a");
    refused(
        &bytes,
        "metadata key `tokenizer.ggml.merges`",
        "entry 0, \"Ġaa\", is not two tokens with a space between",
    );
    let bytes = patched("tokenizer.ggml.eos_token_id", VALUE, &1024u32.to_le_bytes());
    refused(&bytes, "metadata key `tokenizer.ggml.eos_token_id`", "is 1024, but there are only 1024 tokens");
    let bytes = patched("tokenizer.chat_template", VALUE + 8, b"{% if");
    refused(&bytes, "metadata key `tokenizer.chat_template`", "does not parse");
    let bytes = patched("tokenizer.ggml.model", VALUE + 8, b"bert");
    refused(&bytes, "metadata key `tokenizer.ggml.model`", "is \"bert\"; supported is gpt2");
}

#[test]
fn what_is_no_file_of_this_kind() {
    refused(&[], "is empty", "");
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    refused_path(folder.path(), 0, "is a directory", "not a file");
    refused_path(&folder.path().join("absent.gguf"), 0, "cannot be opened", "");
    let pipe = folder.path().join("pipe.gguf");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    refused_path(&pipe, 0, "is a pipe or a device", "not a file");

    let path = folder.path().join("model.safetensors");
    let data = safetensors::tensor::TensorView::new(safetensors::Dtype::F32, vec![2, 2], &[0; 16]).unwrap();
    std::fs::write(&path, safetensors::serialize([("a", data)], None).unwrap()).unwrap();
    refused_path(&path, 0, "at byte 0: not a GGUF file", "it looks like safetensors");
}
