//! Kernels that take several tokens a launch give each token the bits that it has alone, and leave the same state, whatever
//! the chunks; a head's rows of `heads_matvec` have the bits of `matvec`.

use std::error::Error;

use bitwalk::device::{Buffer, Device, DeviceSpec};
use bitwalk::engine::Engine;
use bitwalk::kernel::{F32, Launch, LaunchError, RawTensor, TensorFormat};
use bitwalk::kernels::hyper::{hc_collapse, hc_expand, hc_project_f32, mean_norm};
use bitwalk::kernels::indexer::{indexer_append, indexer_scores, indexer_select};
use bitwalk::kernels::kda::{conv_silu, kda_step_32};
use bitwalk::kernels::latent::{
    heads_matvec_f32, latent_append_f32, latent_chunks, latent_fold, latent_split_f32,
};
use bitwalk::kernels::matvec::matvec_f32;
use bitwalk::options::EngineOptions;
use bitwalk::plan::{Arena, PlanBuilder};

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// One token at a time, chunks that divide nothing, all at once.
const CHUNKS: [usize; 4] = [1, 3, 7, TOKENS];
const TOKENS: usize = 25;

/// An engine and what it is fed: buffers by name, random ones from a seed that counts up.
struct Bench {
    engine: Engine,
    seed: u32,
}

impl Bench {
    fn new() -> Outcome<Bench> {
        Ok(Bench {
            engine: Engine::new(Device::open(DeviceSpec::Sim(0))?, EngineOptions::default())?,
            seed: 0,
        })
    }

    /// Uniform in [−1, 1): a hash of the index (the finaliser of MurmurHash3).
    fn random(&mut self, len: usize) -> Outcome<Buffer<f32>> {
        self.seed += 1;
        let value = |i: usize| {
            let mut h = i as u32 ^ self.seed.wrapping_mul(0x9e37_79b9);
            h = (h ^ (h >> 16)).wrapping_mul(0x85eb_ca6b);
            h = (h ^ (h >> 13)).wrapping_mul(0xc2b2_ae35);
            ((h ^ (h >> 16)) >> 8) as f32 / (1u32 << 23) as f32 - 1.0
        };
        let values: Vec<f32> = (0..len).map(value).collect();
        Ok(Buffer::from_slice(self.engine.device(), &values, "input")?)
    }

    fn of(&self, len: usize, value: f32) -> Outcome<Buffer<f32>> {
        Ok(Buffer::from_slice(self.engine.device(), &vec![value; len], "state")?)
    }

    fn words(&self, len: usize) -> Outcome<Buffer<u32>> {
        Ok(Buffer::from_slice(self.engine.device(), &vec![u32::MAX; len], "words")?)
    }

    fn run(&self, launches: Vec<Result<Launch, LaunchError>>) -> Outcome {
        let mut b = PlanBuilder::new(&self.engine, &Arena::new(self.engine.device()), "chunk");
        for launch in launches {
            b.push("step", launch)?;
        }
        b.finish().run(self.engine.stream())?;
        Ok(self.engine.synchronize()?)
    }

    /// Runs `chunk` over [`TOKENS`] tokens from position `from`, `size` at a time; it gets the range of tokens and the position.
    fn chunked(
        &self,
        from: u32,
        size: usize,
        mut chunk: impl FnMut(std::ops::Range<usize>, &Buffer<u32>) -> Outcome<Vec<Result<Launch, LaunchError>>>,
    ) -> Outcome {
        for first in (0..TOKENS).step_by(size) {
            let position = Buffer::from_slice(self.engine.device(), &[from + first as u32], "position")?;
            self.run(chunk(first..(first + size).min(TOKENS), &position)?)?;
        }
        Ok(())
    }
}

/// The rows of `tokens` of a buffer with rows of `cols`.
fn rows<T: bitwalk::device::Element>(
    buffer: &Buffer<T>,
    tokens: &std::ops::Range<usize>,
    cols: usize,
) -> Outcome<Buffer<T>> {
    Ok(buffer.slice(tokens.start * cols..tokens.end * cols)?)
}

fn bits(buffers: &[&Buffer<f32>]) -> Outcome<Vec<Vec<u32>>> {
    let bits = |buffer: &&Buffer<f32>| -> Outcome<Vec<u32>> {
        Ok(buffer.to_vec()?.into_iter().map(f32::to_bits).collect())
    };
    buffers.iter().map(bits).collect()
}

/// What each size of chunk leaves is what the first leaves; and it is finite, and not all the same.
fn same<T: PartialEq>(mut run: impl FnMut(usize) -> Outcome<T>) -> Outcome<T> {
    let first = run(CHUNKS[0])?;
    for size in &CHUNKS[1..] {
        assert!(run(*size)? == first, "chunks of {size} tokens differ from chunks of {}", CHUNKS[0]);
    }
    Ok(first)
}

fn assert_alive(values: &[u32]) {
    assert!(values.iter().all(|&bits| f32::from_bits(bits).is_finite()), "not finite");
    assert!(values.iter().any(|&bits| bits != values[0]), "constant");
}

#[test]
fn hyper_connections() -> Outcome {
    let (hidden, n) = (40usize, 4usize);
    let (mix, cols) = (n * (n + 2), n * hidden);
    let mut b = Bench::new()?;
    let (fn_rows, x, y) = (b.random(mix * cols)?, b.random(TOKENS * cols)?, b.random(TOKENS * hidden)?);
    let (base, scale, weight) = (b.random(mix)?, b.random(3)?, b.random(hidden)?);
    let w = tensor(&fn_rows, mix, cols)?;
    let x = x.to_vec()?;
    let outputs = same(|size| {
        let streams = Buffer::from_slice(b.engine.device(), &x, "streams")?;
        let m = b.of(TOKENS * (mix + 1), 0.0)?;
        let (collapsed, normed) = (b.of(TOKENS * hidden, 0.0)?, b.of(TOKENS * hidden, 0.0)?);
        let (post, comb) = (b.of(TOKENS * n, 0.0)?, b.of(TOKENS * n * n, 0.0)?);
        let last = b.of(TOKENS * hidden, 0.0)?;
        b.chunked(0, size, |t, _| {
            let tokens = t.len() as u32;
            let (streams, m) = (rows(&streams, &t, cols)?, rows(&m, &t, mix + 1)?);
            let (collapsed, normed) = (rows(&collapsed, &t, hidden)?, rows(&normed, &t, hidden)?);
            let (post, comb) = (rows(&post, &t, n)?, rows(&comb, &t, n * n)?);
            let (y, last) = (rows(&y, &t, hidden)?, rows(&last, &t, hidden)?);
            let (hidden, n) = (hidden as u32, n as u32);
            Ok(vec![
                hc_project_f32(&w, &streams, &m, mix as u32, cols as u32, tokens),
                hc_collapse(
                    &streams, &m, &base, &scale, &weight, &collapsed, &normed, &post, &comb, hidden, n, 20,
                    1e-6, 1e-5, tokens,
                ),
                hc_expand(&streams, &y, &post, &comb, hidden, n, tokens),
                mean_norm(&streams, &weight, &last, hidden, n, 1e-5, tokens),
            ])
        })?;
        bits(&[&streams, &m, &collapsed, &normed, &post, &comb, &last])
    })?;
    outputs.iter().for_each(|values| assert_alive(values));
    Ok(())
}

#[test]
fn delta_attention() -> Outcome {
    const D: usize = 32;
    let (heads, taps, stride) = (3usize, 4usize, 300usize);
    let (inner, channels) = (heads * D, 3 * heads * D);
    let mut b = Bench::new()?;
    let (x, conv, decay) =
        (b.random(TOKENS * stride)?, b.random(channels * taps)?, b.random(TOKENS * inner)?);
    let (dt_bias, a_log, beta) = (b.random(inner)?, b.random(heads)?, b.random(TOKENS * heads)?);
    let (gate, weight) = (b.random(TOKENS * inner)?, b.random(D)?);
    // From position 0, where what the buffers hold does not count.
    let outputs = same(|size| {
        let (ring, state) = (b.of(taps * channels, f32::NAN)?, b.of(heads * D * D, f32::NAN)?);
        let (qkv, y) = (b.of(TOKENS * channels, 0.0)?, b.of(TOKENS * inner, 0.0)?);
        b.chunked(0, size, |t, position| {
            let tokens = t.len() as u32;
            let x = rows(&x, &t, stride)?;
            let (qkv, y, beta) = (rows(&qkv, &t, channels)?, rows(&y, &t, inner)?, rows(&beta, &t, heads)?);
            let (decay, gate) = (rows(&decay, &t, inner)?, rows(&gate, &t, inner)?);
            let (channels, heads) = (channels as u32, heads as u32);
            Ok(vec![
                conv_silu(&x, &conv, &ring, position, &qkv, channels, taps as u32, tokens, stride as u32),
                kda_step_32(
                    &qkv, &decay, &dt_bias, &a_log, &beta, &gate, &weight, &state, position, &y, heads, -5.0,
                    1, 1e-5, tokens, heads,
                ),
            ])
        })?;
        bits(&[&ring, &state, &qkv, &y])
    })?;
    outputs.iter().for_each(|values| assert_alive(values));
    Ok(())
}

#[test]
fn attention_over_a_selection() -> Outcome {
    let (heads, dim, kpool, top, from) = (5usize, 64usize, 4usize, 20usize, 71usize);
    let (index_heads, d) = (4usize, 32usize);
    let (capacity, max_chunks) = (from + TOKENS, latent_chunks(top as u32, kpool as u32) as usize);
    let max_pools = capacity / kpool;
    let mut b = Bench::new()?;
    let (x, weight, q) = (b.random(TOKENS * dim)?, b.random(dim)?, b.random(TOKENS * heads * dim)?);
    let (k, gate, iq) = (b.random(TOKENS * d)?, b.random(TOKENS * d)?, b.random(TOKENS * index_heads * d)?);
    let (k_weight, k_bias, ape) = (b.random(d)?, b.random(d)?, b.random(kpool * d)?);
    let head_weights = b.random(TOKENS * index_heads)?;
    // What earlier chunks left.
    let (cache_0, keys_0) =
        (b.random(capacity * dim)?.to_vec()?, b.random(capacity.div_ceil(kpool) * d)?.to_vec()?);
    let (k_ring_0, gate_ring_0) = (b.random(kpool * d)?.to_vec()?, b.random(kpool * d)?.to_vec()?);
    let (outputs, counts) = same(|size| {
        let state = |values: &[f32]| Buffer::from_slice(b.engine.device(), values, "state");
        let (cache, keys) = (state(&cache_0)?, state(&keys_0)?);
        let (k_ring, gate_ring) = (state(&k_ring_0)?, state(&gate_ring_0)?);
        let scores = b.of(TOKENS * max_pools, 0.0)?;
        let (pools, count) = (b.words(TOKENS * top)?, b.words(TOKENS)?);
        let partial = b.of(TOKENS * heads * max_chunks * dim, 0.0)?;
        let max_sum = b.of(TOKENS * heads * max_chunks * 2, 0.0)?;
        let y = b.of(TOKENS * heads * dim, 0.0)?;
        b.chunked(from as u32, size, |t, at| {
            let tokens = t.len() as u32;
            let (x, q, k) = (rows(&x, &t, dim)?, rows(&q, &t, heads * dim)?, rows(&k, &t, d)?);
            let (gate, iq) = (rows(&gate, &t, d)?, rows(&iq, &t, index_heads * d)?);
            let (head_weights, scores) =
                (rows(&head_weights, &t, index_heads)?, rows(&scores, &t, max_pools)?);
            let (pools, count) = (rows(&pools, &t, top)?, rows(&count, &t, 1)?);
            let partial = rows(&partial, &t, heads * max_chunks * dim)?;
            let max_sum = rows(&max_sum, &t, heads * max_chunks * 2)?;
            let y = rows(&y, &t, heads * dim)?;
            let [heads, dim, kpool, top, index_heads, d, max_chunks, max_pools] =
                [heads, dim, kpool, top, index_heads, d, max_chunks, max_pools].map(|v| v as u32);
            Ok(vec![
                latent_append_f32(&x, &weight, &cache, at, dim, 1e-5, tokens, dim),
                indexer_append(
                    &k, &gate, &k_weight, &k_bias, &ape, &k_ring, &gate_ring, &keys, at, d, kpool, 1e-6,
                    tokens, d,
                ),
                indexer_scores(
                    &iq,
                    &head_weights,
                    &keys,
                    at,
                    &scores,
                    index_heads,
                    d,
                    kpool,
                    max_pools,
                    tokens,
                    index_heads,
                ),
                indexer_select(&scores, at, &pools, &count, kpool, top, max_pools, tokens),
                latent_split_f32(
                    &q, &cache, &pools, &count, at, &partial, &max_sum, heads, dim, 0.125, kpool, top,
                    max_chunks, tokens,
                ),
                latent_fold(&partial, &max_sum, &count, at, &y, heads, dim, kpool, max_chunks, tokens),
            ])
        })?;
        let written = bits(&[&cache, &keys, &k_ring, &gate_ring, &scores, &y])?;
        Ok((written, (pools.to_vec()?, count.to_vec()?)))
    })?;
    outputs.iter().for_each(|values| assert_alive(values));
    // The first tokens see all 18 and 19 complete pools, the last choose 20 of more.
    let (pools, count) = counts;
    assert_eq!(count[0], 18);
    assert_eq!(count[TOKENS - 1], 20);
    assert_ne!(pools[(TOKENS - 1) * top..], (0..20).collect::<Vec<u32>>());
    Ok(())
}

fn tensor(values: &Buffer<f32>, rows: usize, cols: usize) -> Outcome<bitwalk::kernel::QTensor<F32>> {
    let raw = RawTensor::new(TensorFormat::F32, rows as u64, cols as u64, &[values.raw()])?;
    Ok(raw.typed().ok_or("not F32")?)
}

#[test]
fn a_matrix_a_head_is_its_rows() -> Outcome {
    let (heads, rows_a_head, cols, tokens) = (3usize, 37usize, 1032usize, 2usize);
    let mut b = Bench::new()?;
    let (w, x) = (b.random(heads * rows_a_head * cols)?, b.random(tokens * heads * cols)?);
    let y = b.of(tokens * heads * rows_a_head, 0.0)?;
    let [h, r, c, t] = [heads, rows_a_head, cols, tokens].map(|v| v as u32);
    b.run(vec![heads_matvec_f32(&tensor(&w, heads * rows_a_head, cols)?, &x, &y, h, r, c, t)])?;
    let got = bits(&[&y])?.remove(0);
    assert_alive(&got);
    for head in 0..heads {
        let one =
            tensor(&w.slice(head * rows_a_head * cols..(head + 1) * rows_a_head * cols)?, rows_a_head, cols)?;
        let alone = b.of(tokens * rows_a_head, 0.0)?;
        let x = x.slice(head * cols..)?;
        b.run(vec![matvec_f32(&one, &x, None, 0.0, None, &alone, r, c, t, h * c, 2, 256, 0)])?;
        for (token, wanted) in bits(&[&alone])?[0].chunks(rows_a_head).enumerate() {
            let at = (token * heads + head) * rows_a_head;
            assert!(got[at..][..rows_a_head] == *wanted, "head {head}, token {token}");
        }
    }
    Ok(())
}
