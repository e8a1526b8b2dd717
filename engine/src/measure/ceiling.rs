//! How fast a device reads its memory: what the share of a ceiling is a share of.

use crate::device::{Buffer, DeviceKind};
use crate::engine::Engine;
use crate::kernels::ceiling::read_only;
use crate::plan::{Arena, PlanBuilder, PlanError};

/// Passes; the fastest one counts.
const PASSES: usize = 10;

/// Bytes read in a pass on a GPU, if they are free: far more than any cache holds.
pub const CEILING_BYTES: u64 = 4 << 30;
/// The same on the simulated device, whose rate is that of an interpreter.
const SIMULATED_BYTES: u64 = 4 << 20;

/// Bytes a second of reading memory once with 16-byte loads, by the fastest of ten passes, each timed by events on the device.
/// On the simulated device it is the interpreter's rate, of no meaning for a GPU.
///
/// # Errors
/// Out of memory; what the device says.
pub fn read_only_rate(engine: &Engine) -> Result<f64, PlanError> {
    let (free, _) = engine.device().memory_info()?;
    let (most, blocks) = match engine.device().info().kind {
        DeviceKind::Cuda => (CEILING_BYTES, engine.device().info().sm_count * 8),
        DeviceKind::Sim => (SIMULATED_BYTES, 8),
    };
    let quads = (free / 2).min(most) / 16;
    let words: Buffer<u32> = engine.uninit(4 * quads as usize, "memory to read")?;
    engine.stream().fill(&words, 0)?;
    let folded: Buffer<u32> = engine.uninit(blocks as usize, "folded")?;
    let mut b = PlanBuilder::new(engine, &Arena::new(engine.device()), "ceiling");
    b.push("read", read_only(&words, &folded, quads as u32, blocks))?;
    let plan = b.finish();
    let (start, end) = (engine.device().event()?, engine.device().event()?);
    let mut best = f32::INFINITY;
    for _ in 0..PASSES {
        engine.stream().record(&start)?;
        plan.run(engine.stream())?;
        engine.stream().record(&end)?;
        best = best.min(end.elapsed_ms(&start)?);
    }
    Ok(words.bytes() as f64 / (f64::from(best) * 1e-3))
}
