//! Linear layers in a plan: which kernel serves a weight format under an activation program.

use crate::device::{Buffer, DeviceError};
use crate::kernel::{BF16, F16, F32, Launch, LaunchError, NVFP4, Q4_0, Q4_1, Q8_0, RawTensor, TensorFormat};
use crate::kernels::{matvec, norm};
use crate::options::Activations;
use crate::plan::{Arena, PlanBuilder, PlanError, Scratch};

/// What linear layers read, in the forms that their weights ask for.
#[derive(Debug)]
pub struct LinearInput {
    float: Option<Scratch<f32>>,
    i16: Option<(Scratch<i16>, Scratch<f32>)>,
}

fn wants_i16(b: &PlanBuilder<'_>, weight: &RawTensor) -> bool {
    b.engine().options().activations == Activations::I16 && weight.format().is_integer()
}

fn i16_scratch(arena: &Arena, cols: usize) -> Result<(Scratch<i16>, Scratch<f32>), DeviceError> {
    Ok((arena.take(cols, "int16 activations")?, arena.take(cols.div_ceil(32), "int16 scales")?))
}

impl LinearInput {
    /// RMSNorm of `x` (f32, `cols`), in the forms that `consumers` read.
    pub fn normed(
        b: &mut PlanBuilder<'_>,
        arena: &Arena,
        what: &'static str,
        (x, weight, eps): (&Buffer<f32>, &Buffer<f32>, f32),
        consumers: &[&RawTensor],
    ) -> Result<LinearInput, PlanError> {
        let cols = x.len();
        let mut input = LinearInput { float: None, i16: None };
        if consumers.iter().any(|w| !wants_i16(b, w)) {
            let y = arena.take(cols, "normed")?;
            b.push(what, norm::rms_norm(x, weight, &y, cols as u32, eps, 1, cols as u32))?;
            input.float = Some(y);
        }
        if consumers.iter().any(|w| wants_i16(b, w)) {
            let (q, scale) = i16_scratch(arena, cols)?;
            b.push(what, norm::rms_norm_i16(x, weight, &q, &scale, cols as u32, eps, 1, cols as u32))?;
            input.i16 = Some((q, scale));
        }
        Ok(input)
    }

    /// `x` as it is, in the forms that `consumers` read.
    pub fn plain(
        b: &mut PlanBuilder<'_>,
        arena: &Arena,
        what: &'static str,
        x: Scratch<f32>,
        consumers: &[&RawTensor],
    ) -> Result<LinearInput, PlanError> {
        let cols = x.len();
        let mut input = LinearInput { float: None, i16: None };
        if consumers.iter().any(|w| wants_i16(b, w)) {
            let (q, scale) = i16_scratch(arena, cols)?;
            b.push(what, norm::quantise_i16(&x, &q, &scale, cols as u32, 1, cols as u32))?;
            input.i16 = Some((q, scale));
        }
        // Kept to the end of the consumers' lifetime also where only the int16 form is read: its memory must not be
        // handed out before the quantising launch has been pushed, which it has here; so it can go.
        if consumers.iter().any(|w| !wants_i16(b, w)) {
            input.float = Some(x);
        }
        Ok(input)
    }

    fn float(&self) -> Result<&Buffer<f32>, LaunchError> {
        self.float.as_deref().ok_or_else(|| missing("f32"))
    }

    fn i16(&self) -> Result<(&Buffer<i16>, &Buffer<f32>), LaunchError> {
        self.i16.as_ref().map(|(q, scale)| (&**q, &**scale)).ok_or_else(|| missing("int16"))
    }
}

fn missing(form: &str) -> LaunchError {
    let reason = format!("no {form} form was made: the layer was not named among the input's consumers");
    LaunchError { kernel: "matvec", argument: "x", reason }
}

fn unfit(weight: &RawTensor) -> LaunchError {
    let reason = format!("no kernel for weights of {}", weight.format());
    LaunchError { kernel: "matvec", argument: "w", reason }
}

/// Calls the kernel for the weight's format with the typed tensor and the arguments in brackets.
macro_rules! by_format {
    ($weight:expr, $args:tt, $($format:ident => $kernel:path),*) => {
        match $weight.format() {
            $(TensorFormat::$format => match $weight.typed::<$format>() {
                Some(w) => by_format!(@call $kernel, w, $args),
                None => Err(unfit($weight)),
            },)*
            #[allow(unreachable_patterns)] // where every format is listed
            _ => Err(unfit($weight)),
        }
    };
    (@call $kernel:path, $w:ident, ($($arg:expr),*)) => { $kernel(&$w, $($arg),*) };
}

/// `y = W·x`, plus `residual` where there is one; `W` is `[rows, cols]`.
pub fn matvec(
    b: &PlanBuilder<'_>,
    weight: &RawTensor,
    x: &LinearInput,
    residual: Option<&Buffer<f32>>,
    y: &Buffer<f32>,
) -> Result<Launch, LaunchError> {
    let (rows, cols) = (weight.rows() as u32, weight.cols() as u32);
    if wants_i16(b, weight) {
        let (q, scale) = x.i16()?;
        return by_format!(weight, (q, scale, residual, y, rows, cols, 1), Q8_0 => matvec::matvec_i16_q8_0, Q4_0 => matvec::matvec_i16_q4_0,
            Q4_1 => matvec::matvec_i16_q4_1, NVFP4 => matvec::matvec_i16_nvfp4);
    }
    let x = x.float()?;
    by_format!(weight, (x, residual, y, rows, cols, 1, cols), F32 => matvec::matvec_f32, F16 => matvec::matvec_f16, BF16 => matvec::matvec_bf16,
        Q8_0 => matvec::matvec_q8_0, Q4_0 => matvec::matvec_q4_0, Q4_1 => matvec::matvec_q4_1, NVFP4 => matvec::matvec_nvfp4)
}

/// `y[r] = silu(W[r]·x) · (W[rows + r]·x)`; `W` is `[2·rows, cols]`, gate above up.
pub fn matvec_swiglu(
    b: &PlanBuilder<'_>,
    weight: &RawTensor,
    x: &LinearInput,
    y: &Buffer<f32>,
) -> Result<Launch, LaunchError> {
    let (rows, cols) = ((weight.rows() / 2) as u32, weight.cols() as u32);
    if wants_i16(b, weight) {
        let (q, scale) = x.i16()?;
        return by_format!(weight, (q, scale, y, rows, cols, f32::INFINITY, 1), Q8_0 => matvec::matvec_swiglu_i16_q8_0, Q4_0 => matvec::matvec_swiglu_i16_q4_0,
            Q4_1 => matvec::matvec_swiglu_i16_q4_1, NVFP4 => matvec::matvec_swiglu_i16_nvfp4);
    }
    let x = x.float()?;
    by_format!(weight, (x, y, rows, cols, f32::INFINITY, 1), F32 => matvec::matvec_swiglu_f32, F16 => matvec::matvec_swiglu_f16,
        BF16 => matvec::matvec_swiglu_bf16, Q8_0 => matvec::matvec_swiglu_q8_0, Q4_0 => matvec::matvec_swiglu_q4_0,
        Q4_1 => matvec::matvec_swiglu_q4_1, NVFP4 => matvec::matvec_swiglu_nvfp4)
}

/// Rows that are read by one input: one matrix where their formats agree, else one for each.
#[derive(Debug)]
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

    /// `y = [W₀; W₁; …]·x`.
    pub fn matvec(
        &self,
        b: &mut PlanBuilder<'_>,
        what: &'static str,
        x: &LinearInput,
        y: &Buffer<f32>,
    ) -> Result<(), PlanError> {
        let mut row = 0;
        for weight in &self.0 {
            let rows = weight.rows() as usize;
            let part = y.slice(row..row + rows)?;
            let launch = matvec(b, weight, x, None, &part);
            b.push(what, launch)?;
            row += rows;
        }
        Ok(())
    }
}
