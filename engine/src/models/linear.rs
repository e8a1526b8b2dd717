//! Linear layers in a plan: which kernel serves a weight format under an activation program.

use crate::device::{Buffer, DeviceError};
use crate::kernel::{
    BF16, F16, F32, Launch, LaunchError, NVFP4, Q4_0, Q4_1, Q4_K, Q5_0, Q5_K, Q6_K, Q8_0, RawTensor,
    TensorFormat,
};
use crate::kernels::{matvec, norm};
use crate::options::Activations;
use crate::plan::{Arena, PlanBuilder, PlanError, Scratch};

/// What linear layers read, one row a token, in the forms that their weights ask for.
#[derive(Debug)]
pub struct LinearInput {
    float: Option<FloatRows>,
    i16: Option<Int16Rows>,
    tokens: u32,
    cols: u32,
}

/// float32 rows, `stride` apart.
#[derive(Debug)]
struct FloatRows {
    rows: Buffer<f32>,
    stride: u32,
    /// Given back with the input.
    held: Option<Scratch<f32>>,
}

/// int16 rows and their scales, contiguous.
#[derive(Debug)]
struct Int16Rows {
    q: Buffer<i16>,
    scale: Buffer<f32>,
    _held: Option<(Scratch<i16>, Scratch<f32>)>,
}

impl Clone for LinearInput {
    /// A view: the scratch stays with the original.
    fn clone(&self) -> Self {
        self.view()
    }
}

/// Whether `weight` is multiplied in integers under the engine's program.
pub(super) fn wants_i16(b: &PlanBuilder<'_>, weight: &RawTensor) -> bool {
    b.engine().options().activations == Activations::I16 && weight.format().is_integer()
}

/// The columns that all consumers have; their shapes were checked when they were loaded.
fn cols_of(consumers: &[&RawTensor]) -> u32 {
    consumers.first().map_or(0, |weight| weight.cols() as u32)
}

impl LinearInput {
    /// RMSNorm of `x` (f32, `[tokens, cols]`), in the forms that `consumers` read.
    pub fn normed(
        b: &mut PlanBuilder<'_>,
        arena: &Arena,
        what: &'static str,
        (x, weight, eps): (&Buffer<f32>, &Buffer<f32>, f32),
        consumers: &[&RawTensor],
    ) -> Result<LinearInput, PlanError> {
        let cols = weight.len() as u32;
        let tokens = x.len() as u32 / cols;
        let mut input = LinearInput { float: None, i16: None, tokens, cols };
        if consumers.iter().any(|w| !wants_i16(b, w)) {
            let y = arena.take(x.len(), "normed")?;
            b.push(what, norm::rms_norm(x, weight, &y, cols, eps, tokens, cols))?;
            input.float = Some(FloatRows { rows: y.clone(), stride: cols, held: Some(y) });
        }
        if consumers.iter().any(|w| wants_i16(b, w)) {
            let rows = Int16Rows::new(arena, tokens, cols)?;
            b.push(what, norm::rms_norm_i16(x, weight, &rows.q, &rows.scale, cols, eps, tokens, cols))?;
            input.i16 = Some(rows);
        }
        Ok(input)
    }

    /// `x` (f32, `[tokens, cols]`) as it is, in the forms that `consumers` read.
    pub fn plain(
        b: &mut PlanBuilder<'_>,
        arena: &Arena,
        what: &'static str,
        x: Scratch<f32>,
        consumers: &[&RawTensor],
    ) -> Result<LinearInput, PlanError> {
        let mut input = LinearInput::borrowed(b, arena, what, x.clone(), consumers)?;
        // Where only the int16 form is read, the floats can go: the launch that quantises them has been pushed.
        if let Some(float) = &mut input.float {
            float.held = Some(x);
        }
        Ok(input)
    }

    /// [`LinearInput::plain`] of rows that someone else keeps.
    pub fn borrowed(
        b: &mut PlanBuilder<'_>,
        arena: &Arena,
        what: &'static str,
        x: Buffer<f32>,
        consumers: &[&RawTensor],
    ) -> Result<LinearInput, PlanError> {
        let cols = cols_of(consumers);
        let tokens = x.len() as u32 / cols.max(1);
        LinearInput::strided(b, arena, what, (x, tokens, cols, cols), consumers)
    }

    /// Columns of a stacked projection's output: `tokens` rows of `cols`, `stride` apart.
    pub fn strided(
        b: &mut PlanBuilder<'_>,
        arena: &Arena,
        what: &'static str,
        (x, tokens, cols, stride): (Buffer<f32>, u32, u32, u32),
        consumers: &[&RawTensor],
    ) -> Result<LinearInput, PlanError> {
        let mut input = LinearInput { float: None, i16: None, tokens, cols };
        if consumers.iter().any(|w| wants_i16(b, w)) {
            let rows = Int16Rows::new(arena, tokens, cols)?;
            b.push(what, norm::quantise_i16(&x, &rows.q, &rows.scale, cols, tokens, stride))?;
            input.i16 = Some(rows);
        }
        if consumers.iter().any(|w| !wants_i16(b, w)) {
            input.float = Some(FloatRows { rows: x, stride, held: None });
        }
        Ok(input)
    }

    /// Rows.
    pub fn tokens(&self) -> u32 {
        self.tokens
    }

    /// The same rows, kept by `self`.
    pub fn view(&self) -> LinearInput {
        LinearInput {
            float: self.float.as_ref().map(|f| FloatRows {
                rows: f.rows.clone(),
                stride: f.stride,
                held: None,
            }),
            i16: self.i16.as_ref().map(|i| Int16Rows { q: i.q.clone(), scale: i.scale.clone(), _held: None }),
            ..*self
        }
    }

    /// One token's row, kept by `self`.
    ///
    /// # Errors
    /// A row that is not there.
    pub fn row(&self, token: usize) -> Result<LinearInput, DeviceError> {
        let cols = self.cols as usize;
        let mut row = LinearInput { float: None, i16: None, tokens: 1, cols: self.cols };
        if let Some(float) = &self.float {
            let from = token * float.stride as usize;
            row.float =
                Some(FloatRows { rows: float.rows.slice(from..from + cols)?, stride: self.cols, held: None });
        }
        if let Some(i16) = &self.i16 {
            let blocks = cols.div_ceil(32);
            row.i16 = Some(Int16Rows {
                q: i16.q.slice(token * cols..(token + 1) * cols)?,
                scale: i16.scale.slice(token * blocks..(token + 1) * blocks)?,
                _held: None,
            });
        }
        Ok(row)
    }

    /// The float rows and their stride.
    pub(super) fn float(&self) -> Result<(&Buffer<f32>, u32), LaunchError> {
        self.float.as_ref().map(|float| (&float.rows, float.stride)).ok_or_else(|| missing("f32"))
    }

    /// The int16 rows and their scales.
    pub(super) fn i16(&self) -> Result<(&Buffer<i16>, &Buffer<f32>), LaunchError> {
        self.i16.as_ref().map(|rows| (&rows.q, &rows.scale)).ok_or_else(|| missing("int16"))
    }
}

impl Int16Rows {
    fn new(arena: &Arena, tokens: u32, cols: u32) -> Result<Self, DeviceError> {
        let (tokens, cols) = (tokens as usize, cols as usize);
        let q = arena.take(tokens * cols, "int16 activations")?;
        let scale = arena.take(tokens * cols.div_ceil(32), "int16 scales")?;
        Ok(Int16Rows { q: q.clone(), scale: scale.clone(), _held: Some((q, scale)) })
    }
}

fn missing(form: &str) -> LaunchError {
    let reason = format!("no {form} form was made: the layer was not named among the input's consumers");
    LaunchError { kernel: "matvec", argument: "x", reason }
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
    if wants_i16(b, weight) {
        let (q, scale) = x.i16()?;
        return by_format!(weight, (q, scale, residual, y, rows, cols, tokens), Q8_0 => matvec::matvec_i16_q8_0,
            Q4_0 => matvec::matvec_i16_q4_0, Q4_1 => matvec::matvec_i16_q4_1, NVFP4 => matvec::matvec_i16_nvfp4, Q5_0 => matvec::matvec_i16_q5_0, Q4_K => matvec::matvec_i16_q4_k, Q5_K => matvec::matvec_i16_q5_k,
            Q6_K => matvec::matvec_i16_q6_k);
    }
    let (x, stride) = x.float()?;
    by_format!(weight, (x, residual, y, rows, cols, tokens, stride), F32 => matvec::matvec_f32, F16 => matvec::matvec_f16,
        BF16 => matvec::matvec_bf16, Q8_0 => matvec::matvec_q8_0, Q4_0 => matvec::matvec_q4_0, Q4_1 => matvec::matvec_q4_1,
        NVFP4 => matvec::matvec_nvfp4, Q5_0 => matvec::matvec_q5_0, Q4_K => matvec::matvec_q4_k, Q5_K => matvec::matvec_q5_k,
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
    if wants_i16(b, weight) {
        let (q, scale) = x.i16()?;
        return by_format!(weight, (q, scale, y, rows, cols, limit, tokens), Q8_0 => matvec::matvec_swiglu_i16_q8_0,
            Q4_0 => matvec::matvec_swiglu_i16_q4_0, Q4_1 => matvec::matvec_swiglu_i16_q4_1,
            NVFP4 => matvec::matvec_swiglu_i16_nvfp4, Q5_0 => matvec::matvec_swiglu_i16_q5_0, Q4_K => matvec::matvec_swiglu_i16_q4_k, Q5_K => matvec::matvec_swiglu_i16_q5_k,
            Q6_K => matvec::matvec_swiglu_i16_q6_k);
    }
    let (x, _) = x.float()?;
    by_format!(weight, (x, y, rows, cols, limit, tokens), F32 => matvec::matvec_swiglu_f32, F16 => matvec::matvec_swiglu_f16,
        BF16 => matvec::matvec_swiglu_bf16, Q8_0 => matvec::matvec_swiglu_q8_0, Q4_0 => matvec::matvec_swiglu_q4_0,
        Q4_1 => matvec::matvec_swiglu_q4_1, NVFP4 => matvec::matvec_swiglu_nvfp4, Q5_0 => matvec::matvec_swiglu_q5_0, Q4_K => matvec::matvec_swiglu_q4_k, Q5_K => matvec::matvec_swiglu_q5_k,
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
