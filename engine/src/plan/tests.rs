//! Plans over real kernels on the simulated device.

use super::*;
use crate::device::{Buffer, Device, DeviceSpec, GraphEdge};
use crate::kernels::{activation, norm};
use crate::options::EngineOptions;

fn engine() -> Engine {
    let spec: DeviceSpec = "sim".parse().unwrap();
    Engine::new(Device::open(spec).unwrap(), EngineOptions::default()).unwrap()
}

fn weight(engine: &Engine) -> Buffer<f32> {
    Buffer::from_slice(engine.device(), &[1.0; 64], "weight").unwrap()
}

/// Three launches in a chain: x -> a -> b -> c, c overwriting a's memory.
fn chain(engine: &Engine) -> Plan {
    let arena = Arena::new(engine.device());
    let (x, w) = (Buffer::from_slice(engine.device(), &[2.0; 64], "x").unwrap(), weight(engine));
    let mut builder = PlanBuilder::new(engine, &arena, "chain");
    let a = arena.take(64, "a").unwrap();
    builder.push("first", norm::rms_norm(&x, &w, &a, 64, 0.0, 1, 64)).unwrap();
    let b = arena.take(64, "b").unwrap();
    builder.push("second", norm::rms_norm(&a, &w, &b, 64, 0.0, 1, 64)).unwrap();
    let a_address = a.address();
    drop(a);
    let c = arena.take(64, "c").unwrap();
    assert_eq!(c.address(), a_address, "the arena reuses what was given back");
    builder.push("third", norm::rms_norm(&b, &w, &c, 64, 0.0, 1, 64)).unwrap();
    builder.finish()
}

#[test]
fn an_argument_that_is_read_and_written_is_named() {
    let engine = engine();
    let arena = Arena::new(engine.device());
    let x = Buffer::from_slice(engine.device(), &[1.0; 64], "x").unwrap();
    let mut builder = PlanBuilder::new(&engine, &arena, "p");
    builder.layer(Some(7));
    let error = builder.push("norm", norm::rms_norm(&x, &weight(&engine), &x, 64, 0.0, 1, 64)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "layer 7, norm: arguments `x` and `y` overlap in buffer `x`, and one of them is written: give the launch \
         separate buffers"
    );
    // Halves of one buffer do not overlap.
    let both = Buffer::<f32>::new(engine.device(), 128, "both").unwrap();
    let (low, high) = (both.slice(..64).unwrap(), both.slice(64..).unwrap());
    builder.push("norm", norm::rms_norm(&low, &weight(&engine), &high, 64, 0.0, 1, 64)).unwrap();
}

#[test]
fn scratch_that_nothing_wrote_is_named() {
    let engine = engine();
    let arena = Arena::new(engine.device());
    let (gate_up, y) = (arena.take::<f32>(128, "gate and up").unwrap(), arena.take(64, "y").unwrap());
    let (gate, up) = (gate_up.slice(..64).unwrap(), gate_up.slice(64..).unwrap());
    let mut builder = PlanBuilder::new(&engine, &arena, "p");
    builder.push("gate", norm::rms_norm(&weight(&engine), &weight(&engine), &gate, 64, 0.0, 1, 64)).unwrap();
    let error =
        builder.push("swiglu", activation::swiglu(&gate, &up, &y, 64, f32::INFINITY, 1, 64)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "swiglu: argument `up` reads bytes 256..512 of scratch `gate and up`, which no launch before wrote whole"
    );
    builder.push("up", norm::rms_norm(&weight(&engine), &weight(&engine), &up, 64, 0.0, 1, 64)).unwrap();
    builder.push("swiglu", activation::swiglu(&gate, &up, &y, 64, f32::INFINITY, 1, 64)).unwrap();
}

#[test]
fn scratch_that_was_given_back_is_named() {
    let engine = engine();
    let arena = Arena::new(engine.device());
    let scratch = arena.take::<f32>(64, "normed").unwrap();
    let kept: Buffer<f32> = (*scratch).clone();
    drop(scratch);
    let mut builder = PlanBuilder::new(&engine, &arena, "p");
    let x = weight(&engine);
    let error = builder.push("norm", norm::rms_norm(&x, &x, &kept, 64, 0.0, 1, 64)).unwrap_err();
    assert!(matches!(error, PlanError::Lifetime { argument: "y", .. }), "{error}");
}

fn edges_of(pairs: &[(usize, usize)], programmatic: impl Fn(usize) -> bool) -> Vec<GraphEdge> {
    pairs.iter().map(|&(from, to)| GraphEdge { from, to, programmatic: programmatic(to) }).collect()
}

/// An engine whose `swiglu` has `early` ahead of its wait, or instead of it.
fn engine_with(wait: &'static str) -> Engine {
    let device = Device::open("sim".parse::<DeviceSpec>().unwrap()).unwrap();
    Engine::with_edited_ptx(device, EngineOptions::default(), &|module, text| match module {
        "activation" => text.replace("griddepcontrol.wait;", wait).into(),
        _ => text.into(),
    })
    .unwrap()
}

/// Three launches of one dependent kernel: (x, x) -> a, (a, x) -> b, (b, x) -> c, c overwriting a's memory.
fn dependent_chain(engine: &Engine) -> Plan {
    let arena = Arena::new(engine.device());
    let x = Buffer::from_slice(engine.device(), &[2.0; 64], "x").unwrap();
    let mut builder = PlanBuilder::new(engine, &arena, "chain");
    let gate =
        |gate: &Buffer<f32>, y: &Buffer<f32>| activation::swiglu(gate, &x, y, 64, f32::INFINITY, 1, 64);
    let a = arena.take(64, "a").unwrap();
    builder.push("first", gate(&x, &a)).unwrap();
    let b = arena.take(64, "b").unwrap();
    builder.push("second", gate(&a, &b)).unwrap();
    drop(a);
    let c = arena.take(64, "c").unwrap();
    builder.push("third", gate(&b, &c)).unwrap();
    builder.finish()
}

#[test]
fn a_programmatic_edge_orders_what_comes_after_the_wait() {
    let engine = engine_with("griddepcontrol.wait;");
    let plan = dependent_chain(&engine);
    let chain = [(0, 1), (1, 2)];
    // The third launch overwrites what the first wrote: ordered through the second's wait.
    assert_eq!(plan.prove_order(&edges_of(&chain, |_| true)), Ok(3));
    assert_eq!(plan.prove_order(&edges_of(&chain, |to| to == 1)), Ok(3));
    let captured = plan.capture(engine.stream()).unwrap();
    assert_eq!(captured.proof(), GraphProof { nodes: 3, pairs: 3, early: 2 });
    captured.replay(engine.stream()).unwrap();
    engine.synchronize().unwrap();
}

#[test]
fn what_is_read_before_the_wait_must_have_been_written_by_then() {
    // A read through `gate`, which in the second launch is what the first one wrote.
    let engine = engine_with(
        "{ .reg .b64 early; .reg .b32 value; ld.param.u64 early, [swiglu_param_0]; ld.global.u32 value, [early]; }\n\
         griddepcontrol.wait;",
    );
    let plan = dependent_chain(&engine);
    let refused = plan.capture(engine.stream()).unwrap_err().to_string();
    assert_eq!(
        refused,
        "captured chain: node 1 (second) may read `gate` before it waits, or by the non-coherent path, while node 0 \
         (first), which writes it, still runs"
    );
    // Where the second begins only when the first has ended, it may; the third reads what the second wrote.
    let refused = plan.prove_order(&edges_of(&[(0, 1), (1, 2)], |to| to == 2)).unwrap_err();
    assert!(refused.starts_with("node 2 (third) may read `gate`"), "{refused}");
    assert_eq!(plan.prove_order(&edges_of(&[(0, 1), (1, 2)], |_| false)), Ok(3));
}

#[test]
fn a_dependent_kernel_that_does_not_wait_is_not_loaded() {
    let device = Device::open("sim".parse::<DeviceSpec>().unwrap()).unwrap();
    for (wait, reason) in [
        ("", "a path ends in line"),
        ("st.global.u32 [%rd1], 0; griddepcontrol.wait;", "stores before griddepcontrol.wait"),
        ("@%p1 griddepcontrol.wait;", "without griddepcontrol.wait"),
    ] {
        let edit = |module: &str, text: &'static str| match module {
            "activation" => text.replace("griddepcontrol.wait;", wait).into(),
            _ => text.into(),
        };
        let engine = Engine::with_edited_ptx(device.clone(), EngineOptions::default(), &edit).unwrap();
        let decl = crate::kernel::by_name("swiglu").unwrap();
        let refused = engine.function(decl).unwrap_err().to_string();
        assert!(
            refused.starts_with("kernel swiglu, entry swiglu: ") && refused.contains(reason),
            "{refused}"
        );
    }
}

#[test]
fn every_order_that_matters_needs_a_path() {
    let engine = engine();
    let plan = chain(&engine);
    // Read after write: (0, 1) and (1, 2). Write after read and write after write of the reused memory: (1, 2), (0, 2).
    let prove = |edges: &[(usize, usize)]| plan.prove_order(&edges_of(edges, |_| false));
    assert_eq!(prove(&[(0, 1), (1, 2)]), Ok(3));
    assert_eq!(prove(&[(0, 1), (1, 2), (0, 2)]), Ok(3));
    let missing = prove(&[(0, 1), (0, 2)]).unwrap_err();
    assert_eq!(missing, "no path orders node 1 (second) before node 2 (third), which need it");
    assert!(prove(&[(0, 1), (2, 1)]).unwrap_err().contains("against the plan's order"));
}

#[test]
fn a_capture_is_proven_and_replays_what_the_plan_computes() {
    let engine = engine();
    let plan = chain(&engine);
    let captured = plan.capture(engine.stream()).unwrap();
    let proof = captured.proof();
    assert_eq!((proof.nodes, proof.pairs), (3, 3));
    captured.replay(engine.stream()).unwrap();
    engine.synchronize().unwrap();
    let ArgSlot::Pointer { buffer, .. } = &plan.steps()[2].launch.args.slots()[2] else { panic!("y") };
    let mut out = [0.0_f32; 64];
    engine
        .stream()
        .read(&Buffer::from_allocation(buffer.allocation()).unwrap().slice(..64).unwrap(), &mut out)
        .unwrap();
    // RMSNorm of a constant is 1, and of ones again.
    assert_eq!(out, [1.0; 64]);
}

#[test]
fn a_reseated_buffer_shows_in_the_signature_and_is_patched() {
    let engine = engine();
    let arena = Arena::new(engine.device());
    let x = Buffer::from_slice(engine.device(), &[3.0; 64], "x").unwrap();
    let y = Buffer::<f32>::new(engine.device(), 64, "y").unwrap();
    let mut builder = PlanBuilder::new(&engine, &arena, "p");
    builder.push("norm", norm::rms_norm(&x, &weight(&engine), &y, 64, 0.0, 1, 64)).unwrap();
    let mut captured = builder.finish().capture(engine.stream()).unwrap();
    assert!(captured.stale().is_empty());
    let old = x.address();
    x.reseat(engine.device().alloc(256, "x again").unwrap()).unwrap();
    engine.copy_into(&x, &[-3.0; 64]).unwrap();
    let moved = captured.stale();
    assert_eq!(moved.len(), 1);
    assert_eq!(
        (moved[0].baked.param, moved[0].baked.address, moved[0].current.address),
        ("x", old, x.address())
    );
    assert_eq!(captured.patch().unwrap(), 1);
    assert!(captured.stale().is_empty());
    captured.replay(engine.stream()).unwrap();
    let mut out = [0.0; 64];
    engine.stream().read(&y, &mut out).unwrap();
    assert_eq!(out, [-1.0; 64]);
}
