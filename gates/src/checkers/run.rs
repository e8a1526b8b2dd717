//! Runs a case of the corpus: on a simulated machine for the fault, on any device for what it writes.

use anyhow::{Context, Result};
use bitwalk::device::{Buffer, Device, LaunchParams, ParamAccess};
use bitwalk_kernels::PtxModule;
use ptx_sim::{Checks, ExecOptions, Fault, LaunchConfig, Memory, Module, PointerAccess};

use super::cases::{Case, Input, WORDS};

/// Far above what a case executes: one that spins for ever ends here.
const BUDGET: u64 = 10_000_000;

/// The module of a case.
///
/// # Errors
/// If the corpus has none of that name.
pub(super) fn module(case: &Case) -> Result<&'static PtxModule> {
    let found = bitwalk_kernels::corpus().iter().find(|module| module.name == case.module);
    found.with_context(|| format!("the corpus has no module {}", case.module))
}

/// The words of `in`: different, small, and in no order.
fn input() -> Vec<u32> {
    (0..WORDS as u32).map(|i| i.wrapping_mul(37) % 1009).collect()
}

/// What the simulated machine makes of a case, whose module has the text `ptx`: the contents of `out` and `state`, or the fault.
///
/// # Errors
/// Text that is not PTX, memory that cannot be had.
pub(super) fn simulate(case: &Case, ptx: &str, checks: Checks) -> Result<Result<Vec<u8>, Fault>> {
    let module = Module::parse(case.module, ptx)?;
    let memory = Memory::new();
    memory.track_values();
    let bytes = 4 * WORDS as u64;
    let words = bytemuck::cast_slice::<u32, u8>(&input()).to_vec();
    let first = memory.allocate(0, bytes, "in")?;
    match case.input {
        Input::HalfWritten => memory.write(first, &words[..words.len() / 2])?,
        Input::Written | Input::Freed => memory.write(first, &words)?,
    }
    let [second, third] = ["out", "state"].map(|name| {
        let address = memory.allocate(0, bytes, name)?;
        memory.fill(address, 0, bytes)?;
        anyhow::Ok(address)
    });
    let (second, third) = (if case.in_place { first } else { second? }, third?);
    if case.input == Input::Freed {
        memory.free(first)?;
    }
    let arguments: Vec<u8> =
        [first, second, third].iter().flat_map(|address| address.to_le_bytes()).collect();
    let launch = |name: &str, access: &[PointerAccess], programmatic: bool| {
        let kernel = module.entry(name).with_context(|| format!("{} has no kernel {name}", case.module))?;
        let config = LaunchConfig {
            kernel,
            grid: [case.blocks, 1, 1],
            block: [case.threads, 1, 1],
            dynamic_shared: 0,
            params: &arguments,
            device: 0,
            access,
            cooperative: case.cooperative,
            programmatic,
        };
        let options = ExecOptions { checks, budget: Some(BUDGET), ..ExecOptions::default() };
        anyhow::Ok(ptx_sim::exec::run(&memory, &config, &options))
    };
    if let Some(before) = case.after {
        launch(before, &[], false)?.with_context(|| format!("{before}, ahead of {}", case.kernel))?;
    }
    let access = [0, 1, 2].map(|i| {
        let (param, access) = (i as u16, case.access[i]);
        PointerAccess { param, access, bytes: case.bytes }
    });
    if let Err(fault) = launch(case.kernel, &access, case.after.is_some())? {
        return Ok(Err(fault));
    }
    let mut contents = vec![0; 2 * bytes as usize];
    let (out, state) = contents.split_at_mut(bytes as usize);
    memory.read(second, out)?;
    memory.read(third, state)?;
    Ok(Ok(contents))
}

/// Launches a case on a device and waits for it; the contents of `out` and `state`. A kernel that a tool is to look at may well
/// leave nothing that means anything.
///
/// # Errors
/// What the device says: of a kernel that does what it must not, maybe only here, maybe nothing.
pub(super) fn launch(case: &Case, device: &Device) -> Result<Vec<u8>> {
    let ptx = module(case)?;
    let module = device.load_module(ptx.name, ptx.text)?;
    let stream = device.stream()?;
    let words = input();
    let mut first = Some(Buffer::<u32>::new(device, WORDS, "in")?);
    let (out, state) =
        (Buffer::<u32>::new(device, WORDS, "out")?, Buffer::<u32>::new(device, WORDS, "state")?);
    stream.fill(&out, 0)?;
    stream.fill(&state, 0)?;
    let address = first.as_ref().map_or(0, Buffer::address);
    if let Some(buffer) = &first {
        let written = if case.input == Input::HalfWritten { WORDS / 2 } else { WORDS };
        stream.write(&buffer.slice(..written)?, &words[..written])?;
    }
    stream.synchronize()?;
    if case.input == Input::Freed {
        first = None;
    }
    let second = if case.in_place { address } else { out.address() };
    let arguments: Vec<u8> =
        [address, second, state.address()].iter().flat_map(|address| address.to_le_bytes()).collect();
    let go = |name: &str, access: &[ParamAccess], programmatic: bool| {
        let params = LaunchParams {
            grid: [case.blocks, 1, 1],
            block: [case.threads, 1, 1],
            shared: 0,
            args: &arguments,
            access,
            cooperative: case.cooperative,
            programmatic,
        };
        anyhow::Ok(stream.launch(&module.function(name)?, &params)?)
    };
    if let Some(before) = case.after {
        go(before, &[], false)?;
    }
    go(case.kernel, &[], case.after.is_some())?;
    stream.synchronize()?;
    let mut contents = vec![0; 2 * WORDS];
    let (a, b) = contents.split_at_mut(WORDS);
    stream.read(if case.in_place { first.as_ref().unwrap_or(&out) } else { &out }, a)?;
    stream.read(&state, b)?;
    Ok(bytemuck::cast_slice(&contents).to_vec())
}
