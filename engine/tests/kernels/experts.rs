//! Routed experts: all chosen ones in one pair of launches have the bits of one launch an expert.

use bitwalk::device::Buffer;
use bitwalk::kernel::{BF16, F16, F32, NVFP4};
use bitwalk::kernels::{experts, matvec, norm, router};

use crate::rig::{Rig, bits_of, floats, plane_rows, planes};

const EXPERTS: usize = 7;
const K: usize = 3;
const TOKENS: usize = 5;
const HIDDEN: usize = 96;
const INTER: usize = 64;
const LIMIT: f32 = 0.75;

/// What both arms read, and what the router chose of it.
struct Layer {
    rig: Rig,
    x: Buffer<f32>,
    shared: Buffer<f32>,
    ids: Buffer<u32>,
    weights: Buffer<f32>,
}

/// What both arms write: activations, outputs a place, and their sum.
struct Results {
    act: Buffer<f32>,
    y: Buffer<f32>,
    out: Buffer<f32>,
}

fn row<T: bitwalk::device::Element>(buffer: &Buffer<T>, index: usize, cols: usize) -> Buffer<T> {
    buffer.slice(index * cols..(index + 1) * cols).unwrap()
}

impl Layer {
    fn new() -> Layer {
        let rig = Rig::new();
        let logits = rig.buffer(&floats(21, TOKENS * EXPERTS));
        let bias = rig.buffer(&floats(22, EXPERTS).iter().map(|b| 0.1 * b).collect::<Vec<_>>());
        let (ids, weights) = (rig.zeros(TOKENS * K), rig.zeros(TOKENS * K));
        let [tokens, e, k] = [TOKENS, EXPERTS, K].map(|n| n as u32);
        rig.run(router::router_topk(&logits, &bias, &ids, &weights, e, k, 2.5, 1, tokens));
        let x = rig.buffer(&floats(23, TOKENS * HIDDEN));
        let shared = rig.buffer(&floats(24, TOKENS * HIDDEN));
        Layer { rig, x, shared, ids, weights }
    }

    fn results(&self) -> Results {
        let zeros = |n: usize| self.rig.zeros(TOKENS * n);
        Results { act: zeros(K * INTER), y: zeros(K * HIDDEN), out: zeros(HIDDEN) }
    }

    /// `rows` rows of `cols` as int16 with their scales.
    fn quantised(&self, x: &Buffer<f32>, rows: usize, cols: usize) -> (Buffer<i16>, Buffer<f32>) {
        let (q, scale) = (self.rig.zeros(rows * cols), self.rig.zeros(rows * cols / 32));
        self.rig.run(norm::quantise_i16(x, &q, &scale, cols as u32, rows as u32, cols as u32));
        (q, scale)
    }

    /// The host-oracle arm's order: the selection is downloaded, and each expert has launches of its own.
    fn each(&self, mut expert: impl FnMut(usize, usize, usize)) {
        for (place, id) in self.ids.to_vec().unwrap().into_iter().enumerate() {
            expert(place, place / K, id as usize);
        }
    }

    fn combine(&self, results: &Results) {
        let [c, k, tokens] = [HIDDEN, K, TOKENS].map(|n| n as u32);
        let Results { y, out, .. } = results;
        self.rig.run(experts::experts_combine(y, &self.weights, Some(&self.shared), out, c, k, tokens));
    }

    fn same(&self, device: &Results, host: &Results, what: &str) {
        self.combine(device);
        self.combine(host);
        for (device, host) in [(&device.act, &host.act), (&device.y, &host.y), (&device.out, &host.out)] {
            let values = device.to_vec().unwrap();
            assert!(values.iter().all(|v| v.is_finite()) && values.iter().any(|v| *v != 0.0), "{what}");
            assert_eq!(bits_of(device), bits_of(host), "{what}");
        }
    }
}

macro_rules! exact_arms {
    ($($format:ident $gate_up:ident $down:ident $swiglu:ident $matvec:ident;)*) => {$({
        let layer = Layer::new();
        let (rig, x) = (&layer.rig, &layer.x);
        let [h, inter, e, k, tokens] = [HIDDEN, INTER, EXPERTS, K, TOKENS].map(|n| n as u32);
        let gate_up = planes::<$format>(2 * u64::from(e * inter), h.into());
        let down = planes::<$format>(u64::from(e * h), inter.into());
        let (device, host) = (layer.results(), layer.results());

        let w = rig.tensor::<$format>(2 * u64::from(e * inter), h.into(), &gate_up);
        rig.run(experts::$gate_up(&w, &layer.ids, x, &device.act, inter, h, e, k, LIMIT, tokens, 2, 256));
        let w = rig.tensor::<$format>(u64::from(e * h), inter.into(), &down);
        rig.run(experts::$down(&w, &layer.ids, &device.act, &device.y, h, inter, e, k, tokens, 3, 256));

        layer.each(|place, token, id| {
            let part = plane_rows(&gate_up, 2 * EXPERTS * INTER, 2 * id * INTER, 2 * INTER);
            let w = rig.tensor::<$format>(2 * u64::from(inter), h.into(), &part);
            let act = row(&host.act, place, INTER);
            rig.run(matvec::$swiglu(&w, &row(x, token, HIDDEN), None, 0.0, &act, inter, h, LIMIT, 1, h, 1, 256, 0));
            let part = plane_rows(&down, EXPERTS * HIDDEN, id * HIDDEN, HIDDEN);
            let w = rig.tensor::<$format>(h.into(), inter.into(), &part);
            let y = row(&host.y, place, HIDDEN);
            rig.run(matvec::$matvec(&w, &act, None, 0.0, None, &y, h, inter, 1, inter, 1, 256, 0));
        });
        layer.same(&device, &host, stringify!($format));
    })*};
}

#[test]
fn the_device_arm_has_the_bits_of_the_host_oracle_arm() {
    exact_arms! {
        F32 experts_gate_up_f32 experts_down_f32 matvec_swiglu_f32 matvec_f32;
        F16 experts_gate_up_f16 experts_down_f16 matvec_swiglu_f16 matvec_f16;
        BF16 experts_gate_up_bf16 experts_down_bf16 matvec_swiglu_bf16 matvec_bf16;
        NVFP4 experts_gate_up_nvfp4 experts_down_nvfp4 matvec_swiglu_nvfp4 matvec_nvfp4;
    }
}

#[test]
fn the_arms_agree_in_the_i16_program() {
    let layer = Layer::new();
    let rig = &layer.rig;
    let [h, inter, e, k, tokens] = [HIDDEN, INTER, EXPERTS, K, TOKENS].map(|n| n as u32);
    let gate_up = planes::<NVFP4>(2 * u64::from(e * inter), h.into());
    let down = planes::<NVFP4>(u64::from(e * h), inter.into());
    let (device, host) = (layer.results(), layer.results());

    let (q, s) = layer.quantised(&layer.x, TOKENS, HIDDEN);
    let w = rig.tensor::<NVFP4>(2 * u64::from(e * inter), h.into(), &gate_up);
    rig.run(experts::experts_gate_up_i16_nvfp4(
        &w,
        &layer.ids,
        &q,
        &s,
        &device.act,
        inter,
        h,
        e,
        k,
        LIMIT,
        tokens,
        2,
        256,
    ));
    let (act_q, act_s) = layer.quantised(&device.act, TOKENS * K, INTER);
    let w = rig.tensor::<NVFP4>(u64::from(e * h), inter.into(), &down);
    rig.run(experts::experts_down_i16_nvfp4(
        &w, &layer.ids, &act_q, &act_s, &device.y, h, inter, e, k, tokens, 3, 256,
    ));

    layer.each(|place, token, id| {
        let part = plane_rows(&gate_up, 2 * EXPERTS * INTER, 2 * id * INTER, 2 * INTER);
        let w = rig.tensor::<NVFP4>(2 * u64::from(inter), h.into(), &part);
        let act = row(&host.act, place, INTER);
        let x = row(&layer.x, token, HIDDEN);
        rig.run(matvec::matvec_swiglu_i16_nvfp4(&w, &x, None, 0.0, &act, inter, h, LIMIT, 1, h, 1, 256, 0));
        let part = plane_rows(&down, EXPERTS * HIDDEN, id * HIDDEN, HIDDEN);
        let w = rig.tensor::<NVFP4>(h.into(), inter.into(), &part);
        let y = row(&host.y, place, HIDDEN);
        rig.run(matvec::matvec_i16_nvfp4(&w, &act, None, 0.0, None, &y, h, inter, 1, inter, 1, 256, 0));
    });
    layer.same(&device, &host, "i16");
}

#[test]
fn a_sum_over_experts_does_not_depend_on_how_tokens_share_a_launch() {
    let layer = Layer::new();
    let results = layer.results();
    let y = layer.rig.buffer(&floats(31, TOKENS * K * HIDDEN));
    let (c, k) = (HIDDEN as u32, K as u32);
    let run = |y: &_, weights: &_, shared: &_, out: &_, tokens: usize| {
        layer.rig.run(experts::experts_combine(y, weights, Some(shared), out, c, k, tokens as u32));
    };
    run(&y, &layer.weights, &layer.shared, &results.out, TOKENS);
    let alone = layer.results();
    for t in 0..TOKENS {
        let (weights, shared) = (row(&layer.weights, t, K), row(&layer.shared, t, HIDDEN));
        run(&row(&y, t, K * HIDDEN), &weights, &shared, &row(&alone.out, t, HIDDEN), 1);
    }
    assert_eq!(bits_of(&results.out), bits_of(&alone.out));
}
