//! Kimi Delta Attention: a short convolution and a gated delta rule over a recurrent state.

use super::linear::{LinearInput, Stacked, matvec};
use super::walk::BodyBuilder;
use crate::cache::{LayerCache, SlotShape};
use crate::device::Buffer;
use crate::kernel::{Counter, Launch, LaunchError, RawTensor};
use crate::kernels::kda;
use crate::plan::PlanError;

/// The constants of a model's KDA layers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct KdaShape {
    /// Heads.
    pub heads: u32,
    /// Width of a head's keys and of its values: 32, 64 or 128.
    pub dim: u32,
    /// Taps of the convolution.
    pub taps: u32,
    /// Width of the low-rank decay and gate projections.
    pub rank: u32,
    /// The decay's multiplicative lower bound; without one it is unbounded.
    pub bound: Option<f32>,
    /// Of the output norm.
    pub eps: f32,
}

impl KdaShape {
    /// What the cache keeps for a layer.
    pub fn slot(&self) -> SlotShape {
        let channels = 3 * self.heads * self.dim;
        SlotShape::Recurrent { channels, taps: self.taps, state: self.heads * self.dim * self.dim }
    }
}

/// The weights of one KDA layer.
#[derive(Debug)]
pub struct Kda {
    /// q, k, v, f_a, g_a and b over the normed input, stacked by rows.
    pub input: Stacked,
    /// q, k and v channels, `[3·heads·dim, taps]`; the last tap is the current token.
    pub conv: Buffer<f32>,
    /// f_b, `[heads·dim, rank]`.
    pub decay: RawTensor,
    /// `[heads·dim]`.
    pub dt_bias: Buffer<f32>,
    /// `[heads]`.
    pub a_log: Buffer<f32>,
    /// g_b, `[heads·dim, rank]`.
    pub gate: RawTensor,
    /// `[dim]`.
    pub out_norm: Buffer<f32>,
    /// `[hidden, heads·dim]`.
    pub output: RawTensor,
}

impl Kda {
    /// Appends `y = kda(x)`; `x` is what the layer's norm gave.
    pub(super) fn push(
        &self,
        b: &mut BodyBuilder<'_>,
        s: &KdaShape,
        slot: &LayerCache,
        position: &Counter,
        x: LinearInput,
        y: &Buffer<f32>,
    ) -> Result<(), PlanError> {
        let LayerCache::Recurrent { conv, state } = slot else {
            return Err(b.wrong_slot("kda_step", "state", slot.kind()));
        };
        let (arena, tokens) = (b.scratch(), b.tokens());
        let t = tokens as usize;
        let width = s.heads * s.dim;
        let stride = self.input.rows();
        let all = arena.take(t * stride, "kda projections")?;
        self.input.matvec(b, "q, k, v, decay, gate, beta", &x, &all)?;
        drop(x);
        // Views of one token's columns in every token's row.
        let columns = |from: u32, len: u32| -> Result<Buffer<f32>, PlanError> {
            let from = from as usize;
            Ok(all.slice(from..from + (t - 1) * stride + len as usize)?)
        };
        let qkv = arena.take(t * 3 * width as usize, "convolved q, k, v")?;
        let launch = kda::conv_silu(
            &columns(0, 3 * width)?,
            &self.conv,
            conv,
            position,
            &qkv,
            3 * width,
            s.taps,
            tokens,
            stride as u32,
        );
        b.push("conv", launch)?;
        let low = LinearInput::strided(columns(3 * width, s.rank)?, tokens, s.rank, stride as u32);
        let decay = arena.take(t * width as usize, "decay")?;
        let launch = matvec(b, &self.decay, &low, None, &decay);
        b.push("decay", launch)?;
        drop(low);
        let from = 3 * width + s.rank;
        let low = LinearInput::strided(columns(from, s.rank)?, tokens, s.rank, stride as u32);
        let gate = arena.take(t * width as usize, "gate")?;
        let launch = matvec(b, &self.gate, &low, None, &gate);
        b.push("gate", launch)?;
        drop(low);
        let beta = columns(from + s.rank, s.heads)?;
        let read = arena.take(t * width as usize, "kda output")?;
        let args = StepArgs { qkv: &qkv, decay: &decay, beta: &beta, gate: &gate, state, position, y: &read };
        b.push("delta rule", self.step(s, args, tokens, stride as u32))?;
        drop((all, beta, qkv, decay, gate));
        let input = LinearInput::plain(read, tokens);
        let launch = matvec(b, &self.output, &input, None, y);
        b.push("output", launch)?;
        Ok(())
    }

    fn step(&self, s: &KdaShape, a: StepArgs<'_>, tokens: u32, stride: u32) -> Result<Launch, LaunchError> {
        macro_rules! call {
            ($kernel:ident) => {
                kda::$kernel(
                    a.qkv,
                    a.decay,
                    &self.dt_bias,
                    &self.a_log,
                    a.beta,
                    a.gate,
                    &self.out_norm,
                    a.state,
                    a.position,
                    a.y,
                    s.heads,
                    s.bound.unwrap_or(0.0),
                    u32::from(s.bound.is_some()),
                    s.eps,
                    tokens,
                    stride,
                )
            };
        }
        match s.dim {
            32 => call!(kda_step_32),
            64 => call!(kda_step_64),
            128 => call!(kda_step_128),
            dim => Err(LaunchError {
                kernel: "kda_step",
                argument: "state",
                reason: format!("heads of {dim}: kernels exist for 32, 64 and 128"),
            }),
        }
    }

    /// Bytes of the weights.
    pub fn bytes(&self) -> u64 {
        let vectors = [&self.conv, &self.dt_bias, &self.a_log, &self.out_norm];
        let matrices = [&self.decay, &self.gate, &self.output];
        self.input.bytes()
            + vectors.iter().map(|v| v.bytes() as u64).sum::<u64>()
            + matrices.iter().map(|m| m.bytes()).sum::<u64>()
    }
}

struct StepArgs<'a> {
    qkv: &'a Buffer<f32>,
    decay: &'a Buffer<f32>,
    beta: &'a Buffer<f32>,
    gate: &'a Buffer<f32>,
    state: &'a Buffer<f32>,
    position: &'a Counter,
    y: &'a Buffer<f32>,
}
