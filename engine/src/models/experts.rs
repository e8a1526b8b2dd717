//! Routed experts: a router, experts of which a few are run for a token, and one that always is.
//!
//! Two arms with the same bits. The *device* arm runs all selected experts as rows of one pair of kernels; the *host-oracle*
//! arm reads the selection back and launches the dense kernels expert by expert. Both write one row a selected expert, in
//! ascending id, and the rows are combined by one kernel.

use super::ffn::SwiGlu;
use super::linear::{LinearInput, by_format, matvec, matvec_swiglu, share, wants_i16};
use super::walk::{BodyBuilder, Segment};
use crate::cache::RouteSlot;
use crate::device::Buffer;
use crate::engine::Engine;
use crate::kernel::{BF16, F16, F32, Launch, LaunchError, NVFP4, RawTensor, TensorFormat};
use crate::kernels::matvec::Share;
use crate::kernels::{experts as kernels, router};
use crate::options::ExpertArm;
use crate::plan::{Arena, PlanBuilder, PlanError, Scratch};

/// The constants of a model's routed layers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RoutedShape {
    /// Width of the model.
    pub hidden: u32,
    /// Width of an expert.
    pub inter: u32,
    /// Experts.
    pub experts: u32,
    /// Experts selected for a token.
    pub selected: u32,
    /// What the weights are scaled by.
    pub scaling: f32,
    /// Whether the selected weights are normalised to a sum of one, before they are scaled.
    pub normalise: bool,
    /// The activation's clamp; +∞ for none.
    pub limit: f32,
}

/// The weights of one routed layer.
#[derive(Debug, Clone)]
pub struct Routed {
    /// `[experts, hidden]`.
    pub router: RawTensor,
    /// Added to the scores for the selection alone, `[experts]`.
    pub bias: Buffer<f32>,
    /// For each expert its gate above its up: `[experts·2·inter, hidden]`.
    pub gate_up: RawTensor,
    /// `[experts·hidden, inter]`.
    pub down: RawTensor,
    /// The expert that every token passes through.
    pub shared: Option<SwiGlu>,
}

impl Routed {
    /// Appends `y = Σ wᵢ·expertᵢ(x) + shared(x)`.
    pub(super) fn push(
        &self,
        b: &mut BodyBuilder<'_>,
        s: &RoutedShape,
        slot: &RouteSlot,
        x: Scratch<f32>,
        y: &Buffer<f32>,
    ) -> Result<(), PlanError> {
        let (arena, tokens) = (b.scratch(), b.tokens());
        let (t, k) = (tokens as usize, s.selected as usize);
        let x = LinearInput::plain(x, tokens);
        let logits = arena.take(t * s.experts as usize, "router logits")?;
        let launch = matvec(b, &self.router, &x, None, &logits);
        b.push("router", launch)?;
        let (ids, weights) = (slot.ids.slice(..t * k)?, slot.weights.slice(..t * k)?);
        let launch = router::router_topk(
            &logits,
            &self.bias,
            &ids,
            &weights,
            s.experts,
            s.selected,
            s.scaling,
            u32::from(s.normalise),
            tokens,
        );
        b.push("router top-k", launch)?;
        drop(logits);
        b.probe_indices("router_idx", &ids, &[s.selected]);
        b.probe("router_weight", &weights, &[s.selected]);

        let shared = match &self.shared {
            None => None,
            Some(net) => {
                let out = arena.take(t * s.hidden as usize, "shared expert")?;
                net.push(b, &x, None, &out)?;
                Some(out)
            }
        };
        let act = arena.take(t * k * s.inter as usize, "expert activations")?;
        let rows = arena.take(t * k * s.hidden as usize, "expert outputs")?;
        match b.engine().options().experts {
            ExpertArm::Device => {
                gate_up(b, &self.gate_up, s, &ids, &x, &act)?;
                let act = LinearInput::plain(act, tokens * s.selected);
                down(b, &self.down, s, &ids, &act, &rows, tokens)?;
            }
            ExpertArm::HostOracle => {
                let arm = HostExperts {
                    routed: self.clone(),
                    shape: *s,
                    layer: b.current_layer(),
                    ids: ids.clone(),
                    x: x.clone(),
                    act: act.clone(),
                    rows: rows.clone(),
                    tokens,
                };
                b.interrupt(Segment::HostExperts(Box::new(arm)));
                b.written_elsewhere(&rows);
            }
        }
        drop(x);
        let launch =
            kernels::experts_combine(&rows, &weights, shared.as_deref(), y, s.hidden, s.selected, tokens);
        b.push("experts combine", launch)?;
        Ok(())
    }

    /// Bytes of the weights.
    pub fn bytes(&self) -> u64 {
        let matrices = [&self.router, &self.gate_up, &self.down].map(RawTensor::bytes);
        matrices.iter().sum::<u64>()
            + self.bias.bytes() as u64
            + self.shared.as_ref().map_or(0, SwiGlu::bytes)
    }
}

fn gate_up(
    b: &mut PlanBuilder<'_>,
    w: &RawTensor,
    s: &RoutedShape,
    ids: &Buffer<u32>,
    x: &LinearInput,
    act: &Buffer<f32>,
) -> Result<(), PlanError> {
    let (rows, cols, experts, k, limit, tokens) =
        (s.inter, s.hidden, s.experts, s.selected, s.limit, x.tokens());
    let Share { blocks, threads, .. } = share(b, w, rows, (tokens, k));
    let int16 = if wants_i16(b, w) { Some(x.quantised(b)?) } else { None };
    let launch = if let Some(x) = &int16 {
        by_format!(w, (ids, &x.q, &x.scale, act, rows, cols, experts, k, limit, tokens, blocks, threads),
            NVFP4 => kernels::experts_gate_up_i16_nvfp4)
    } else {
        by_format!(w, (ids, x.rows(), act, rows, cols, experts, k, limit, tokens, blocks, threads),
            F32 => kernels::experts_gate_up_f32, F16 => kernels::experts_gate_up_f16,
            BF16 => kernels::experts_gate_up_bf16, NVFP4 => kernels::experts_gate_up_nvfp4)
    };
    b.push("experts gate, up", launch)?;
    Ok(())
}

fn down(
    b: &mut PlanBuilder<'_>,
    w: &RawTensor,
    s: &RoutedShape,
    ids: &Buffer<u32>,
    act: &LinearInput,
    y: &Buffer<f32>,
    tokens: u32,
) -> Result<(), PlanError> {
    let (rows, cols, experts, k) = (s.hidden, s.inter, s.experts, s.selected);
    let Share { blocks, threads, .. } = share(b, w, rows, (tokens, k));
    let int16 = if wants_i16(b, w) { Some(act.quantised(b)?) } else { None };
    let launch = if let Some(act) = &int16 {
        by_format!(w, (ids, &act.q, &act.scale, y, rows, cols, experts, k, tokens, blocks, threads),
            NVFP4 => kernels::experts_down_i16_nvfp4)
    } else {
        by_format!(w, (ids, act.rows(), y, rows, cols, experts, k, tokens, blocks, threads),
            F32 => kernels::experts_down_f32, F16 => kernels::experts_down_f16, BF16 => kernels::experts_down_bf16,
            NVFP4 => kernels::experts_down_nvfp4)
    };
    b.push("experts down", launch)?;
    Ok(())
}

/// The experts of one layer, launched one by one for the selection that the device's router made.
#[derive(Debug, Clone)]
pub struct HostExperts {
    routed: Routed,
    shape: RoutedShape,
    layer: Option<u32>,
    /// `[tokens, selected]`.
    ids: Buffer<u32>,
    x: LinearInput,
    /// `[tokens, selected, inter]`.
    act: Buffer<f32>,
    /// `[tokens, selected, hidden]`.
    rows: Buffer<f32>,
    tokens: u32,
}

impl HostExperts {
    /// Reads the selection and runs its experts.
    ///
    /// # Errors
    /// An id that is no expert's; what the device says.
    pub fn run(&self, engine: &Engine) -> Result<(), PlanError> {
        let s = &self.shape;
        let mut ids = vec![0_u32; self.ids.len()];
        engine.stream().read(&self.ids, &mut ids)?;
        let arena = Arena::new(engine.device());
        let mut b = PlanBuilder::new(engine, &arena, "host-oracle experts");
        b.layer(self.layer);
        for (row, &id) in ids.iter().enumerate() {
            if id >= s.experts {
                let reason =
                    format!("row {row} of the selection is expert {id}, and there are {}", s.experts);
                let refused: Result<Launch, _> =
                    Err(LaunchError { kernel: "router_topk", argument: "ids", reason });
                b.push("host-oracle experts", refused)?;
            }
            let (inter, hidden) = (s.inter as usize, s.hidden as usize);
            let x = self.x.row(row / s.selected as usize)?;
            let act = self.act.slice(row * inter..(row + 1) * inter)?;
            let y = self.rows.slice(row * hidden..(row + 1) * hidden)?;
            let id = u64::from(id);
            let inter = u64::from(s.inter);
            let gate_up = self.routed.gate_up.row_range(id * 2 * inter, 2 * inter)?;
            let launch = matvec_swiglu(&b, &gate_up, &x, s.limit, &act);
            b.push("expert gate, up", launch)?;
            let rows = self.routed.down.row_range(id * u64::from(s.hidden), u64::from(s.hidden))?;
            let act = LinearInput::borrowed(act, 1);
            let launch = matvec(&b, &rows, &act, None, &y);
            b.push("expert down", launch)?;
        }
        b.finish().run(engine.stream())
    }

    /// The layer.
    pub fn layer(&self) -> Option<u32> {
        self.layer
    }

    /// Tokens of the chunk.
    pub fn tokens(&self) -> u32 {
        self.tokens
    }
}
