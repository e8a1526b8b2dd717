//! `config.json` in both spellings, and what is refused of it, by the field's name.

use bitwalk::config::glm5::{FfnKind, Glm5Config, IndexerKind, MixerKind};
use bitwalk::format::FormatError;
use serde_json::{Map, Value, json};
use std::path::Path;

use super::{Pieces, names};

fn parse(config: &Value) -> Result<Glm5Config, FormatError> {
    Glm5Config::from_json(Path::new("config.json"), config)
}

fn tiny() -> Value {
    Pieces::read("glm5-next-tiny").config
}

/// The tiny configuration in the other spelling.
fn other_spelling() -> Value {
    let mut config = tiny();
    let text = config["text_config"].as_object_mut().unwrap();
    for field in ["linear_num_heads", "linear_head_dim", "linear_conv_kernel_dim", "linear_lower_bound"] {
        text.remove(field);
    }
    for kind in text["layer_types"].as_array_mut().unwrap() {
        if kind == "indexed_attention" {
            *kind = json!("deepseek_sparse_attention");
        }
    }
    text.insert(
        "linear_attn_config".into(),
        json!({
            "num_heads": 4, "head_dim": 32, "short_conv_kernel_size": 4, "gate_lower_bound": -5.0,
            "kda_layers": [0, 1, 2, 4, 5, 6, 8], "full_attn_layers": [3, 7],
        }),
    );
    config
}

#[test]
fn both_spellings_say_the_same() {
    let wanted = parse(&tiny()).unwrap();
    assert_eq!(parse(&other_spelling()).unwrap(), wanted);
    // The text model's fields at the top of the file.
    let mut flat = tiny()["text_config"].clone();
    assert_eq!(parse(&flat).unwrap(), wanted);
    flat["model_type"] = json!("glm5_next");
    assert_eq!(parse(&flat).unwrap(), wanted);
}

#[test]
fn a_bound_may_be_null_but_not_absent() {
    let mut config = other_spelling();
    config["text_config"]["linear_attn_config"]["gate_lower_bound"] = Value::Null;
    assert_eq!(parse(&config).unwrap().gate_lower_bound, None);
    config["text_config"]["linear_attn_config"].as_object_mut().unwrap().remove("gate_lower_bound");
    names(&parse(&config).unwrap_err(), &["linear_attn_config.gate_lower_bound", "missing"]);
}

#[test]
fn another_configuration_is_read_as_it_is() {
    let mut config = other_spelling();
    let text = config["text_config"].as_object_mut().unwrap();
    let changes = json!({
        "hidden_size": 96, "n_routed_experts": 12, "num_experts_per_tok": 3, "index_topk": 16, "index_kpool": 8,
        "routed_scaling_factor": 2.0, "swiglu_limit": 7.0, "intermediate_size": 160, "hc_mult": 2,
        "hc_sinkhorn_iters": 3, "eos_token_id": [7, 3, 7], "tie_word_embeddings": true,
        "indexer_types": ["shared", "shared", "shared", "full", "shared", "shared", "shared", "shared", "shared"],
    });
    text.extend(changes.as_object().unwrap().clone());
    text["linear_attn_config"]["num_heads"] = json!(2);
    text["linear_attn_config"]["gate_lower_bound"] = json!(-4.0);
    config["tie_word_embeddings"] = json!(true);
    let read = parse(&config).unwrap();
    assert_eq!((read.hidden, read.experts, read.experts_per_token, read.intermediate), (96, 12, 3, 160));
    assert_eq!((read.index_topk, read.index_kpool, read.pools_selected()), (16, 8, 2));
    assert_eq!((read.kda_heads, read.kda_width(), read.gate_lower_bound), (2, 64, Some(-4.0)));
    assert_eq!((read.routed_scaling, read.swiglu_limit), (2.0, Some(7.0)));
    assert_eq!((read.hc_mult, read.hc_iters, read.hc_rows()), (2, 3, 8));
    assert_eq!((read.eos.as_slice(), read.tied_head), (&[3, 7][..], true));
    let mixers: Vec<_> = read.layers.iter().map(|layer| layer.mixer).collect();
    assert_eq!(mixers[3], MixerKind::Mla { indexer: IndexerKind::Full });
    assert_eq!(mixers[7], MixerKind::Mla { indexer: IndexerKind::Shared });
    assert_eq!(read.mixers(|kind| kind == MixerKind::Kda).collect::<Vec<_>>(), [0, 1, 2, 4, 5, 6, 8]);
}

#[test]
fn dense_layers_may_be_counted() {
    let mut config = tiny();
    let text = config["text_config"].as_object_mut().unwrap();
    text.remove("mlp_layer_types");
    names(&parse(&config).unwrap_err(), &["text_config.mlp_layer_types", "is missing"]);
    config["text_config"]["first_k_dense_replace"] = json!(2);
    let ffns: Vec<_> = parse(&config).unwrap().layers.iter().map(|layer| layer.ffn).collect();
    assert_eq!(ffns[..3], [FfnKind::Dense, FfnKind::Dense, FfnKind::Routed]);
}

#[test]
fn every_needed_field_is_missed_by_name() {
    let config = tiny();
    let optional = [
        "attention_bias",
        "attention_dropout",
        "bos_token_id",
        "dtype",
        "eos_token_id",
        "head_dim",
        "hidden_act",
        "index_kpool_always_select_tail",
        "indexer_types",
        "initializer_range",
        "model_type",
        "n_group",
        "norm_topk_prob",
        "num_key_value_heads",
        "output_router_logits",
        "pad_token_id",
        "qk_head_dim",
        "qk_rope_head_dim",
        "router_aux_loss_coef",
        "tie_word_embeddings",
        "topk_group",
        "use_cache",
    ];
    let fields: Vec<String> = config["text_config"].as_object().unwrap().keys().cloned().collect();
    let mut needed = 0;
    for field in fields {
        let mut config = config.clone();
        config["text_config"].as_object_mut().unwrap().remove(&field);
        if optional.contains(&field.as_str()) {
            assert_eq!(parse(&config).unwrap(), parse(&tiny()).unwrap(), "{field}");
        } else {
            names(
                &parse(&config).unwrap_err(),
                &["config.json: ", &format!("`text_config.{field}`"), "missing"],
            );
            needed += 1;
        }
    }
    assert_eq!(needed, 30);
}

#[test]
fn what_makes_no_sense_is_refused_by_name() {
    let text = |changes: Value| {
        let mut config = tiny();
        config["text_config"].as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        config
    };
    let layer_types = |kind: &str| {
        let mut kinds = tiny()["text_config"]["layer_types"].clone();
        kinds[5] = json!(kind);
        json!({ "layer_types": kinds })
    };
    for (changes, parts) in [
        (layer_types("sliding_attention"), &["layer_types[5]", "sliding_attention", "linear_attention"][..]),
        (json!({"layer_types": ["linear_attention"]}), &["layer_types", "1 entries", "9 layers"]),
        (json!({"mlp_layer_types": ["dense"]}), &["mlp_layer_types", "1 entries"]),
        (json!({"indexer_types": ["full"]}), &["indexer_types", "1 entries"]),
        (json!({"num_hidden_layers": 8}), &["layer_types", "9 entries", "8 layers"]),
        (json!({"index_topk": 30}), &["index_topk", "30", "index_kpool, 4"]),
        (json!({"qk_rope_head_dim": 64}), &["qk_rope_head_dim", "64", "no rotary"]),
        (json!({"n_group": 4}), &["n_group", "4"]),
        (json!({"topk_group": 2}), &["topk_group", "2"]),
        (json!({"norm_topk_prob": false}), &["norm_topk_prob", "false"]),
        (json!({"hc_mult": 1}), &["hc_mult", "is 1", "hyper-connections"]),
        (json!({"hc_mult": null}), &["hc_mult", "is missing", "hyper-connections"]),
        (json!({"num_experts_per_tok": 17}), &["num_experts_per_tok", "17", "1 to 16"]),
        (json!({"hidden_size": "128"}), &["hidden_size", "\"128\""]),
        (json!({"hidden_size": -128}), &["hidden_size", "-128"]),
        (json!({"hidden_size": 1e30}), &["hidden_size", "1e+30"]),
        (json!({"hidden_size": 4294967424u64}), &["hidden_size", "4294967424"]),
        (json!({"rms_norm_eps": 0.0}), &["rms_norm_eps", "positive"]),
        (json!({"swiglu_limit": -1.0}), &["swiglu_limit", "positive"]),
        (json!({"linear_lower_bound": 5.0}), &["linear_lower_bound", "negative"]),
        (json!({"eos_token_id": 512}), &["eos_token_id", "512", "511"]),
        (json!({"eos_token_id": [1, 600]}), &["eos_token_id[1]", "600"]),
        (json!({"num_key_value_heads": 2}), &["num_key_value_heads", "2"]),
        (json!({"num_attention_heads": 67108864, "num_key_value_heads": 67108864}), &["qk_nope_head_dim"]),
        (json!({"model_type": "glm4_moe"}), &["text_config.model_type", "glm4_moe", "glm5_next"]),
        (json!({"hidden_act": "gelu"}), &["hidden_act", "gelu"]),
    ] {
        let error = parse(&text(changes.clone())).expect_err(&changes.to_string());
        names(&error, parts);
        names(&error, &["config.json: field `text_config."]);
    }
}

#[test]
fn lists_of_layers_must_agree() {
    for (field, list) in [("kda_layers", json!([1, 2, 3, 5, 6, 7])), ("full_attn_layers", json!([4, 8]))] {
        let mut config = other_spelling();
        config["text_config"]["linear_attn_config"][field] = list;
        names(&parse(&config).unwrap_err(), &[&format!("linear_attn_config.{field}"), "counted from 0"]);
    }
}

#[test]
fn another_architecture_is_refused_by_name() {
    let mut config = tiny();
    config["model_type"] = json!("llama");
    names(&parse(&config).unwrap_err(), &["`model_type`", "\"llama\"", "GGUF"]);
    let mut config = tiny();
    config["architectures"] = json!(["Glm4MoeForCausalLM"]);
    names(&parse(&config).unwrap_err(), &["`architectures`", "Glm4MoeForCausalLM"]);
    let llama = json!({"hidden_size": 64, "num_hidden_layers": 2});
    names(&parse(&llama).unwrap_err(), &["`model_type`", "missing"]);
    names(&parse(&json!([])).unwrap_err(), &["an array of 0"]);
    let mut config = tiny();
    config["text_config"] = json!(7);
    names(&parse(&config).unwrap_err(), &["`text_config`", "must be an object"]);
}

#[test]
fn counts_that_would_be_listed_are_bounded() {
    let mut config = tiny();
    let layers = 1024;
    let mut changes = Map::new();
    for (field, entry) in
        [("layer_types", "linear_attention"), ("mlp_layer_types", "sparse"), ("indexer_types", "full")]
    {
        changes.insert(field.into(), json!(vec![entry; layers]));
    }
    changes.insert("num_hidden_layers".into(), json!(layers));
    changes.insert("n_routed_experts".into(), json!(1024));
    config["text_config"].as_object_mut().unwrap().extend(changes);
    names(&parse(&config).unwrap_err(), &["n_routed_experts", "in each of 1024 layers"]);
    config["text_config"]["num_hidden_layers"] = json!(4_000_000_000u64);
    names(&parse(&config).unwrap_err(), &["num_hidden_layers", "1 to 1024"]);
}
