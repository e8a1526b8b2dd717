//! Linear layers in a plan: which kernel serves a weight format under an activation program.

use crate::device::{Buffer, DeviceError, DeviceKind};
use crate::kernel::{
    BF16, F16, F32, Launch, LaunchError, NVFP4, Q4_0, Q4_1, Q4_K, Q5_0, Q5_K, Q6_K, Q8_0, RawTensor,
    TensorFormat,
};
use crate::kernels::matvec::{RowWalk, Share};
use crate::kernels::{matvec, norm};
use crate::options::Activations;
use crate::plan::{PlanBuilder, PlanError, Scratch};

/// What linear layers read, one float32 row a token, with the norm that they apply to it.
#[derive(Debug)]
pub struct LinearInput {
    rows: Buffer<f32>,
    /// Elements from a row to the next.
    stride: u32,
    tokens: u32,
    cols: u32,
    norm: Option<(Buffer<f32>, f32)>,
    /// Given back with the input.
    _held: Option<Scratch<f32>>,
}

/// Rows as int16 with a scale for each 32 columns, contiguous: what the experts' kernels of program `i16` read.
#[derive(Debug)]
pub(super) struct Int16Rows {
    pub q: Scratch<i16>,
    pub scale: Scratch<f32>,
}

impl Clone for LinearInput {
    /// A view: the scratch stays with the original.
    fn clone(&self) -> Self {
        LinearInput { rows: self.rows.clone(), norm: self.norm.clone(), _held: None, ..*self }
    }
}

/// Whether `weight` is multiplied in integers under the engine's program.
pub(super) fn wants_i16(b: &PlanBuilder<'_>, weight: &RawTensor) -> bool {
    b.engine().options().activations == Activations::I16 && weight.format().is_integer()
}

impl LinearInput {
    /// `x`, `[tokens, cols]`, under an RMSNorm of `weight`, `[cols]`: the kernels that read it apply it.
    pub fn normed(x: &Buffer<f32>, weight: &Buffer<f32>, eps: f32) -> LinearInput {
        LinearInput::borrowed(x.clone(), (x.len() / weight.len()) as u32).under(weight, eps)
    }

    /// `x`, `[tokens, cols]`, as it is.
    pub fn plain(x: Scratch<f32>, tokens: u32) -> LinearInput {
        let rows = (*x).clone();
        LinearInput { _held: Some(x), ..LinearInput::borrowed(rows, tokens) }
    }

    /// [`LinearInput::plain`] of rows that someone else keeps.
    pub fn borrowed(x: Buffer<f32>, tokens: u32) -> LinearInput {
        let cols = x.len() as u32 / tokens.max(1);
        LinearInput::strided(x, tokens, cols, cols)
    }

    /// Columns of a stacked projection's output: `tokens` rows of `cols`, `stride` apart.
    pub fn strided(rows: Buffer<f32>, tokens: u32, cols: u32, stride: u32) -> LinearInput {
        LinearInput { rows, stride, tokens, cols, norm: None, _held: None }
    }

    /// The same under an RMSNorm of `weight`, `[cols]`.
    pub fn under(mut self, weight: &Buffer<f32>, eps: f32) -> LinearInput {
        self.norm = Some((weight.clone(), eps));
        self
    }

    /// Rows.
    pub fn tokens(&self) -> u32 {
        self.tokens
    }

    /// One token's row, kept by `self`.
    ///
    /// # Errors
    /// A row that is not there.
    pub fn row(&self, token: usize) -> Result<LinearInput, DeviceError> {
        let (from, cols) = (token * self.stride as usize, self.cols as usize);
        let rows = self.rows.slice(from..from + cols)?;
        Ok(LinearInput { rows, stride: self.cols, tokens: 1, norm: self.norm.clone(), _held: None, ..*self })
    }

    /// The rows, contiguous and without a norm.
    pub(super) fn rows(&self) -> &Buffer<f32> {
        debug_assert!(self.norm.is_none() && self.stride == self.cols, "kernels that take neither");
        &self.rows
    }

    /// The rows as int16.
    pub(super) fn quantised(&self, b: &mut PlanBuilder<'_>) -> Result<Int16Rows, PlanError> {
        let (arena, tokens, cols) = (b.arena(), self.tokens as usize, self.cols as usize);
        let q = arena.take(tokens * cols, "int16 activations")?;
        let scale = arena.take(tokens * cols.div_ceil(32), "int16 scales")?;
        b.push("quantise", norm::quantise_i16(&self.rows, &q, &scale, self.cols, self.tokens, self.stride))?;
        Ok(Int16Rows { q, scale })
    }

    pub(super) fn norm(&self) -> (Option<&Buffer<f32>>, f32) {
        self.norm.as_ref().map_or((None, 0.0), |(weight, eps)| (Some(weight), *eps))
    }
}

/// How many blocks share `tasks` tasks, and their threads, where a launch has such a product for each of `tokens` tokens and, of each
/// token, `places` of them. The simulated device gets as few blocks as fill its threads: each prepares the activations for itself.
pub(super) fn share(
    b: &PlanBuilder<'_>,
    weight: &RawTensor,
    tasks: u32,
    (tokens, places): (u32, u32),
) -> Share {
    let walk = RowWalk::of(weight.format());
    let info = b.engine().device().info();
    let blocks = match info.kind {
        DeviceKind::Cuda => info.sm_count.min(tasks),
        DeviceKind::Sim => (tasks * walk.lanes).div_ceil(256).min(8).div_ceil(tokens.max(1)),
    };
    walk.share(tasks, blocks.div_ceil(places.max(1)), weight.cols() as u32, info.max_shared)
}

pub(super) fn unfit(weight: &RawTensor) -> LaunchError {
    let reason = format!("no kernel for weights of {}", weight.format());
    LaunchError { kernel: "matvec", argument: "w", reason }
}

/// Calls the kernel for the weight's format with the typed tensor and the arguments in brackets.
macro_rules! by_format {
    ($weight:expr, $args:tt, $($format:ident => $kernel:path),*) => {
        match $weight.format() {
            $(TensorFormat::$format => match $weight.typed::<$format>() {
                Some(w) => by_format!(@call $kernel, w, $args),
                None => Err($crate::models::linear::unfit($weight)),
            },)*
            #[allow(unreachable_patterns)] // where every format is listed
            _ => Err($crate::models::linear::unfit($weight)),
        }
    };
    (@call $kernel:path, $w:ident, ($($arg:expr),*)) => { $kernel(&$w, $($arg),*) };
}

pub(super) use by_format;

/// `y = W·x` for every row of `x`, plus `residual` where there is one; `W` is `[rows, cols]`.
pub fn matvec(
    b: &PlanBuilder<'_>,
    weight: &RawTensor,
    x: &LinearInput,
    residual: Option<&Buffer<f32>>,
    y: &Buffer<f32>,
) -> Result<Launch, LaunchError> {
    let (rows, cols, tokens) = (weight.rows() as u32, weight.cols() as u32, x.tokens());
    let ((norm, eps), Share { blocks, threads, room }) = (x.norm(), share(b, weight, rows, (tokens, 1)));
    let (x, stride) = (&x.rows, x.stride);
    if wants_i16(b, weight) {
        return by_format!(weight, (x, norm, eps, residual, y, rows, cols, tokens, stride, blocks, threads, room),
            Q8_0 => matvec::matvec_i16_q8_0, Q4_0 => matvec::matvec_i16_q4_0, Q4_1 => matvec::matvec_i16_q4_1,
            NVFP4 => matvec::matvec_i16_nvfp4,
            Q5_0 => matvec::matvec_i16_q5_0, Q4_K => matvec::matvec_i16_q4_k, Q5_K => matvec::matvec_i16_q5_k,
            Q6_K => matvec::matvec_i16_q6_k);
    }
    by_format!(weight, (x, norm, eps, residual, y, rows, cols, tokens, stride, blocks, threads, room), F32 => matvec::matvec_f32,
        F16 => matvec::matvec_f16, BF16 => matvec::matvec_bf16, Q8_0 => matvec::matvec_q8_0, Q4_0 => matvec::matvec_q4_0,
        Q4_1 => matvec::matvec_q4_1, NVFP4 => matvec::matvec_nvfp4,
        Q5_0 => matvec::matvec_q5_0, Q4_K => matvec::matvec_q4_k, Q5_K => matvec::matvec_q5_k,
        Q6_K => matvec::matvec_q6_k)
}

/// `y[r] = silu(min(W[r]·x, limit)) · clamp(W[rows + r]·x, ±limit)` for every row of `x`; `W` is `[2·rows, cols]`, gate above up.
pub fn matvec_swiglu(
    b: &PlanBuilder<'_>,
    weight: &RawTensor,
    x: &LinearInput,
    limit: f32,
    y: &Buffer<f32>,
) -> Result<Launch, LaunchError> {
    let (rows, cols, tokens) = ((weight.rows() / 2) as u32, weight.cols() as u32, x.tokens());
    let ((norm, eps), Share { blocks, threads, room }) = (x.norm(), share(b, weight, rows, (tokens, 1)));
    let (x, stride) = (&x.rows, x.stride);
    if wants_i16(b, weight) {
        return by_format!(weight, (x, norm, eps, y, rows, cols, limit, tokens, stride, blocks, threads, room),
            Q8_0 => matvec::matvec_swiglu_i16_q8_0, Q4_0 => matvec::matvec_swiglu_i16_q4_0,
            Q4_1 => matvec::matvec_swiglu_i16_q4_1, NVFP4 => matvec::matvec_swiglu_i16_nvfp4,
            Q5_0 => matvec::matvec_swiglu_i16_q5_0, Q4_K => matvec::matvec_swiglu_i16_q4_k, Q5_K => matvec::matvec_swiglu_i16_q5_k,
            Q6_K => matvec::matvec_swiglu_i16_q6_k);
    }
    by_format!(weight, (x, norm, eps, y, rows, cols, limit, tokens, stride, blocks, threads, room),
        F32 => matvec::matvec_swiglu_f32, F16 => matvec::matvec_swiglu_f16, BF16 => matvec::matvec_swiglu_bf16,
        Q8_0 => matvec::matvec_swiglu_q8_0, Q4_0 => matvec::matvec_swiglu_q4_0, Q4_1 => matvec::matvec_swiglu_q4_1,
        NVFP4 => matvec::matvec_swiglu_nvfp4,
        Q5_0 => matvec::matvec_swiglu_q5_0, Q4_K => matvec::matvec_swiglu_q4_k, Q5_K => matvec::matvec_swiglu_q5_k,
        Q6_K => matvec::matvec_swiglu_q6_k)
}

/// Rows that are read by one input: one matrix where their formats agree, else one for each.
#[derive(Debug, Clone)]
pub struct Stacked(pub Vec<RawTensor>);

impl Stacked {
    /// The matrices.
    pub fn parts(&self) -> Vec<&RawTensor> {
        self.0.iter().collect()
    }

    /// Rows of all.
    pub fn rows(&self) -> usize {
        self.0.iter().map(|w| w.rows() as usize).sum()
    }

    /// Bytes of all.
    pub fn bytes(&self) -> u64 {
        self.0.iter().map(RawTensor::bytes).sum()
    }

    /// `y = [W₀; W₁; …]·x`, `[tokens, rows of all]`.
    pub fn matvec(
        &self,
        b: &mut PlanBuilder<'_>,
        what: &'static str,
        x: &LinearInput,
        y: &Buffer<f32>,
    ) -> Result<(), PlanError> {
        if let [weight] = &self.0[..] {
            let launch = matvec(b, weight, x, None, y);
            b.push(what, launch)?;
            return Ok(());
        }
        // A token's row is in as many parts as there are matrices, so each is written for one token at a time.
        for token in 0..x.tokens() as usize {
            let x = x.row(token)?;
            let mut at = token * self.rows();
            for weight in &self.0 {
                let rows = weight.rows() as usize;
                let launch = matvec(b, weight, &x, None, &y.slice(at..at + rows)?);
                b.push(what, launch)?;
                at += rows;
            }
        }
        Ok(())
    }
}
