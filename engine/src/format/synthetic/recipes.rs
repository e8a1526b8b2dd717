//! The configurations that are built in.

use std::str::FromStr;

use super::SyntheticError;
use crate::config::glm5::{FfnKind, Glm5Config, IndexerKind, LayerKind, MixerKind};
use crate::config::{Architecture, Family, ModelConfig, Rope, RopePairing};
use crate::kernel::TensorFormat;

/// The formats of a synthetic model's matrices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Formats {
    /// Of networks, routed experts among them.
    pub mlp: TensorFormat,
    /// Of mixers, the embedding and the head.
    pub other: TensorFormat,
    /// Of the matrices of a llama model to which a "medium" mix gives more bits, where it is one ([`Formats::medium`]).
    pub more: Option<TensorFormat>,
}

impl Formats {
    const fn uniform(format: TensorFormat) -> Formats {
        Formats { mlp: format, other: format, more: None }
    }

    /// The format of a llama model's matrix of `cols` columns.
    ///
    /// Mixes such as Q4_K_M follow the rules of llama.cpp's quantiser (`llama_tensor_get_type`): the head (a tied embedding) and,
    /// in the first and last eighth of the layers and every third between, the values' and the down projection have more bits.
    /// Rows that are no whole super-blocks fall back to the nearest format of blocks of 32.
    pub(super) fn of(&self, config: &ModelConfig, name: &str, cols: u64) -> TensorFormat {
        let Some(more) = self.more else {
            return if name.contains(".ffn_") { self.mlp } else { self.other };
        };
        let mut parts = name.split('.');
        let layer =
            if parts.next() == Some("blk") { parts.next().and_then(|i| i.parse().ok()) } else { None };
        let better = match layer {
            None => name == "output.weight" || config.tied_head,
            Some(layer) => {
                (name.ends_with(".attn_v.weight") || name.ends_with(".ffn_down.weight"))
                    && has_more_bits(layer, config.layers)
            }
        };
        match if better { more } else { self.other } {
            TensorFormat::Q4_K if !cols.is_multiple_of(256) => TensorFormat::Q5_0,
            TensorFormat::Q6_K if !cols.is_multiple_of(256) => TensorFormat::Q8_0,
            format => format,
        }
    }

    /// A mix that is told by its name in GGUF files: Q4_K_M.
    fn medium(name: &str) -> Option<Formats> {
        let more = Some(TensorFormat::Q6_K);
        name.eq_ignore_ascii_case("q4_k_m")
            .then_some(Formats { more, ..Formats::uniform(TensorFormat::Q4_K) })
    }
}

/// llama.cpp's `use_more_bits`.
fn has_more_bits(layer: u32, layers: u32) -> bool {
    let eighth = layers / 8;
    layer < eighth || layer >= 7 * layers / 8 || (layer - eighth) % 3 == 2
}

/// What a synthetic model is made by: a name and options behind commas, `glm-5.3-flash,layers=24,seed=7`.
///
/// | option | what |
/// |---|---|
/// | `layers=N` | only the first N layers |
/// | `format=F` | networks and experts in this format; for the llama family all matrices, or a mix: `q4_k_m` |
/// | `other=F` | of routed models mixers, embedding and head in this format |
/// | `experts=N` | of routed models so many experts a layer |
/// | `seed=N` | other weights |
#[derive(Debug, Clone, PartialEq)]
pub struct Recipe {
    /// The name, with the options that change the model.
    pub name: String,
    /// The configuration.
    pub family: Family,
    /// The formats.
    pub formats: Formats,
    /// The seed of all weights.
    pub seed: u64,
}

impl Recipe {
    /// Names of the configurations that are built in.
    pub const NAMES: [&str; 4] = ["glm-5.3-flash", "llama-1b", "llama-8b", "smollm2-135m"];

    /// The configuration of this name, if it is one of them, in the formats it is usually run in.
    pub fn built_in(name: &str) -> Option<Recipe> {
        let llama = |layers, hidden, ff, heads, kv_heads, head_dim, vocab, context, tied_head, base| {
            let family = Family::Llama(ModelConfig {
                architecture: Architecture::Llama,
                layers,
                hidden,
                ff,
                heads,
                kv_heads,
                head_dim,
                eps: 1e-5,
                rope: rope(head_dim, base),
                vocab,
                context,
                tied_head,
                bos: None,
                eos: Vec::new(),
            });
            let formats = Formats::uniform(TensorFormat::Q4_0);
            Recipe { name: name.into(), family, formats, seed: 0 }
        };
        Some(match name {
            "smollm2-135m" => llama(30, 576, 1536, 9, 3, 64, 49_152, 8192, true, 100_000.0),
            "llama-1b" => llama(16, 2048, 8192, 32, 8, 64, 128_256, 131_072, true, 500_000.0),
            "llama-8b" => llama(32, 4096, 14_336, 32, 8, 128, 128_256, 131_072, false, 500_000.0),
            "glm-5.3-flash" => Recipe {
                name: name.into(),
                family: Family::Glm5(glm_5_3_flash()),
                formats: Formats { mlp: TensorFormat::NVFP4, ..Formats::uniform(TensorFormat::BF16) },
                seed: 0,
            },
            _ => return None,
        })
    }

    fn option(&mut self, key: &str, value: &str) -> Result<(), SyntheticError> {
        let error = |reason: String| SyntheticError::Option { option: format!("{key}={value}"), reason };
        let number = |most: u32| {
            let parsed = value.parse::<u32>().ok().filter(|number| (1..=most).contains(number));
            parsed.ok_or_else(|| error(format!("a number from 1 to {most} is wanted")))
        };
        let format = || {
            let found =
                TensorFormat::ALL.into_iter().find(|format| format.name().eq_ignore_ascii_case(value));
            let names = TensorFormat::ALL.map(|format| format.name()).join(", ");
            found.ok_or_else(|| error(format!("formats are {names}")))
        };
        match (key, &mut self.family) {
            ("seed", _) => {
                self.seed = value.parse().map_err(|_| error("a whole number is wanted".into()))?;
            }
            ("layers", Family::Llama(config)) => config.layers = number(config.layers)?,
            ("layers", Family::Glm5(config)) => {
                let layers = number(config.layers.len() as u32)?;
                config.layers.truncate(layers as usize);
            }
            ("experts", Family::Glm5(config)) => {
                config.experts = number(1024)?;
                config.experts_per_token = config.experts_per_token.min(config.experts);
            }
            ("format", Family::Glm5(_)) => self.formats.mlp = format()?,
            ("format", Family::Llama(_)) if Formats::medium(value).is_some() => {
                self.formats = Formats::medium(value).unwrap_or(self.formats);
            }
            ("format", Family::Llama(_)) => {
                let format = format()?;
                if format == TensorFormat::NVFP4 {
                    return Err(error(
                        "the llama family comes in the formats of GGUF, which NVFP4 is none of".into(),
                    ));
                }
                self.formats = Formats::uniform(format);
            }
            ("other", Family::Glm5(_)) => self.formats.other = format()?,
            _ => {
                return Err(error(
                    "options are layers, format, seed and, of routed models, experts and other".into(),
                ));
            }
        }
        self.name = format!("{},{key}={value}", self.name);
        Ok(())
    }
}

impl FromStr for Recipe {
    type Err = SyntheticError;

    fn from_str(text: &str) -> Result<Recipe, SyntheticError> {
        let mut parts = text.split(',');
        let name = parts.next().unwrap_or_default();
        let mut recipe = Recipe::built_in(name)
            .ok_or_else(|| SyntheticError::Name { name: name.into(), known: Recipe::NAMES.join(", ") })?;
        for part in parts {
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            recipe.option(key.trim(), value.trim())?;
        }
        Ok(recipe)
    }
}

/// Plain rotary embedding of whole heads; Llama's stretching of it for long contexts is left out.
fn rope(head_dim: u32, base: f32) -> Rope {
    let frequency = |i: u32| f64::from(base).powf(-2.0 * f64::from(i) / f64::from(head_dim)) as f32;
    Rope { pairing: RopePairing::Interleaved, base, inv_freq: (0..head_dim / 2).map(frequency).collect() }
}

/// GLM-5.3-Flash: 45 layers, latent attention at 3, 7, …, 43, the first three networks dense.
fn glm_5_3_flash() -> Glm5Config {
    let layer = |i: u32| LayerKind {
        mixer: if i % 4 == 3 { MixerKind::Mla { indexer: IndexerKind::Full } } else { MixerKind::Kda },
        ffn: if i < 3 { FfnKind::Dense } else { FfnKind::Routed },
    };
    Glm5Config {
        vocab: 154_880,
        hidden: 4096,
        layers: (0..45).map(layer).collect(),
        intermediate: 12_288,
        moe_intermediate: 2048,
        experts: 288,
        experts_per_token: 8,
        shared_experts: 1,
        routed_scaling: 2.5,
        kda_heads: 64,
        kda_head_dim: 128,
        conv_kernel: 4,
        gate_lower_bound: Some(-5.0),
        heads: 64,
        q_lora: 1536,
        kv_lora: 512,
        nope: 256,
        v_head: 256,
        index_heads: 32,
        index_dim: 128,
        index_topk: 2048,
        index_kpool: 4,
        hc_mult: 4,
        hc_iters: 20,
        hc_eps: 1e-6,
        eps: 1e-5,
        swiglu_limit: Some(10.0),
        tied_head: false,
        context: 131_072,
        eos: Vec::new(),
    }
}
