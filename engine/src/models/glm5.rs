//! `glm5_next` from a checkpoint: which tensor goes where.

use std::io::Write;

use super::experts::{Routed, RoutedShape};
use super::ffn::SwiGlu;
use super::hybrid::{Ffn, Flow, Head, HybridModel, Layer, Mixer, ModelSummary, StageRange, StreamShapes};
use super::hyper::{HyperConnection, HyperShape};
use super::kda::{Kda, KdaShape};
use super::latent::{Indexer, LatentAttention, LatentShape};
use super::load::{LoadError, LoadTimings, Loader};
use crate::config::glm5::{
    EMBEDDING, FINAL_NORM, FfnKind, Glm5Config, HEAD, IndexerKind, MixerKind, check_tensors,
};

impl StreamShapes {
    /// The shapes that a configuration gives.
    pub fn new(c: &Glm5Config) -> StreamShapes {
        let limit = c.swiglu_limit.unwrap_or(f32::INFINITY);
        StreamShapes {
            hyper: HyperShape {
                streams: c.hc_mult,
                hidden: c.hidden,
                iters: c.hc_iters,
                map_eps: c.hc_eps,
                eps: c.eps,
            },
            kda: KdaShape {
                heads: c.kda_heads,
                dim: c.kda_head_dim,
                taps: c.conv_kernel,
                rank: c.kda_head_dim,
                bound: c.gate_lower_bound,
                eps: c.eps,
            },
            latent: LatentShape {
                heads: c.heads,
                q_lora: c.q_lora,
                kv_lora: c.kv_lora,
                nope: c.nope,
                value: c.v_head,
                index_heads: c.index_heads,
                index_dim: c.index_dim,
                topk: c.index_topk,
                pool: c.index_kpool,
                eps: c.eps,
            },
            routed: RoutedShape {
                hidden: c.hidden,
                inter: c.moe_intermediate,
                experts: c.experts,
                selected: c.experts_per_token,
                scaling: c.routed_scaling,
                normalise: true,
                limit,
            },
        }
    }
}

impl HybridModel {
    /// Loads a `glm5_next` model onto the engine's device, weights kept in their own formats.
    ///
    /// # Errors
    /// A missing or misshapen tensor, an encoding that no kernel reads, out of memory: each by name.
    pub(super) fn load_glm5(
        loader: &mut Loader<'_>,
        config: &Glm5Config,
        range: StageRange,
    ) -> Result<HybridModel, LoadError> {
        // Every tensor is looked for before the first one is uploaded.
        let source = loader.source();
        let skipped = check_tensors(source, config)?;
        if !skipped.is_empty() && range.is_first() {
            // That nobody reads stderr is no fault of the checkpoint's.
            let _ = writeln!(std::io::stderr(), "bitwalk: {}: {skipped}", source.path().display());
        }
        let shapes = StreamShapes::new(config);
        let whole_embedding = range.is_first() || (range.is_last() && config.tied_head);
        let embedding = match whole_embedding {
            true => Some(loader.matrix(EMBEDDING, config.vocab, config.hidden)?),
            false => None,
        };
        let mut layers = Vec::new();
        for index in range.layers().map(|index| index as usize) {
            layers.push(
                LayerLoader { c: config, prefix: Glm5Config::layer_prefix(index) }.load(loader, index)?,
            );
        }
        let head = if range.is_last() {
            let project = match &embedding {
                Some(embedding) if config.tied_head => embedding.clone(),
                _ => loader.matrix(HEAD, config.vocab, config.hidden)?,
            };
            let norm = loader.vector(FINAL_NORM, config.hidden)?;
            Some(Head { norm, project, shared: config.tied_head && range.is_first() })
        } else {
            None
        };
        let embedding = embedding.filter(|_| range.is_first());
        let summary = ModelSummary {
            architecture: "glm5_next".to_owned(),
            vocab: config.vocab,
            hidden: config.hidden,
            streams: config.hc_mult,
            context: config.context,
            eps: config.eps,
            tied_head: config.tied_head,
        };
        Ok(HybridModel {
            summary,
            flow: Flow::Streams(Box::new(shapes)),
            range,
            embedding,
            layers,
            head,
            loading: LoadTimings::default(),
        })
    }
}

/// Loads one layer.
struct LayerLoader<'a> {
    c: &'a Glm5Config,
    prefix: String,
}

impl LayerLoader<'_> {
    fn name(&self, part: &str) -> String {
        format!("{}{part}", self.prefix)
    }

    fn mixer_name(&self, part: &str) -> String {
        format!("{}self_attn.{part}", self.prefix)
    }

    fn load(&self, loader: &mut Loader<'_>, index: usize) -> Result<Layer, LoadError> {
        let kinds = self.c.layers[index];
        let hyper = [
            self.connection(loader, "attn", "input_layernorm.weight")?,
            self.connection(loader, "ffn", "post_attention_layernorm.weight")?,
        ];
        let mixer = match kinds.mixer {
            MixerKind::Kda => Mixer::Kda(Box::new(self.kda(loader)?)),
            MixerKind::Mla { indexer } => Mixer::Latent(Box::new(self.latent(loader, indexer)?)),
        };
        let ffn = match kinds.ffn {
            FfnKind::Dense => Ffn::Streams(self.swiglu(loader, "mlp", self.c.intermediate)?),
            FfnKind::Routed => Ffn::Routed(Box::new(self.routed(loader)?)),
        };
        Ok(Layer { mixer, ffn, hyper: Some(hyper) })
    }

    fn connection(
        &self,
        loader: &mut Loader<'_>,
        block: &str,
        norm: &str,
    ) -> Result<HyperConnection, LoadError> {
        let n = self.c.hc_mult;
        let rows = n * (n + 2);
        Ok(HyperConnection {
            project: loader.matrix(&self.name(&format!("hc_{block}_fn")), rows, n * self.c.hidden)?,
            base: loader.vector(&self.name(&format!("hc_{block}_base")), rows)?,
            scale: loader.vector(&self.name(&format!("hc_{block}_scale")), 3)?,
            norm: loader.vector(&self.name(norm), self.c.hidden)?,
        })
    }

    fn kda(&self, loader: &mut Loader<'_>) -> Result<Kda, LoadError> {
        let c = self.c;
        let (width, dim, taps) = (c.kda_width(), c.kda_head_dim, c.conv_kernel);
        let parts = [
            ("q_proj.weight", width),
            ("k_proj.weight", width),
            ("v_proj.weight", width),
            ("f_a_proj.weight", dim),
            ("g_a_proj.weight", dim),
            ("b_proj.weight", c.kda_heads),
        ];
        let parts = parts.map(|(part, rows)| (self.mixer_name(part), rows));
        let conv =
            ["q_conv1d.weight", "k_conv1d.weight", "v_conv1d.weight"].map(|part| self.mixer_name(part));
        Ok(Kda {
            input: loader.stacked_padded(&parts, c.hidden)?,
            conv: loader.vectors(&conv, &[width, 1, taps])?,
            decay: loader.matrix(&self.mixer_name("f_b_proj.weight"), width, dim)?,
            dt_bias: loader.vector(&self.mixer_name("dt_bias"), width)?,
            a_log: loader.vector(&self.mixer_name("A_log"), c.kda_heads)?,
            gate: loader.matrix(&self.mixer_name("g_b_proj.weight"), width, dim)?,
            out_norm: loader.vector(&self.mixer_name("o_norm.weight"), dim)?,
            output: loader.matrix(&self.mixer_name("o_proj.weight"), c.hidden, width)?,
        })
    }

    fn latent(&self, loader: &mut Loader<'_>, indexer: IndexerKind) -> Result<LatentAttention, LoadError> {
        let c = self.c;
        let mut parts = vec![
            (self.mixer_name("q_a_proj.weight"), c.q_lora),
            (self.mixer_name("kv_a_proj_with_mqa.weight"), c.kv_lora),
        ];
        if indexer == IndexerKind::Full {
            parts.push((self.mixer_name("indexer.wk.weight"), c.index_dim));
            parts.push((self.mixer_name("indexer.index_kpool_compress_gate"), c.index_dim));
            parts.push((self.mixer_name("indexer.weights_proj.weight"), c.index_heads));
        }
        let index = |part: &str| self.mixer_name(&format!("indexer.{part}"));
        let indexer = match indexer {
            IndexerKind::Shared => None,
            IndexerKind::Full => Some(Indexer {
                query: loader.matrix(&index("wq_b.weight"), c.index_heads * c.index_dim, c.q_lora)?,
                norm_weight: loader.vector(&index("k_norm.weight"), c.index_dim)?,
                norm_bias: loader.vector(&index("k_norm.bias"), c.index_dim)?,
                place: loader.vectors(&[index("index_kpool_compress_ape")], &[c.index_kpool, c.index_dim])?,
            }),
        };
        let (absorb, expand) = loader.keys_and_values(
            &self.mixer_name("kv_b_proj.weight"),
            c.heads,
            c.nope,
            c.v_head,
            c.kv_lora,
        )?;
        Ok(LatentAttention {
            input: loader.stacked_padded(&parts, c.hidden)?,
            query_norm: loader.vector(&self.mixer_name("q_a_layernorm.weight"), c.q_lora)?,
            query: loader.matrix(&self.mixer_name("q_b_proj.weight"), c.q_width(), c.q_lora)?,
            latent_norm: loader.vector(&self.mixer_name("kv_a_layernorm.weight"), c.kv_lora)?,
            absorb,
            expand,
            output: loader.matrix(&self.mixer_name("o_proj.weight"), c.hidden, c.v_width())?,
            indexer,
        })
    }

    fn swiglu(&self, loader: &mut Loader<'_>, stem: &str, width: u32) -> Result<SwiGlu, LoadError> {
        let name = |part: &str| self.name(&format!("{stem}.{part}_proj.weight"));
        Ok(SwiGlu {
            gate_up: loader.stacked(&[(name("gate"), width), (name("up"), width)], self.c.hidden)?,
            down: loader.matrix(&name("down"), self.c.hidden, width)?,
            limit: self.c.swiglu_limit.unwrap_or(f32::INFINITY),
        })
    }

    fn routed(&self, loader: &mut Loader<'_>) -> Result<Routed, LoadError> {
        let c = self.c;
        let inter = c.moe_intermediate;
        let expert = |e: u32, part: &str| self.name(&format!("mlp.experts.{e}.{part}_proj.weight"));
        let gate_up: Vec<_> =
            (0..c.experts).flat_map(|e| [(expert(e, "gate"), inter), (expert(e, "up"), inter)]).collect();
        let down: Vec<_> = (0..c.experts).map(|e| (expert(e, "down"), c.hidden)).collect();
        let shared = match c.shared_experts {
            0 => None,
            n => Some(self.swiglu(loader, "mlp.shared_experts", n * inter)?),
        };
        Ok(Routed {
            router: loader.matrix(&self.name("mlp.gate.weight"), c.experts, c.hidden)?,
            bias: loader.vector(&self.name("mlp.gate.e_score_correction_bias"), c.experts)?,
            gate_up: loader.uniform(&gate_up, c.hidden)?,
            down: loader.uniform(&down, inter)?,
            shared,
        })
    }
}
