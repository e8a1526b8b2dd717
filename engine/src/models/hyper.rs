//! Hyper-connections: several residual streams, collapsed into a block's input and expanded by its output.
//!
//! Formulas: `docs/numerics.md`, "glm5_next". The map is computed from the streams themselves, so it differs from token to
//! token; it is read by the collapse before the block and by the expansion after it.

use super::walk::BodyBuilder;
use crate::device::Buffer;
use crate::kernel::{BF16, F16, F32, Launch, LaunchError, RawTensor, TensorFormat};
use crate::kernels::hyper;
use crate::plan::{PlanError, Scratch};

/// The constants of a model's hyper-connections.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HyperShape {
    /// Streams.
    pub streams: u32,
    /// Width of a stream.
    pub hidden: u32,
    /// Sinkhorn rounds; each normalises rows and columns, the first columns only.
    pub iters: u32,
    /// Added to sigmoids and sums of the map.
    pub map_eps: f32,
    /// Added to mean squares.
    pub eps: f32,
}

/// The weights of one connection, and of the norm between it and its block.
#[derive(Debug)]
pub struct HyperConnection {
    /// `[n·(n + 2), n·hidden]`: rows for pre, post, and comb row-major.
    pub project: RawTensor,
    /// `[n·(n + 2)]`.
    pub base: Buffer<f32>,
    /// pre, post, comb.
    pub scale: Buffer<f32>,
    /// RMSNorm of the collapsed input, `[hidden]`.
    pub norm: Buffer<f32>,
}

/// A block's input, and what its output is expanded by.
#[derive(Debug)]
pub struct Collapsed {
    /// `[tokens, hidden]`, normed.
    pub normed: Scratch<f32>,
    post: Scratch<f32>,
    comb: Scratch<f32>,
}

/// The probes of one connection.
#[derive(Debug, Clone, Copy)]
pub struct HyperNames {
    post: &'static str,
    comb: &'static str,
    collapsed: &'static str,
    out: &'static str,
}

/// Those of the connection around the mixer.
pub const ATTN: HyperNames =
    HyperNames { post: "attn_post", comb: "attn_comb", collapsed: "attn_collapsed", out: "attn_out" };
/// Those of the connection around the feed-forward network.
pub const FFN: HyperNames =
    HyperNames { post: "ffn_post", comb: "ffn_comb", collapsed: "ffn_collapsed", out: "mlp_out" };

fn project(
    weight: &RawTensor,
    streams: &Buffer<f32>,
    map: &Buffer<f32>,
    tokens: u32,
) -> Result<Launch, LaunchError> {
    let (rows, cols) = (weight.rows() as u32, weight.cols() as u32);
    macro_rules! call {
        ($($format:ident => $kernel:ident),*) => {
            match weight.format() {
                $(TensorFormat::$format => match weight.typed::<$format>() {
                    Some(w) => hyper::$kernel(&w, streams, map, rows, cols, tokens),
                    None => Err(unfit(weight)),
                },)*
                _ => Err(unfit(weight)),
            }
        };
    }
    call!(F32 => hc_project_f32, F16 => hc_project_f16, BF16 => hc_project_bf16)
}

fn unfit(weight: &RawTensor) -> LaunchError {
    let reason = format!("no kernel for maps of {}", weight.format());
    LaunchError { kernel: "hc_project", argument: "fn", reason }
}

impl HyperConnection {
    /// Bytes of the weights.
    pub fn bytes(&self) -> u64 {
        self.project.bytes()
            + [&self.base, &self.scale, &self.norm].map(|v| v.bytes() as u64).iter().sum::<u64>()
    }

    /// Appends the map and the collapse of `streams`, `[tokens, n, hidden]`.
    pub(super) fn collapse(
        &self,
        b: &mut BodyBuilder<'_>,
        shape: &HyperShape,
        streams: &Buffer<f32>,
        names: HyperNames,
    ) -> Result<Collapsed, PlanError> {
        let (arena, tokens) = (b.scratch(), b.tokens());
        let (n, t) = (shape.streams as usize, tokens as usize);
        let hidden = shape.hidden as usize;
        let map = arena.take(t * (n * (n + 2) + 1), "hyper-connection map")?;
        b.push("hc map", project(&self.project, streams, &map, tokens))?;
        let collapsed = arena.take(t * hidden, "collapsed")?;
        let normed = arena.take(t * hidden, "normed")?;
        let post = arena.take(t * n, "hyper-connection post")?;
        let comb = arena.take(t * n * n, "hyper-connection comb")?;
        let launch = hyper::hc_collapse(
            streams,
            &map,
            &self.base,
            &self.scale,
            &self.norm,
            &collapsed,
            &normed,
            &post,
            &comb,
            shape.hidden,
            shape.streams,
            shape.iters,
            shape.map_eps,
            shape.eps,
            tokens,
        );
        b.push("hc collapse", launch)?;
        b.probe(names.post, &post, &[shape.streams]);
        b.probe(names.comb, &comb, &[shape.streams, shape.streams]);
        b.probe(names.collapsed, &collapsed, &[shape.hidden]);
        Ok(Collapsed { normed, post, comb })
    }
}

impl Collapsed {
    /// The block's input and what is left for the expansion.
    pub fn split(self) -> (Scratch<f32>, Expansion) {
        (self.normed, Expansion { post: self.post, comb: self.comb })
    }
}

/// What a block's output is expanded by.
#[derive(Debug)]
pub struct Expansion {
    post: Scratch<f32>,
    comb: Scratch<f32>,
}

impl Expansion {
    /// Appends `streams ← post · y + combᵀ · streams`.
    pub(super) fn push(
        self,
        b: &mut BodyBuilder<'_>,
        shape: &HyperShape,
        streams: &Buffer<f32>,
        y: &Buffer<f32>,
        names: HyperNames,
    ) -> Result<(), PlanError> {
        b.probe(names.out, y, &[shape.hidden]);
        let tokens = b.tokens();
        let launch =
            hyper::hc_expand(streams, y, &self.post, &self.comb, shape.hidden, shape.streams, tokens);
        b.push("hc expand", launch)?;
        Ok(())
    }
}
