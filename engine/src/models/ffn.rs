//! The gated feed-forward network.

use super::linear::{LinearInput, Stacked, matvec, matvec_swiglu};
use crate::device::Buffer;
use crate::kernel::RawTensor;
use crate::kernels::activation;
use crate::plan::{Arena, PlanBuilder, PlanError};

/// The weights of one dense SwiGLU network.
#[derive(Debug)]
pub struct DenseFfn {
    /// RMSNorm before it, `[hidden]`.
    pub norm: Buffer<f32>,
    /// Its epsilon.
    pub eps: f32,
    /// gate above up, `[2·ff, hidden]`; two matrices where their formats differ.
    pub gate_up: Stacked,
    /// `[hidden, ff]`.
    pub down: RawTensor,
}

impl DenseFfn {
    /// Appends `out = x + down(silu(gate(norm(x))) · up(norm(x)))`.
    pub fn push(
        &self,
        b: &mut PlanBuilder<'_>,
        arena: &Arena,
        x: &Buffer<f32>,
        out: &Buffer<f32>,
    ) -> Result<(), PlanError> {
        let input =
            LinearInput::normed(b, arena, "ffn norm", (x, &self.norm, self.eps), &self.gate_up.parts())?;
        let ff = self.down.cols() as usize;
        let act = arena.take(ff, "activation")?;
        if let [gate_up] = &self.gate_up.0[..] {
            let launch = matvec_swiglu(b, gate_up, &input, &act);
            b.push("gate, up", launch)?;
        } else {
            let both = arena.take(2 * ff, "gate and up")?;
            self.gate_up.matvec(b, "gate, up", &input, &both)?;
            let (gate, up) = (both.slice(..ff)?, both.slice(ff..)?);
            b.push("swiglu", activation::swiglu(&gate, &up, &act, ff as u32, f32::INFINITY, 1, ff as u32))?;
        }
        drop(input);
        let input = LinearInput::plain(b, arena, "quantise", act, &[&self.down])?;
        let launch = matvec(b, &self.down, &input, Some(x), out);
        b.push("down", launch)?;
        Ok(())
    }

    /// Bytes of the weights.
    pub fn bytes(&self) -> u64 {
        self.norm.bytes() as u64 + self.gate_up.bytes() + self.down.bytes()
    }
}
