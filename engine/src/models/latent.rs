//! Latent attention in absorbed form: queries are taken into the space of the cached latents, so that a latent is read as
//! it lies, for all heads; over the tokens that the indexer selects.

use super::linear::{LinearInput, Stacked, matvec};
use super::walk::BodyBuilder;
use crate::cache::{IndexSlot, KvBuffer, LayerCache, SlotShape};
use crate::device::Buffer;
use crate::kernel::{BF16, Counter, F16, F32, Launch, LaunchError, RawTensor, TensorFormat};
use crate::kernels::{indexer, latent};
use crate::plan::{PlanError, Scratch};

/// The constants of a model's latent attention.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LatentShape {
    /// Query heads.
    pub heads: u32,
    /// Width of the query residual.
    pub q_lora: u32,
    /// Width of a latent.
    pub kv_lora: u32,
    /// Width of a head's keys.
    pub nope: u32,
    /// Width of a head's values.
    pub value: u32,
    /// Heads of the indexer.
    pub index_heads: u32,
    /// Width of the indexer's heads.
    pub index_dim: u32,
    /// Tokens selected at most, beside the incomplete pool's; a multiple of `pool`.
    pub topk: u32,
    /// Tokens a pool.
    pub pool: u32,
    /// Of RMSNorms.
    pub eps: f32,
}

/// Of the indexer's layer norm.
const INDEX_EPS: f32 = 1e-6;

impl LatentShape {
    /// What the cache keeps for a layer.
    pub fn slot(&self, indexed: bool) -> SlotShape {
        SlotShape::Latent { width: self.kv_lora, index: indexed.then_some((self.pool, self.index_dim)) }
    }

    /// Pools selected at most.
    pub fn top(&self) -> u32 {
        self.topk / self.pool
    }

    /// Chunks of 64 that a selection out of `capacity` positions may have.
    pub fn chunks(&self, capacity: u32) -> u32 {
        (self.topk + self.pool - 1).min(capacity).div_ceil(latent::CHUNK)
    }
}

/// What selects tokens: the weights of one layer's indexer.
#[derive(Debug)]
pub struct Indexer {
    /// wq_b over the query residual, `[index_heads·index_dim, q_lora]`.
    pub query: RawTensor,
    /// Layer norm of the keys, `[index_dim]`.
    pub norm_weight: Buffer<f32>,
    /// `[index_dim]`.
    pub norm_bias: Buffer<f32>,
    /// Added to the gates by place in the pool, `[pool, index_dim]`.
    pub place: Buffer<f32>,
}

/// The weights of one latent attention layer.
#[derive(Debug)]
pub struct LatentAttention {
    /// q_a and kv_a; with an indexer also wk, its gate, and the head weights; over the normed input, stacked by rows.
    pub input: Stacked,
    /// `[q_lora]`.
    pub query_norm: Buffer<f32>,
    /// q_b, `[heads·nope, q_lora]`.
    pub query: RawTensor,
    /// `[kv_lora]`.
    pub latent_norm: Buffer<f32>,
    /// kv_b's keys, transposed within a head: `[heads·kv_lora, nope]`.
    pub absorb: RawTensor,
    /// kv_b's values, `[heads·value, kv_lora]`.
    pub expand: RawTensor,
    /// `[hidden, heads·value]`.
    pub output: RawTensor,
    /// Absent where the layer takes the selection of the one before.
    pub indexer: Option<Indexer>,
}

/// The pools that an indexer chose for each token of a chunk.
#[derive(Debug)]
pub struct Selection {
    /// `[tokens, top]`, ascending, as many as `count` says.
    pools: Scratch<u32>,
    /// `[tokens]`.
    count: Scratch<u32>,
}

/// A part of a stacked projection: one token's columns in every token's row.
struct Columns<'a> {
    all: &'a Buffer<f32>,
    stride: usize,
    tokens: usize,
}

impl Columns<'_> {
    fn at(&self, from: u32, len: u32) -> Result<Buffer<f32>, PlanError> {
        let from = from as usize;
        Ok(self.all.slice(from..from + (self.tokens - 1) * self.stride + len as usize)?)
    }
}

impl LatentAttention {
    /// Appends `y = attention(x)` and leaves the selection for layers that share it. `x` is what the layer's norm gave, in the
    /// forms that [`LatentAttention::input`] reads.
    #[allow(clippy::too_many_arguments)] // the layer's surroundings, each of another kind
    pub(super) fn push(
        &self,
        b: &mut BodyBuilder<'_>,
        s: &LatentShape,
        slot: &LayerCache,
        position: &Counter,
        capacity: u32,
        x: LinearInput,
        selection: &mut Option<Selection>,
        y: &Buffer<f32>,
    ) -> Result<(), PlanError> {
        let LayerCache::Latent { latents, index } = slot else {
            return Err(b.wrong_slot("latent_append", "cache", slot.kind()));
        };
        let (arena, tokens) = (b.scratch(), b.tokens());
        let t = tokens as usize;
        let stride = self.input.rows();
        let all = arena.take(t * stride, "latent attention projections")?;
        self.input.matvec(b, "query, latent, index", &x, &all)?;
        drop(x);
        let columns = Columns { all: &all, stride, tokens: t };

        let compressed = columns.at(s.q_lora, s.kv_lora)?;
        b.push(
            "latent",
            append(&compressed, &self.latent_norm, latents, position, s, tokens, stride as u32),
        )?;
        let residual = LinearInput::strided(columns.at(0, s.q_lora)?, tokens, s.q_lora, stride as u32)
            .under(&self.query_norm, s.eps);

        if let Some(indexer) = &self.indexer {
            let Some(index) = index else {
                return Err(b.wrong_slot("indexer_append", "pool_keys", slot.kind()));
            };
            // The selection before this one has been read by the layers that shared it.
            *selection = None;
            *selection = Some(indexer.push(b, s, index, position, capacity, &columns, &residual)?);
        }
        let Some(selection) = selection.as_ref() else {
            let reason = "the layer shares a selection, and no layer before it made one".to_owned();
            b.push(
                "attention",
                Err::<Launch, _>(LaunchError { kernel: "latent_split", argument: "pools", reason }),
            )?;
            return Ok(());
        };

        b.probe_indices("indexer_count", &selection.count, &[]);
        b.probe_indices("indexer_pools", &selection.pools, &[s.top()]);
        let queries = arena.take(t * (s.heads * s.nope) as usize, "queries")?;
        let launch = matvec(b, &self.query, &residual, None, &queries);
        b.push("queries", launch)?;
        drop(residual);
        let width = (s.heads * s.kv_lora) as usize;
        let absorbed = arena.take(t * width, "absorbed queries")?;
        b.push("absorb", heads_matvec(&self.absorb, &queries, &absorbed, s.heads, tokens))?;
        drop((queries, all));
        let chunks = s.chunks(capacity);
        let partial = arena.take(t * width * chunks as usize, "attention partials")?;
        let max_sum = arena.take(2 * t * (s.heads * chunks) as usize, "attention max and sum")?;
        b.push(
            "attention",
            split(s, &absorbed, latents, selection, position, (&partial, &max_sum), chunks, tokens),
        )?;
        drop(absorbed);
        let context = arena.take(t * width, "attended latents")?;
        let launch = latent::latent_fold(
            &partial,
            &max_sum,
            &selection.count,
            position,
            &context,
            s.heads,
            s.kv_lora,
            s.pool,
            chunks,
            tokens,
        );
        b.push("attention fold", launch)?;
        drop((partial, max_sum));
        let values = arena.take(t * (s.heads * s.value) as usize, "values")?;
        b.push("values", heads_matvec(&self.expand, &context, &values, s.heads, tokens))?;
        drop(context);
        let input = LinearInput::plain(values, tokens);
        let launch = matvec(b, &self.output, &input, None, y);
        b.push("output", launch)?;
        Ok(())
    }

    /// Bytes of the weights.
    pub fn bytes(&self) -> u64 {
        let matrices = [&self.query, &self.absorb, &self.expand, &self.output];
        let indexer = self.indexer.as_ref().map_or(0, |i| {
            i.query.bytes()
                + [&i.norm_weight, &i.norm_bias, &i.place].map(|v| v.bytes() as u64).iter().sum::<u64>()
        });
        self.input.bytes()
            + matrices.iter().map(|m| m.bytes()).sum::<u64>()
            + (self.query_norm.bytes() + self.latent_norm.bytes()) as u64
            + indexer
    }
}

impl Indexer {
    #[allow(clippy::too_many_arguments)] // the layer's surroundings, each of another kind
    fn push(
        &self,
        b: &mut BodyBuilder<'_>,
        s: &LatentShape,
        slot: &IndexSlot,
        position: &Counter,
        capacity: u32,
        columns: &Columns<'_>,
        residual: &LinearInput,
    ) -> Result<Selection, PlanError> {
        let (arena, tokens) = (b.scratch(), b.tokens());
        let (t, stride) = (tokens as usize, columns.stride as u32);
        let (heads, dim) = (s.index_heads, s.index_dim);
        let from = s.q_lora + s.kv_lora;
        let launch = indexer::indexer_append(
            &columns.at(from, dim)?,
            &columns.at(from + dim, dim)?,
            &self.norm_weight,
            &self.norm_bias,
            &self.place,
            &slot.keys,
            &slot.gates,
            &slot.pools,
            position,
            dim,
            s.pool,
            INDEX_EPS,
            tokens,
            stride,
        );
        b.push("index keys", launch)?;
        let queries = arena.take(t * (heads * dim) as usize, "index queries")?;
        let launch = matvec(b, &self.query, residual, None, &queries);
        b.push("index queries", launch)?;
        let max_pools = capacity.div_ceil(s.pool);
        let scores = arena.take(t * max_pools as usize, "pool scores")?;
        let launch = indexer::indexer_scores(
            &queries,
            &columns.at(from + 2 * dim, heads)?,
            &slot.pools,
            position,
            &scores,
            heads,
            dim,
            s.pool,
            max_pools,
            tokens,
            stride,
        );
        b.push("index scores", launch)?;
        drop(queries);
        let top = s.top();
        let pools = arena.take(t * top as usize, "selected pools")?;
        let count = arena.take(t, "count of selected pools")?;
        let launch =
            indexer::indexer_select(&scores, position, &pools, &count, s.pool, top, max_pools, tokens);
        b.push("index select", launch)?;
        Ok(Selection { pools, count })
    }
}

fn append(
    x: &Buffer<f32>,
    weight: &Buffer<f32>,
    latents: &KvBuffer,
    position: &Counter,
    s: &LatentShape,
    tokens: u32,
    stride: u32,
) -> Result<Launch, LaunchError> {
    macro_rules! call {
        ($kernel:ident, $cache:expr) => {
            latent::$kernel(x, weight, $cache, position, s.kv_lora, s.eps, tokens, stride)
        };
    }
    match latents {
        KvBuffer::F32(cache) => call!(latent_append_f32, cache),
        KvBuffer::F16(cache) => call!(latent_append_f16, cache),
        KvBuffer::F8(_) => Err(no_fp8("latent_append")),
    }
}

#[allow(clippy::too_many_arguments)] // one kernel's arguments
fn split(
    s: &LatentShape,
    q: &Buffer<f32>,
    latents: &KvBuffer,
    selection: &Selection,
    position: &Counter,
    (partial, max_sum): (&Buffer<f32>, &Buffer<f32>),
    chunks: u32,
    tokens: u32,
) -> Result<Launch, LaunchError> {
    let scale = 1.0 / (s.nope as f32).sqrt();
    macro_rules! call {
        ($kernel:ident, $cache:expr) => {
            latent::$kernel(
                q,
                $cache,
                &selection.pools,
                &selection.count,
                position,
                partial,
                max_sum,
                s.heads,
                s.kv_lora,
                scale,
                s.pool,
                s.top(),
                chunks,
                tokens,
            )
        };
    }
    match latents {
        KvBuffer::F32(cache) => call!(latent_split_f32, cache),
        KvBuffer::F16(cache) => call!(latent_split_f16, cache),
        KvBuffer::F8(_) => Err(no_fp8("latent_split")),
    }
}

fn no_fp8(kernel: &'static str) -> LaunchError {
    let reason = "latents in fp8 have no kernel: use --kv f16 or f32".to_owned();
    LaunchError { kernel, argument: "cache", reason }
}

/// `y[t, h] = W[h]·x[t, h]`, a matrix a head.
fn heads_matvec(
    weight: &RawTensor,
    x: &Buffer<f32>,
    y: &Buffer<f32>,
    heads: u32,
    tokens: u32,
) -> Result<Launch, LaunchError> {
    let (rows, cols) = (weight.rows() as u32 / heads, weight.cols() as u32);
    macro_rules! call {
        ($($format:ident => $kernel:ident),*) => {
            match weight.format() {
                $(TensorFormat::$format => match weight.typed::<$format>() {
                    Some(w) => latent::$kernel(&w, x, y, heads, rows, cols, tokens),
                    None => Err(unfit(weight)),
                },)*
                _ => Err(unfit(weight)),
            }
        };
    }
    call!(F32 => heads_matvec_f32, F16 => heads_matvec_f16, BF16 => heads_matvec_bf16)
}

fn unfit(weight: &RawTensor) -> LaunchError {
    let reason = format!("no kernel for weights of {}", weight.format());
    LaunchError { kernel: "heads_matvec", argument: "w", reason }
}
