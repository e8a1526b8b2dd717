//! A model: layers of mixers and feed-forward networks of several kinds, and the walk over them.

use super::attention::{Attention, AttentionContext, CHUNK};
use super::ends::{embed_rows, push_argmax};
use super::experts::{Routed, RoutedShape};
use super::ffn::{DenseFfn, SwiGlu};
use super::hyper::{self, HyperConnection, HyperShape};
use super::kda::{Kda, KdaShape};
use super::latent::{LatentAttention, LatentShape};
use super::linear::{LinearInput, matvec};
use super::load::LoadTimings;
use super::walk::{BodyBuilder, MixerKind, Walk};
use crate::cache::{Cache, CacheShape, SlotShape};
use crate::config::ModelConfig;
use crate::decode::Sampler;
use crate::device::Buffer;
use crate::engine::Engine;
use crate::kernel::{Launch, LaunchError, RawTensor};
use crate::kernels::{hyper as kernels, pipeline, sample};
use crate::plan::{Arena, Plan, PlanBuilder, PlanError, Scratch};

/// What mixes tokens in a layer.
#[derive(Debug)]
pub enum Mixer {
    /// Grouped-query attention.
    Attention(Attention),
    /// Kimi Delta Attention.
    Kda(Box<Kda>),
    /// Latent attention over selected tokens.
    Latent(Box<LatentAttention>),
}

impl Mixer {
    /// Which kind it is.
    pub fn kind(&self) -> MixerKind {
        match self {
            Mixer::Attention(_) => MixerKind::Attention,
            Mixer::Kda(_) => MixerKind::Kda,
            Mixer::Latent(_) => MixerKind::Latent,
        }
    }
}

/// What follows the mixer.
#[derive(Debug)]
pub enum Ffn {
    /// A dense SwiGLU network with its norm and residual.
    Dense(Box<DenseFfn>),
    /// A dense SwiGLU network between hyper-connections.
    Streams(SwiGlu),
    /// Routed experts.
    Routed(Box<Routed>),
}

/// One layer.
#[derive(Debug)]
pub struct Layer {
    /// The mixer.
    pub mixer: Mixer,
    /// The feed-forward network.
    pub ffn: Ffn,
    /// The connections around mixer and network, where the model has several streams; else both add to one residual.
    pub hyper: Option<[HyperConnection; 2]>,
}

/// The shapes that the kinds of layers of one model have.
#[derive(Debug, Clone)]
pub struct StreamShapes {
    /// Of the hyper-connections.
    pub hyper: HyperShape,
    /// Of KDA layers.
    pub kda: KdaShape,
    /// Of latent attention.
    pub latent: LatentShape,
    /// Of routed layers.
    pub routed: RoutedShape,
}

/// What runs through the layers, and what that needs.
#[derive(Debug)]
pub enum Flow {
    /// Layers over one residual stream, with rotary position embedding.
    Residual {
        /// The configuration.
        config: Box<ModelConfig>,
        /// Inverse rotary frequencies, `[head_dim / 2]`.
        inv_freq: Buffer<f32>,
    },
    /// Layers over hyper-connected streams.
    Streams(Box<StreamShapes>),
}

/// What is known of every model.
#[derive(Debug, Clone)]
pub struct ModelSummary {
    /// `general.architecture` or `model_type`.
    pub architecture: String,
    /// Token ids.
    pub vocab: u32,
    /// Width of the residual, or of one stream.
    pub hidden: u32,
    /// Streams of residual.
    pub streams: u32,
    /// Longest context that the model was made for.
    pub context: u32,
    /// Of RMSNorms.
    pub eps: f32,
    /// Whether the head is the embedding matrix.
    pub tied_head: bool,
}

/// A model's weights on a device.
#[derive(Debug)]
pub struct HybridModel {
    pub(super) summary: ModelSummary,
    pub(super) flow: Flow,
    /// Which of the model's layers are here.
    pub(super) range: StageRange,
    /// `[vocab, hidden]`; in the first stage.
    pub(super) embedding: Option<RawTensor>,
    pub(super) layers: Vec<Layer>,
    /// In the last stage.
    pub(super) head: Option<Head>,
    pub(super) loading: LoadTimings,
}

/// What follows the layers.
#[derive(Debug)]
pub struct Head {
    /// RMSNorm, `[hidden]`.
    pub norm: Buffer<f32>,
    /// `[vocab, hidden]`; the embedding again where the model ties them.
    pub project: RawTensor,
    /// Whether it is the embedding, in the same memory.
    pub shared: bool,
}

/// The layers of one stage: a contiguous range of the model's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StageRange {
    /// The first one.
    pub first: u32,
    /// One past the last one.
    pub end: u32,
    /// Layers of the model.
    pub total: u32,
}

impl StageRange {
    /// All layers of a model.
    pub fn whole(total: u32) -> Self {
        StageRange { first: 0, end: total, total }
    }

    /// Whether the embedding belongs to it.
    pub fn is_first(&self) -> bool {
        self.first == 0
    }

    /// Whether the head belongs to it.
    pub fn is_last(&self) -> bool {
        self.end == self.total
    }

    /// The layers.
    pub fn layers(&self) -> std::ops::Range<u32> {
        self.first..self.end
    }
}

/// Where a stage's walk takes its input from and leaves its output, where the model has several stages.
#[derive(Debug, Clone, Copy, Default)]
pub struct StageLinks<'a> {
    /// What the stage before wrote: `[tokens, streams, hidden]`.
    pub inbox: Option<&'a Buffer<f32>>,
    /// The next stage's inbox, on another device.
    pub outbox: Option<&'a Buffer<f32>>,
    /// In the first stage: the token that the last one produced. Absent while a prompt is run.
    pub incoming: Option<&'a Buffer<u32>>,
    /// In the last stage: where the first one takes its token from, on another device.
    pub outgoing: Option<&'a Buffer<u32>>,
}

/// How a walk is built.
#[derive(Debug, Clone, Copy)]
pub struct WalkOptions<'a> {
    /// Tokens that it processes.
    pub tokens: u32,
    /// Chunks of 64 keys that attention is sized for.
    pub n_splits: u32,
    /// Draws the next token; without one it is the likeliest.
    pub sampler: Option<&'a Sampler>,
    /// Whether an observer will look at values in its middle.
    pub probing: bool,
    /// The stages around it.
    pub links: StageLinks<'a>,
}

impl HybridModel {
    /// What is known of every model.
    pub fn config(&self) -> &ModelSummary {
        &self.summary
    }

    /// What runs through the layers.
    pub fn flow(&self) -> &Flow {
        &self.flow
    }

    /// The layers.
    pub fn layers(&self) -> &[Layer] {
        &self.layers
    }

    /// Whether the launches of a walk depend on how many keys attention is sized for.
    pub fn has_buckets(&self) -> bool {
        self.layers.iter().any(|layer| matches!(layer.mixer, Mixer::Attention(_)))
    }

    /// What a session's cache consists of.
    pub fn cache_shape(&self) -> CacheShape {
        let s = &self.summary;
        let slots = self.layers.iter().map(|layer| match (&layer.mixer, &self.flow) {
            (Mixer::Attention(_), Flow::Residual { config, .. }) => {
                SlotShape::Kv { width: config.kv_width() }
            }
            (Mixer::Kda(_), Flow::Streams(shapes)) => shapes.kda.slot(),
            (Mixer::Latent(latent), Flow::Streams(shapes)) => shapes.latent.slot(latent.indexer.is_some()),
            _ => unreachable!("a family's loader makes its own mixers"),
        });
        let routes = self.layers.iter().map(|layer| match (&layer.ffn, &self.flow) {
            (Ffn::Routed(_), Flow::Streams(shapes)) => shapes.routed.selected,
            _ => 0,
        });
        CacheShape {
            context: s.context,
            vocab: s.vocab,
            first_layer: self.range.first,
            slots: slots.collect(),
            routes: routes.collect(),
        }
    }

    /// Bytes of all weights on the device (a tied head counts once).
    pub fn bytes(&self) -> u64 {
        let layers: u64 = self.layers.iter().map(Layer::bytes).sum();
        let head = self
            .head
            .as_ref()
            .map_or(0, |head| head.norm.bytes() as u64 + if head.shared { 0 } else { head.project.bytes() });
        layers + self.embedding.as_ref().map_or(0, RawTensor::bytes) + head
    }

    /// Which of the model's layers are here.
    pub fn range(&self) -> StageRange {
        self.range
    }

    /// Elements of a token's row between two stages: the residual, or all streams.
    pub fn row_len(&self) -> usize {
        (self.summary.streams * self.summary.hidden) as usize
    }

    /// The walk of a chunk of tokens. Scratch comes from `arena`, so plans that share an arena share it and must run on one
    /// stream. `logits` is `[vocab]`.
    ///
    /// # Errors
    /// Shapes that no kernel serves; out of memory.
    pub fn walk(
        &self,
        engine: &Engine,
        arena: &Arena,
        cache: &Cache,
        logits: &Buffer<f32>,
        options: WalkOptions<'_>,
    ) -> Result<Walk, PlanError> {
        let tokens = options.tokens;
        let name = match tokens {
            1 => format!("walk({} chunks)", options.n_splits),
            _ => format!("walk({tokens} tokens, {} chunks)", options.n_splits),
        };
        let mut b = BodyBuilder::new(engine, arena, name, tokens, options.probing);
        let rows = self.rows_in(&mut b, cache, options.links)?;
        let hidden = match &self.flow {
            Flow::Residual { config, inv_freq } => {
                self.residual_layers(&mut b, cache, config, inv_freq, options, &rows)?;
                rows
            }
            Flow::Streams(shapes) => {
                self.stream_layers(&mut b, cache, shapes, &rows)?;
                match &self.head {
                    Some(head) => self.mean_of_streams(&mut b, shapes, head, &rows)?.into(),
                    None => rows,
                }
            }
        };
        if let Some(outbox) = options.links.outbox {
            let len = tokens as usize * self.row_len();
            b.push("hop", pipeline::hop(&hidden, &outbox.slice(..len)?, len as u32))?;
        }
        let (body, mut b) = b.finish("head");
        let attention_kernel = body
            .steps()
            .find(|step| step.label.what == "attention")
            .map_or("none", |step| step.launch.decl.name);
        let (head, rows) = match &self.head {
            None => {
                b.push("advance", sample::advance(cache.position(), tokens))?;
                (b.split("skip"), Vec::new())
            }
            Some(head) => self.head_plans(&mut b, arena, cache, head, &hidden, logits, options)?,
        };
        b.push("advance", sample::advance(cache.position(), tokens))?;
        Ok(Walk {
            body,
            head,
            skip: b.finish(),
            rows,
            hidden: hidden.clone(),
            tokens,
            first_layer: self.range.first,
            mixers: self.layers.iter().map(|layer| layer.mixer.kind()).collect(),
            n_splits: options.n_splits,
            attention_kernel,
            sampled: options.sampler.is_some(),
        })
    }

    /// The rows that the layers begin with: embedded, or from the stage before.
    fn rows_in(
        &self,
        b: &mut BodyBuilder<'_>,
        cache: &Cache,
        links: StageLinks<'_>,
    ) -> Result<Rows, PlanError> {
        let (tokens, streams) = (b.tokens(), self.summary.streams);
        let len = tokens as usize * self.row_len();
        let rows = match (&self.embedding, links.inbox) {
            (_, Some(inbox)) if !self.range.is_first() => Rows::Inbox(inbox.slice(..len)?),
            (Some(embedding), _) => {
                if let Some(incoming) = links.incoming {
                    b.push("take token", pipeline::take_token(incoming, cache.tokens(), cache.position()))?;
                }
                let rows = b.scratch().take(len, "rows")?;
                b.push("embed", embed_rows(embedding, cache, &rows, streams, tokens))?;
                Rows::Scratch(rows)
            }
            (None, _) => {
                let reason = "a stage without an embedding needs the rows of the stage before".to_owned();
                let missing: Result<Launch, _> =
                    Err(LaunchError { kernel: "hop", argument: "inbox", reason });
                b.push("rows", missing)?;
                unreachable!("the launch has just been refused")
            }
        };
        if self.range.is_first() {
            match &self.flow {
                Flow::Residual { config, .. } => b.probe("residual", &rows, &[config.hidden]),
                Flow::Streams(shapes) => {
                    b.probe("streams", &rows, &[shapes.hyper.streams, shapes.hyper.hidden])
                }
            }
        }
        Ok(rows)
    }

    /// The plans after the body of the last stage: the head with the next token, and the logits of each row alone.
    #[allow(clippy::too_many_arguments)] // the walk's surroundings, each of another kind
    fn head_plans(
        &self,
        b: &mut PlanBuilder<'_>,
        arena: &Arena,
        cache: &Cache,
        head: &Head,
        hidden: &Buffer<f32>,
        logits: &Buffer<f32>,
        options: WalkOptions<'_>,
    ) -> Result<(Plan, Vec<Plan>), PlanError> {
        let (s, tokens) = (&self.summary, options.tokens);
        let width = s.hidden as usize;
        if tokens > 1 {
            // The head's last launch steps past one token.
            b.push("advance", sample::advance(cache.position(), tokens - 1))?;
        }
        let last = hidden.slice((tokens as usize - 1) * width..)?;
        self.push_head(b, head, &last, logits)?;
        match options.sampler {
            Some(sampler) => sampler.push(b, arena, cache, logits, s.vocab)?,
            None => push_argmax(b, arena, cache, logits, s.vocab)?,
        }
        if let Some(outgoing) = options.links.outgoing {
            b.push("hand token over", pipeline::hop_token(cache.tokens(), cache.position(), outgoing))?;
        }
        let whole = b.split("logits");
        let mut rows: Vec<Plan> = Vec::new();
        for token in 0..if tokens > 1 { tokens as usize } else { 0 } {
            let row = hidden.slice(token * width..(token + 1) * width)?;
            self.push_head(b, head, &row, logits)?;
            rows.push(b.split("logits"));
        }
        Ok((whole, rows))
    }

    /// Layers over one residual, in place.
    fn residual_layers(
        &self,
        b: &mut BodyBuilder<'_>,
        cache: &Cache,
        config: &ModelConfig,
        inv_freq: &Buffer<f32>,
        options: WalkOptions<'_>,
        x: &Buffer<f32>,
    ) -> Result<(), PlanError> {
        let (arena, tokens) = (b.scratch(), b.tokens());
        let y = arena.take(x.len(), "residual")?;
        let arrived = b.engine().uninit(config.kv_heads as usize, "arrived blocks of attention")?;
        b.engine().stream().fill(&arrived, 0)?;
        b.written_elsewhere(&arrived);
        let cx = AttentionContext {
            config,
            inv_freq,
            position: cache.position(),
            n_splits: options.n_splits,
            // One token's partial results are kept at one size for all buckets; those of many would be large.
            max_chunks: if tokens == 1 { cache.capacity().div_ceil(CHUNK) } else { options.n_splits },
            arrived: &arrived,
            tokens,
        };
        for (index, (layer, slot)) in self.layers.iter().zip(cache.layers()).enumerate() {
            b.enter(Some(self.range.first + index as u32));
            let (Mixer::Attention(attention), Ffn::Dense(ffn)) = (&layer.mixer, &layer.ffn) else {
                unreachable!("the llama family's loader makes attention and dense networks")
            };
            attention.push(b, &arena, &cx, slot, x, &y)?;
            ffn.push(b, &y, x)?;
            b.probe("residual", x, &[config.hidden]);
        }
        b.enter(None);
        Ok(())
    }

    /// Layers over hyper-connected streams, `[tokens, streams, hidden]`, in place.
    fn stream_layers(
        &self,
        b: &mut BodyBuilder<'_>,
        cache: &Cache,
        shapes: &StreamShapes,
        streams: &Buffer<f32>,
    ) -> Result<(), PlanError> {
        let (arena, tokens, position) = (b.scratch(), b.tokens(), cache.position());
        let (t, h) = (tokens as usize, &shapes.hyper);
        let hidden = h.hidden as usize;
        let mut selection = None;
        for (index, (layer, slot)) in self.layers.iter().zip(cache.layers()).enumerate() {
            b.enter(Some(self.range.first + index as u32));
            let Some([before_mixer, before_ffn]) = &layer.hyper else {
                unreachable!("glm5_next's loader makes hyper-connections for every layer")
            };
            let (x, expansion) = before_mixer.collapse(b, h, streams, hyper::ATTN)?.split();
            let y = arena.take(t * hidden, "mixer output")?;
            match &layer.mixer {
                Mixer::Kda(kda) => {
                    let x = LinearInput::plain(x, tokens);
                    kda.push(b, &shapes.kda, slot, position, x, &y)?;
                }
                Mixer::Latent(latent) => {
                    let x = LinearInput::plain(x, tokens);
                    let capacity = cache.capacity();
                    latent.push(b, &shapes.latent, slot, position, capacity, x, &mut selection, &y)?;
                }
                Mixer::Attention(_) => unreachable!("glm5_next's loader makes no plain attention"),
            }
            expansion.push(b, h, streams, &y, hyper::ATTN)?;
            drop(y);

            let (x, expansion) = before_ffn.collapse(b, h, streams, hyper::FFN)?.split();
            let y = arena.take(t * hidden, "ffn output")?;
            match (&layer.ffn, cache.routes().get(index).and_then(Option::as_ref)) {
                (Ffn::Streams(net), _) => {
                    let x = LinearInput::plain(x, tokens);
                    net.push(b, &x, None, &y)?;
                }
                (Ffn::Routed(routed), Some(slot)) => routed.push(b, &shapes.routed, slot, x, &y)?,
                _ => unreachable!("glm5_next's loader makes these networks, and their cache the routes"),
            }
            expansion.push(b, h, streams, &y, hyper::FFN)?;
            b.probe("streams", streams, &[h.streams, h.hidden]);
        }
        b.enter(None);
        Ok(())
    }

    /// The streams' mean, normed, `[tokens, hidden]`.
    fn mean_of_streams(
        &self,
        b: &mut BodyBuilder<'_>,
        shapes: &StreamShapes,
        head: &Head,
        streams: &Buffer<f32>,
    ) -> Result<Scratch<f32>, PlanError> {
        let (tokens, h, eps) = (b.tokens(), &shapes.hyper, self.summary.eps);
        let mean = b.scratch().take((tokens * h.hidden) as usize, "normed mean of the streams")?;
        let launch = kernels::mean_norm(streams, &head.norm, &mean, h.hidden, h.streams, eps, tokens);
        b.push("stream mean, norm", launch)?;
        b.probe("final_norm", &mean, &[h.hidden]);
        Ok(mean)
    }

    /// The logits of one row of what the body leaves.
    fn push_head(
        &self,
        b: &mut PlanBuilder<'_>,
        head: &Head,
        x: &Buffer<f32>,
        logits: &Buffer<f32>,
    ) -> Result<(), PlanError> {
        let eps = self.summary.eps;
        let input = match &self.flow {
            Flow::Residual { .. } => LinearInput::normed(x, &head.norm, eps),
            Flow::Streams(_) => LinearInput::borrowed(x.clone(), 1),
        };
        let launch = matvec(b, &head.project, &input, None, logits);
        b.push("head", launch)?;
        Ok(())
    }
}

/// Rows that layers work on in place.
enum Rows {
    Scratch(Scratch<f32>),
    Inbox(Buffer<f32>),
}

impl From<Scratch<f32>> for Rows {
    fn from(scratch: Scratch<f32>) -> Self {
        Rows::Scratch(scratch)
    }
}

impl std::ops::Deref for Rows {
    type Target = Buffer<f32>;
    fn deref(&self) -> &Buffer<f32> {
        match self {
            Rows::Scratch(scratch) => scratch,
            Rows::Inbox(buffer) => buffer,
        }
    }
}

impl Layer {
    fn bytes(&self) -> u64 {
        let mixer = match &self.mixer {
            Mixer::Attention(mixer) => mixer.bytes(),
            Mixer::Kda(mixer) => mixer.bytes(),
            Mixer::Latent(mixer) => mixer.bytes(),
        };
        let ffn = match &self.ffn {
            Ffn::Dense(ffn) => ffn.bytes(),
            Ffn::Streams(net) => net.bytes(),
            Ffn::Routed(routed) => routed.bytes(),
        };
        mixer + ffn + self.hyper.iter().flatten().map(HyperConnection::bytes).sum::<u64>()
    }
}
