//! From `config.json` to [`Glm5Config`].

use std::path::Path;

use serde_json::{Value, json};

use super::fields::{Fields, MAX_EXTENT, brief};
use super::{FfnKind, Glm5Config, IndexerKind, LayerKind, MixerKind};
use crate::format::FormatError;

/// Most layers, experts a layer, and experts of all layers.
const MAX_LAYERS: u32 = 1024;
const MAX_EXPERTS: u32 = 1024;
const MAX_EXPERTS_IN_ALL: u32 = 1 << 17;
/// Most residual streams, and rounds of normalisation of their mixing.
const MAX_STREAMS: u32 = 16;
const MAX_ITERS: u32 = 1000;

impl Glm5Config {
    /// Reads the parsed `config.json` of `path`. The text model's fields may stand under `text_config` or at the top.
    ///
    /// # Errors
    /// [`FormatError::Config`] naming the field that is missing, inconsistent or unsupported.
    pub fn from_json(path: &Path, config: &Value) -> Result<Glm5Config, FormatError> {
        let Value::Object(object) = config else {
            let reason = format!("is {}, but must be an object", brief(config));
            return Err(FormatError::Config { path: path.into(), field: "(the whole file)".into(), reason });
        };
        let root = Fields::new(path, "", object);
        architecture(&root)?;
        let nested = root.object("text_config", "text_config.")?;
        if let Some(text) = &nested {
            architecture(text)?;
        }
        let c = nested.unwrap_or(root);
        unsupported(&c)?;

        let hc_mult = streams(&c)?;
        let layers = layers(&c)?;
        let routed = layers.iter().filter(|layer| layer.ffn == FfnKind::Routed).count() as u32;
        let linear = Linear::read(&c, &layers)?;
        let hidden = c.extent("hidden_size")?;
        let experts = c.number("n_routed_experts", 1, MAX_EXPERTS)?;
        if experts * routed > MAX_EXPERTS_IN_ALL {
            let reason =
                format!("is {experts} in each of {routed} layers; {MAX_EXPERTS_IN_ALL} in all are the most");
            return Err(c.error("n_routed_experts", reason));
        }
        let heads = c.extent("num_attention_heads")?;
        c.only(
            "num_key_value_heads",
            &json!(heads),
            "a latent is expanded to as many keys as there are queries",
        )?;
        let (index_topk, index_kpool) = (c.extent("index_topk")?, c.extent("index_kpool")?);
        if !index_topk.is_multiple_of(index_kpool) {
            let reason = format!(
                "is {index_topk}, no multiple of index_kpool, {index_kpool}: whole pools are selected, so it must be"
            );
            return Err(c.error("index_topk", reason));
        }
        let vocab = c.extent("vocab_size")?;
        let moe_intermediate = c.extent("moe_intermediate_size")?;
        let config = Glm5Config {
            vocab,
            hidden,
            layers,
            intermediate: c.extent("intermediate_size")?,
            moe_intermediate,
            experts,
            experts_per_token: c.number("num_experts_per_tok", 1, experts)?,
            shared_experts: c.number("n_shared_experts", 1, 64)?,
            routed_scaling: c.positive("routed_scaling_factor")?,
            kda_heads: linear.heads,
            kda_head_dim: linear.head_dim,
            conv_kernel: linear.conv_kernel,
            gate_lower_bound: linear.lower_bound,
            heads,
            q_lora: c.extent("q_lora_rank")?,
            kv_lora: c.extent("kv_lora_rank")?,
            nope: c.extent("qk_nope_head_dim")?,
            v_head: c.extent("v_head_dim")?,
            index_heads: c.extent("index_n_heads")?,
            index_dim: c.extent("index_head_dim")?,
            index_topk,
            index_kpool,
            hc_mult,
            hc_iters: c.number("hc_sinkhorn_iters", 1, MAX_ITERS)?,
            hc_eps: c.positive("hc_eps")?,
            eps: c.positive("rms_norm_eps")?,
            swiglu_limit: swiglu_limit(&c)?,
            tied_head: tied_head(&root, &c)?,
            context: c.extent("max_position_embeddings")?,
            eos: end_tokens(&root, &c, vocab)?,
        };
        products(&c, &config)?;
        Ok(config)
    }
}

/// Refuses what is no `glm5_next`, by name.
fn architecture(c: &Fields<'_>) -> Result<(), FormatError> {
    let run = "bitwalk runs glm5_next from safetensors, and the llama family from GGUF files";
    if let Some(name) = c.text("model_type")?
        && !matches!(name, "glm5_next" | "glm5_next_text")
    {
        return Err(c.error("model_type", format!("is {name:?}; {run}")));
    }
    let classes = c.get("architectures");
    if let Some(classes) = classes {
        let known = |class: &Value| class.as_str().is_some_and(|class| class.starts_with("Glm5Next"));
        let names = classes.as_array().filter(|names| !names.is_empty());
        if !names.is_some_and(|names| names.iter().all(known)) {
            let first = names.map_or(classes, |names| &names[0]);
            return Err(c.error("architectures", format!("is {}; {run}", brief(first))));
        }
    }
    // A text model's own object need not repeat what the whole is.
    if classes.is_none() && c.get("model_type").is_none() && c.is_root() {
        return Err(c.error("model_type", format!("is missing, so what the model is cannot be told; {run}")));
    }
    Ok(())
}

/// Variants of the formulas that no kernel computes.
fn unsupported(c: &Fields<'_>) -> Result<(), FormatError> {
    c.only("qk_rope_head_dim", &json!(0), "this architecture has no rotary embedding")?;
    c.only("n_group", &json!(1), "experts are selected among all")?;
    c.only("topk_group", &json!(1), "experts are selected among all")?;
    c.only("norm_topk_prob", &json!(true), "routing weights are normalised over the selected experts")?;
    c.only("hidden_act", &json!("silu"), "networks are SwiGLU")?;
    c.only("attention_bias", &json!(false), "linear layers have no bias")?;
    c.only("scoring_func", &json!("sigmoid"), "the router's scores are sigmoids")?;
    c.only(
        "index_kpool_always_select_tail",
        &json!(true),
        "the tokens of the last, incomplete pool are always seen",
    )
}

fn streams(c: &Fields<'_>) -> Result<u32, FormatError> {
    let hint = "a checkpoint without hyper-connections is another model, which bitwalk does not run";
    match c.optional_number("hc_mult", 1, MAX_STREAMS)? {
        None => Err(c.error("hc_mult", format!("is missing: {hint}"))),
        Some(1) => Err(c.error("hc_mult", format!("is 1: {hint}"))),
        Some(streams) => Ok(streams),
    }
}

fn layers(c: &Fields<'_>) -> Result<Vec<LayerKind>, FormatError> {
    let count = c.number("num_hidden_layers", 1, MAX_LAYERS)?;
    let Some(types) = c.per_layer("layer_types", count)? else {
        let reason =
            "is missing: it says of each layer whether it is \"linear_attention\" or \"indexed_attention\"";
        return Err(c.error("layer_types", reason));
    };
    let ffns = ffns(c, count)?;
    let indexers = c.per_layer("indexer_types", count)?;
    let mut any_indexer = false;
    let mut layers = Vec::with_capacity(count as usize);
    for (i, (kind, ffn)) in types.iter().zip(ffns).enumerate() {
        let mixer = match kind.as_str() {
            Some("linear_attention") => MixerKind::Kda,
            Some("indexed_attention" | "deepseek_sparse_attention") => {
                let own = indexers.is_none_or(|indexers| indexers[i] == "full");
                if !own && indexers.is_some_and(|indexers| indexers[i] != "shared") {
                    let found = indexers.map_or(String::new(), |indexers| brief(&indexers[i]));
                    let reason = format!("is {found}; known are \"full\" and \"shared\"");
                    return Err(c.error(&format!("indexer_types[{i}]"), reason));
                }
                if !own && !any_indexer {
                    let reason = "is \"shared\", but no layer before has an indexer";
                    return Err(c.error(&format!("indexer_types[{i}]"), reason));
                }
                any_indexer = true;
                MixerKind::Mla { indexer: if own { IndexerKind::Full } else { IndexerKind::Shared } }
            }
            _ => {
                let reason = format!(
                    "is {}; known are \"linear_attention\", \"indexed_attention\" and \"deepseek_sparse_attention\"",
                    brief(kind)
                );
                return Err(c.error(&format!("layer_types[{i}]"), reason));
            }
        };
        layers.push(LayerKind { mixer, ffn });
    }
    Ok(layers)
}

/// The networks' kinds: listed, or given by the number of layers that begin the model with dense ones.
fn ffns(c: &Fields<'_>, count: u32) -> Result<Vec<FfnKind>, FormatError> {
    if let Some(types) = c.per_layer("mlp_layer_types", count)? {
        let kind = |(i, kind): (usize, &Value)| match kind.as_str() {
            Some("dense") => Ok(FfnKind::Dense),
            Some("sparse") => Ok(FfnKind::Routed),
            _ => {
                let reason = format!("is {}; known are \"dense\" and \"sparse\"", brief(kind));
                Err(c.error(&format!("mlp_layer_types[{i}]"), reason))
            }
        };
        return types.iter().enumerate().map(kind).collect();
    }
    let Some(dense) = c.optional_number("first_k_dense_replace", 0, count)? else {
        let reason = "is missing: it says of each layer whether its network is \"dense\" or \"sparse\"";
        return Err(c.error("mlp_layer_types", reason));
    };
    c.only("moe_layer_freq", &json!(1), "every layer behind the dense ones is routed")?;
    Ok((0..count).map(|i| if i < dense { FfnKind::Dense } else { FfnKind::Routed }).collect())
}

/// The sizes of delta-attention layers, in either spelling.
struct Linear {
    heads: u32,
    head_dim: u32,
    conv_kernel: u32,
    lower_bound: Option<f32>,
}

impl Linear {
    fn read(c: &Fields<'_>, layers: &[LayerKind]) -> Result<Linear, FormatError> {
        let own = c.object("linear_attn_config", "text_config.linear_attn_config.")?;
        // The one that has the field; where neither does, the error names the field of the spelling that is used.
        let pick = |flat: &'static str, nested: &'static str| match &own {
            Some(own) if own.has(nested) || !c.has(flat) => (own, nested),
            _ => (c, flat),
        };
        let extent = |(from, field): (&Fields<'_>, &str), most| from.number(field, 1, most);
        let (from, field) = pick("linear_lower_bound", "gate_lower_bound");
        let lower_bound = from.nullable_float(field)?;
        if let Some(bound) = lower_bound
            && bound >= 0.0
        {
            let reason = format!("is {bound}, but must be negative: it bounds the logarithm of a decay");
            return Err(from.error(field, reason));
        }
        if let Some(own) = &own {
            for (field, wanted) in [("kda_layers", true), ("full_attn_layers", false)] {
                let Some(listed) = own.indices(field, layers.len() as u32)? else { continue };
                let is = |layer: &LayerKind| (layer.mixer == MixerKind::Kda) == wanted;
                let mut sorted = listed;
                sorted.sort_unstable();
                let implied = (0..layers.len() as u32).filter(|&i| is(&layers[i as usize]));
                if !sorted.iter().copied().eq(implied) {
                    let reason = "disagrees with layer_types (layers are counted from 0)";
                    return Err(own.error(field, reason));
                }
            }
        }
        Ok(Linear {
            heads: extent(pick("linear_num_heads", "num_heads"), MAX_EXTENT)?,
            head_dim: extent(pick("linear_head_dim", "head_dim"), MAX_EXTENT)?,
            conv_kernel: extent(pick("linear_conv_kernel_dim", "short_conv_kernel_size"), 64)?,
            lower_bound,
        })
    }
}

fn swiglu_limit(c: &Fields<'_>) -> Result<Option<f32>, FormatError> {
    let limit = c.nullable_float("swiglu_limit")?;
    match limit {
        Some(limit) if limit <= 0.0 => {
            Err(c.error("swiglu_limit", format!("is {limit}, but must be positive, or null for no clamp")))
        }
        _ => Ok(limit),
    }
}

fn tied_head(root: &Fields<'_>, c: &Fields<'_>) -> Result<bool, FormatError> {
    let field = "tie_word_embeddings";
    let (outer, inner) = (root.flag(field)?, c.flag(field)?);
    if let (Some(outer), Some(inner)) = (outer, inner)
        && outer != inner
    {
        return Err(c.error(field, format!("is {inner}, but {outer} at the top of the file")));
    }
    Ok(inner.or(outer).unwrap_or(false))
}

fn end_tokens(root: &Fields<'_>, c: &Fields<'_>, vocab: u32) -> Result<Vec<u32>, FormatError> {
    let field = "eos_token_id";
    let from = if c.get(field).is_some() { c } else { root };
    let mut eos = match from.get(field) {
        Some(Value::Array(_)) => from.indices(field, vocab)?.unwrap_or_default(),
        _ => from.optional_number(field, 0, vocab - 1)?.into_iter().collect(),
    };
    if eos.len() > 64 {
        return Err(from.error(field, format!("names {} tokens; at most 64 are supported", eos.len())));
    }
    eos.sort_unstable();
    eos.dedup();
    Ok(eos)
}

/// Widths that are products must not exceed what a width may be.
fn products(c: &Fields<'_>, config: &Glm5Config) -> Result<(), FormatError> {
    let g = config;
    let products = [
        ("linear_head_dim", g.kda_head_dim, g.kda_heads, "heads"),
        ("qk_nope_head_dim", g.nope, g.heads, "heads"),
        ("v_head_dim", g.v_head, g.heads, "heads"),
        ("index_head_dim", g.index_dim, g.index_heads, "heads"),
        ("moe_intermediate_size", g.moe_intermediate, g.shared_experts, "shared experts"),
        ("hidden_size", g.hidden, g.hc_mult, "streams"),
    ];
    for (field, width, times, what) in products {
        if u64::from(width) * u64::from(times) > MAX_EXTENT.into() {
            return Err(
                c.error(field, format!("is {width}, which times {times} {what} exceeds {MAX_EXTENT}"))
            );
        }
    }
    // Keys and values of all heads are rows of one matrix.
    if u64::from(g.heads) * (u64::from(g.nope) + u64::from(g.v_head)) > MAX_EXTENT.into() {
        let reason = format!("is {}: keys and values of {} heads exceed {MAX_EXTENT}", g.v_head, g.heads);
        return Err(c.error("v_head_dim", reason));
    }
    Ok(())
}
