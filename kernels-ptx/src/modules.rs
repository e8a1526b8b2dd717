//! The embedded modules. Written by `cargo xtask ptx`; do not edit.

use crate::{Arch, PtxModule, module};

/// Built for compute_80.
pub static COMPUTE_80: &[PtxModule] = &[
    module("activation", Arch::Compute80, include_str!("../ptx/compute_80/activation.ptx")),
    module("attention", Arch::Compute80, include_str!("../ptx/compute_80/attention.ptx")),
    module("ceiling", Arch::Compute80, include_str!("../ptx/compute_80/ceiling.ptx")),
    module("embed", Arch::Compute80, include_str!("../ptx/compute_80/embed.ptx")),
    module("experts", Arch::Compute80, include_str!("../ptx/compute_80/experts.ptx")),
    module("fill", Arch::Compute80, include_str!("../ptx/compute_80/fill.ptx")),
    module("hyper", Arch::Compute80, include_str!("../ptx/compute_80/hyper.ptx")),
    module("indexer", Arch::Compute80, include_str!("../ptx/compute_80/indexer.ptx")),
    module("kda", Arch::Compute80, include_str!("../ptx/compute_80/kda.ptx")),
    module("latent", Arch::Compute80, include_str!("../ptx/compute_80/latent.ptx")),
    module("math_probe", Arch::Compute80, include_str!("../ptx/compute_80/math_probe.ptx")),
    module("matvec", Arch::Compute80, include_str!("../ptx/compute_80/matvec.ptx")),
    module("matvec_i16", Arch::Compute80, include_str!("../ptx/compute_80/matvec_i16.ptx")),
    module("matvec_i16_k", Arch::Compute80, include_str!("../ptx/compute_80/matvec_i16_k.ptx")),
    module("matvec_k", Arch::Compute80, include_str!("../ptx/compute_80/matvec_k.ptx")),
    module("norm", Arch::Compute80, include_str!("../ptx/compute_80/norm.ptx")),
    module("pipeline", Arch::Compute80, include_str!("../ptx/compute_80/pipeline.ptx")),
    module("qkv", Arch::Compute80, include_str!("../ptx/compute_80/qkv.ptx")),
    module("qkv_i16", Arch::Compute80, include_str!("../ptx/compute_80/qkv_i16.ptx")),
    module("qkv_i16_k", Arch::Compute80, include_str!("../ptx/compute_80/qkv_i16_k.ptx")),
    module("qkv_k", Arch::Compute80, include_str!("../ptx/compute_80/qkv_k.ptx")),
    module("router", Arch::Compute80, include_str!("../ptx/compute_80/router.ptx")),
    module("sample", Arch::Compute80, include_str!("../ptx/compute_80/sample.ptx")),
    module("sampling", Arch::Compute80, include_str!("../ptx/compute_80/sampling.ptx")),
];

/// Built for compute_90.
pub static COMPUTE_90: &[PtxModule] = &[
    module("activation", Arch::Compute90, include_str!("../ptx/compute_90/activation.ptx")),
    module("attention", Arch::Compute90, include_str!("../ptx/compute_90/attention.ptx")),
    module("ceiling", Arch::Compute90, include_str!("../ptx/compute_90/ceiling.ptx")),
    module("embed", Arch::Compute90, include_str!("../ptx/compute_90/embed.ptx")),
    module("experts", Arch::Compute90, include_str!("../ptx/compute_90/experts.ptx")),
    module("fill", Arch::Compute90, include_str!("../ptx/compute_90/fill.ptx")),
    module("hyper", Arch::Compute90, include_str!("../ptx/compute_90/hyper.ptx")),
    module("indexer", Arch::Compute90, include_str!("../ptx/compute_90/indexer.ptx")),
    module("kda", Arch::Compute90, include_str!("../ptx/compute_90/kda.ptx")),
    module("latent", Arch::Compute90, include_str!("../ptx/compute_90/latent.ptx")),
    module("math_probe", Arch::Compute90, include_str!("../ptx/compute_90/math_probe.ptx")),
    module("matvec", Arch::Compute90, include_str!("../ptx/compute_90/matvec.ptx")),
    module("matvec_i16", Arch::Compute90, include_str!("../ptx/compute_90/matvec_i16.ptx")),
    module("matvec_i16_k", Arch::Compute90, include_str!("../ptx/compute_90/matvec_i16_k.ptx")),
    module("matvec_k", Arch::Compute90, include_str!("../ptx/compute_90/matvec_k.ptx")),
    module("norm", Arch::Compute90, include_str!("../ptx/compute_90/norm.ptx")),
    module("pipeline", Arch::Compute90, include_str!("../ptx/compute_90/pipeline.ptx")),
    module("qkv", Arch::Compute90, include_str!("../ptx/compute_90/qkv.ptx")),
    module("qkv_i16", Arch::Compute90, include_str!("../ptx/compute_90/qkv_i16.ptx")),
    module("qkv_i16_k", Arch::Compute90, include_str!("../ptx/compute_90/qkv_i16_k.ptx")),
    module("qkv_k", Arch::Compute90, include_str!("../ptx/compute_90/qkv_k.ptx")),
    module("router", Arch::Compute90, include_str!("../ptx/compute_90/router.ptx")),
    module("sample", Arch::Compute90, include_str!("../ptx/compute_90/sample.ptx")),
    module("sampling", Arch::Compute90, include_str!("../ptx/compute_90/sampling.ptx")),
];

/// What checkers are tested with.
pub static CORPUS: &[PtxModule] = &[
    module("arguments", Arch::Compute80, include_str!("../ptx/corpus/arguments.ptx")),
    module("barrier", Arch::Compute80, include_str!("../ptx/corpus/barrier.ptx")),
    module("blocks", Arch::Compute80, include_str!("../ptx/corpus/blocks.ptx")),
    module("dependent_sm90", Arch::Compute90, include_str!("../ptx/corpus/dependent_sm90.ptx")),
    module("memory", Arch::Compute80, include_str!("../ptx/corpus/memory.ptx")),
    module("shared", Arch::Compute80, include_str!("../ptx/corpus/shared.ptx")),
];
