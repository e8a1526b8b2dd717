//! Gated feed-forward networks.

use super::linear::{LinearInput, Stacked, matvec, matvec_swiglu};
use crate::device::Buffer;
use crate::kernel::RawTensor;
use crate::kernels::activation;
use crate::plan::{PlanBuilder, PlanError};

/// The weights of one SwiGLU network: `down(silu(min(gate(x), limit)) · clamp(up(x), ±limit))`.
#[derive(Debug, Clone)]
pub struct SwiGlu {
    /// gate above up, `[2·ff, hidden]`; two matrices where their formats differ.
    pub gate_up: Stacked,
    /// `[hidden, ff]`.
    pub down: RawTensor,
    /// The clamp; +∞ for none.
    pub limit: f32,
}

impl SwiGlu {
    /// Appends `y = (residual +) net(x)`;
    pub(super) fn push(
        &self,
        b: &mut PlanBuilder<'_>,
        x: &LinearInput,
        residual: Option<&Buffer<f32>>,
        y: &Buffer<f32>,
    ) -> Result<(), PlanError> {
        let (arena, tokens) = (b.arena(), x.tokens() as usize);
        let ff = self.down.cols() as usize;
        let act = arena.take(tokens * ff, "activation")?;
        if let [gate_up] = &self.gate_up.0[..] {
            let launch = matvec_swiglu(b, gate_up, x, self.limit, &act);
            b.push("gate, up", launch)?;
        } else {
            let both = arena.take(2 * tokens * ff, "gate and up")?;
            self.gate_up.matvec(b, "gate, up", x, &both)?;
            let stride = 2 * ff;
            let end = (tokens - 1) * stride + ff;
            let (gate, up) = (both.slice(..end)?, both.slice(ff..ff + end)?);
            let (n, count) = (ff as u32, x.tokens());
            b.push("swiglu", activation::swiglu(&gate, &up, &act, n, self.limit, count, stride as u32))?;
        }
        let input = LinearInput::plain(act, x.tokens());
        let launch = matvec(b, &self.down, &input, residual, y);
        b.push("down", launch)?;
        Ok(())
    }

    /// Bytes of the weights.
    pub fn bytes(&self) -> u64 {
        self.gate_up.bytes() + self.down.bytes()
    }
}

/// A SwiGLU network with the norm before it and the residual around it.
#[derive(Debug)]
pub struct DenseFfn {
    /// RMSNorm before it, `[hidden]`.
    pub norm: Buffer<f32>,
    /// Its epsilon.
    pub eps: f32,
    /// The network.
    pub net: SwiGlu,
}

impl DenseFfn {
    /// Appends `out = x + net(norm(x))`.
    pub(super) fn push(
        &self,
        b: &mut PlanBuilder<'_>,
        x: &Buffer<f32>,
        out: &Buffer<f32>,
    ) -> Result<(), PlanError> {
        self.net.push(b, &LinearInput::normed(x, &self.norm, self.eps), Some(x), out)
    }

    /// Bytes of the weights.
    pub fn bytes(&self) -> u64 {
        self.norm.bytes() as u64 + self.net.bytes()
    }
}
