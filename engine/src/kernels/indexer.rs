//! The indexer of sparse attention: keys pooled as pools of `kpool` neighbouring tokens complete, the pools' scores for a
//! query, and the selection of the best. Pool `p` has the positions from `p · kpool` on; it is complete at a token whose
//! position is not before its last.

use crate::kernel::{Case, Counter, Fill, kernel};

/// One block, or none (which a launch refuses) for channels that it has no whole warps for.
fn append_blocks(dim: u64) -> u64 {
    u64::from(dim <= 1024 && dim.is_multiple_of(32))
}

/// Blocks of 32 pools, or none for keys that a warp cannot hold.
fn score_blocks(max_pools: u64, dim: u64) -> u64 {
    if dim <= 512 { max_pools.div_ceil(32) } else { 0 }
}

fn append_reference(
    k: &[f32],
    gate: &[f32],
    k_weight: &[f32],
    k_bias: &[f32],
    ape: &[f32],
    k_ring: &mut [f64],
    gate_ring: &mut [f64],
    pool_keys: &mut [f64],
    position: u32,
    dim: u32,
    kpool: u32,
    eps: f32,
    tokens: u32,
    x_stride: u32,
) {
    let (dim, kpool) = (dim as usize, kpool as usize);
    for token in 0..tokens as usize {
        let (at, row) = (position as usize + token, token * x_stride as usize);
        let slot = at % kpool;
        let x: Vec<f64> = k[row..][..dim].iter().map(|&v| f64::from(v)).collect();
        let mean = x.iter().sum::<f64>() / dim as f64;
        let variance = x.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / dim as f64;
        for c in 0..dim {
            let normed = (x[c] - mean) / (variance + f64::from(eps)).sqrt();
            k_ring[slot * dim + c] = normed * f64::from(k_weight[c]) + f64::from(k_bias[c]);
            gate_ring[slot * dim + c] = f64::from(gate[row + c]);
            if slot + 1 == kpool {
                let logit = |t: usize| gate_ring[t * dim + c] + f64::from(ape[t * dim + c]);
                let largest = (0..kpool).map(logit).fold(f64::NEG_INFINITY, f64::max);
                let weight = |t: usize| (logit(t) - largest).exp();
                let sum: f64 = (0..kpool).map(weight).sum();
                let weighted: f64 = (0..kpool).map(|t| weight(t) * k_ring[t * dim + c]).sum();
                pool_keys[at / kpool * dim + c] = weighted / sum;
            }
        }
    }
}

fn scores_reference(
    q: &[f32],
    weights: &[f32],
    pool_keys: &[f32],
    position: u32,
    scores: &mut [f64],
    heads: u32,
    dim: u32,
    kpool: u32,
    max_pools: u32,
    tokens: u32,
    w_stride: u32,
) {
    let (heads, dim) = (heads as usize, dim as usize);
    for token in 0..tokens {
        let at = token as usize;
        for pool in 0..((position + token + 1) / kpool) as usize {
            let head = |h: usize| {
                let q = &q[(at * heads + h) * dim..][..dim];
                let key = &pool_keys[pool * dim..][..dim];
                let dot: f64 = q.iter().zip(key).map(|(&q, &k)| f64::from(q) * f64::from(k)).sum();
                let product = dot / (dim as f64).sqrt();
                // Not f64::max, which would lose a NaN.
                let rectified = if product < 0.0 { 0.0 } else { product };
                f64::from(weights[at * w_stride as usize + h]) / (heads as f64).sqrt() * rectified
            };
            scores[at * max_pools as usize + pool] = (0..heads).map(head).sum();
        }
    }
}

fn select_reference(
    scores: &[f32],
    position: u32,
    pools: &mut [u32],
    count: &mut [u32],
    kpool: u32,
    top: u32,
    max_pools: u32,
    tokens: u32,
) {
    for token in 0..tokens {
        let complete = (position + token + 1) / kpool;
        let own = &scores[(token * max_pools) as usize..][..complete as usize];
        let mut order: Vec<u32> = (0..complete).collect();
        // Stable: equal scores stay in order of index. NaN goes last.
        order.sort_by(|&a, &b| {
            let (a, b) = (own[a as usize], own[b as usize]);
            b.partial_cmp(&a).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
        });
        order.truncate(top as usize);
        order.sort_unstable();
        count[token as usize] = order.len() as u32;
        pools[(token * top) as usize..][..order.len()].copy_from_slice(&order);
    }
}

/// `(dim, kpool, tokens, x_stride, position)`: a pool completed at once, by the last of the chunk, by none, several.
fn append_cases() -> Vec<Case> {
    let case = |&(dim, kpool, tokens, stride, position): &(u32, u32, u32, u32, u32)| {
        Case::new(format!(
            "{dim} channels of stride {stride}, pools of {kpool}, {tokens} tokens at {position}"
        ))
        .u32("dim", dim)
        .u32("kpool", kpool)
        .f32("eps", 1e-6)
        .u32("tokens", tokens)
        .u32("x_stride", stride)
        .counter("position", position)
        .len("pool_keys", ((position + tokens).div_ceil(kpool) * dim) as usize)
    };
    let shapes = [
        (32, 4, 1, 32, 0),
        (32, 4, 1, 68, 3),
        (32, 4, 5, 128, 2),
        (128, 4, 2, 128, 6),
        (64, 4, 13, 64, 0),
        (96, 1, 2, 100, 5),
        (1024, 2, 3, 1024, 1),
        (32, 8, 1, 32, 15),
    ];
    let mut cases: Vec<Case> = shapes.iter().map(case).collect();
    let model = [(128, 4, 1, 2208, 4095), (128, 4, 64, 2208, 4096)];
    cases.extend(model.iter().map(|shape| case(shape).representative()));
    cases
}

/// `(heads, dim, kpool, tokens, w_stride, position)`: no pool yet, one, more than a warp takes, more than a block.
fn scores_cases() -> Vec<Case> {
    let case = |&(heads, dim, kpool, tokens, stride, position): &(u32, u32, u32, u32, u32, u32)| {
        let pools = (position + tokens) / kpool;
        Case::new(format!("{heads} heads of {dim}, {pools} pools of {kpool}, {tokens} tokens"))
            .u32("heads", heads)
            .u32("dim", dim)
            .u32("kpool", kpool)
            .u32("max_pools", pools + 3)
            .u32("tokens", tokens)
            .u32("w_stride", stride)
            .counter("position", position)
            .len("pool_keys", ((pools + 3) * dim) as usize)
    };
    let shapes = [
        (4, 32, 4, 1, 4, 4),
        (4, 32, 4, 5, 104, 1),
        (4, 32, 4, 2, 8, 150),
        (32, 128, 4, 1, 32, 270),
        (3, 160, 2, 1, 3, 66),
        (1, 512, 1, 2, 1, 7),
    ];
    let mut cases: Vec<Case> = shapes.iter().map(case).collect();
    let model = [(32, 128, 4, 1, 2208, 16383), (32, 128, 4, 16, 2208, 16384)];
    cases.extend(model.iter().map(|shape| case(shape).representative()));
    cases
}

fn select_case(label: &str, kpool: u32, top: u32, tokens: u32, position: u32) -> Case {
    Case::new(format!("{label}, {tokens} tokens at {position}, top {top}"))
        .u32("kpool", kpool)
        .u32("top", top)
        .u32("max_pools", (position + tokens) / kpool + 1)
        .u32("tokens", tokens)
        .counter("position", position)
}

fn select_cases() -> Vec<Case> {
    let fill = |pools: u32, f: &dyn Fn(u32) -> f32| (0..pools).map(f).collect::<Vec<f32>>();
    // `tokens` 1, so that scores are one row of max_pools = position + 2 (pools of one position).
    let odd = |i: u32| match i % 6 {
        0 => f32::NAN,
        1 => -0.0,
        2 => 0.0,
        3 => f32::NEG_INFINITY,
        4 => -f32::NAN,
        _ => (i % 13) as f32 - 6.0,
    };
    let lowest = |i: u32| if i.is_multiple_of(3) { f32::NEG_INFINITY } else { f32::NAN };
    let large = |i: u32| if i.is_multiple_of(5) { f32::INFINITY } else { f32::MAX / (1 + i % 3) as f32 };
    let mut cases = vec![
        select_case("none", 4, 4, 1, 0),
        select_case("fewer", 4, 16, 5, 12),
        select_case("one more than may be", 4, 4, 5, 15),
        select_case("normal", 4, 33, 2, 600),
        select_case("normal", 4, 512, 1, 8199),
        select_case("normal", 2, 1025, 1, 6000),
        select_case("equal", 1, 40, 1, 2999).values("scores", &fill(3001, &|_| -2.5)),
        select_case("ties", 1, 100, 1, 2400).values("scores", &fill(2402, &|i| (i % 7) as f32)),
        select_case("neighbours", 1, 100, 1, 400)
            .values("scores", &fill(402, &|i| f32::from_bits(0x3f80_0000 + i.wrapping_mul(149) % 401))),
        select_case("odd", 1, 50, 1, 98).values("scores", &fill(100, &odd)),
        select_case("all NaN or −∞", 1, 30, 1, 60).values("scores", &fill(62, &lowest)),
        select_case("large", 1, 9, 1, 61).values("scores", &fill(63, &large)),
        select_case("rising", 1, 1, 1, 2047).values("scores", &fill(2049, &|i| i as f32)),
    ];
    // Scores of a trained model lie close together: the high bits of the key tell little.
    cases.push(select_case("close", 4, 64, 2, 4000).fill("scores", Fill::Uniform(1.0, 1.0001)));
    cases.push(select_case("normal", 4, 512, 1, 131_071).representative());
    cases.push(select_case("normal", 4, 512, 64, 16_384).representative());
    cases
}

/// For each token its key, `LayerNorm(k) · k_weight + k_bias` (biased variance), and its gate to their rings' slots,
/// `(*position + t) mod kpool`; where the token completes a pool, `pool_keys[pool] = Σ_t softmax_t(gate_t + ape[t]) · k_t`, a
/// softmax for each channel.
///
/// One block, a thread a channel (a multiple of 32, at most 1024), token after token: rings and pool keys do not depend
/// on the chunk's length. Rows of `k` and `gate` begin `x_stride` floats apart.
///
/// The tolerance: the mean's error and that of the norm, a few roundings, of values of a few; the softmax adds the
/// rounding of `exp` and of its sums.
#[kernel(module = "indexer", entry = "indexer_append", reference = append_reference, cases = append_cases, tol = 5e-7)]
#[launch(grid = (append_blocks(dim), 1, 1), block = (dim, 1, 1), dependent)]
#[cost(
    read = 4 * (2 * tokens + 2 + kpool) * dim,
    write = 4 * (2 * tokens * dim + tokens.div_ceil(kpool) * dim),
    flops = 12 * tokens * dim
)]
pub fn indexer_append(
    #[len((tokens - 1) * x_stride + dim)] k: &[f32],
    #[len((tokens - 1) * x_stride + dim)] gate: &[f32],
    #[len(dim)] k_weight: &[f32],
    #[len(dim)] k_bias: &[f32],
    #[len(kpool * dim)] ape: &[f32],
    #[len(kpool * dim)] k_ring: &mut [f32],
    #[len(kpool * dim)] gate_ring: &mut [f32],
    #[len(dim)] pool_keys: &mut [f32],
    position: &Counter,
    dim: u32,
    kpool: u32,
    eps: f32,
    tokens: u32,
    x_stride: u32,
);

/// `scores[t, p] = Σ_h weights[t, h] · heads^-½ · relu(q[t, h] · pool_keys[p] · dim^-½)` for the pools complete at the token,
/// heads in order. Block (32 pools, token), a warp four pools; blocks past the complete pools leave at once. `dim` is a
/// multiple of 4, at most 512; rows of `weights` begin `w_stride` floats apart.
///
/// The tolerance: each product has the error of a short chain and a butterfly, and their weighted sum over the heads,
/// of both signs, that of its largest terms.
#[kernel(module = "indexer", entry = "indexer_scores", reference = scores_reference, cases = scores_cases, tol = 5e-7)]
#[launch(
    grid = (score_blocks(max_pools, dim), tokens, 1),
    block = (256, 1, 1),
    shared = 4 * (heads.div_ceil(4) * 4 + heads * dim)
, dependent)]
#[cost(
    read = q.bytes() + 4 * max_pools * dim,
    write = scores.bytes(),
    flops = 2 * tokens * max_pools * heads * dim
)]
pub fn indexer_scores(
    #[len(tokens * heads * dim)] q: &[f32],
    #[len((tokens - 1) * w_stride + heads)] weights: &[f32],
    #[len(dim)] pool_keys: &[f32],
    position: &Counter,
    #[out]
    #[len(tokens * max_pools)]
    scores: &mut [f32],
    heads: u32,
    dim: u32,
    kpool: u32,
    max_pools: u32,
    tokens: u32,
    w_stride: u32,
);

/// The pools that a token sees, ascending, and how many: all that are complete, `n = (*position + t + 1) / kpool`, where they are
/// no more than `top`; else the `top` with the highest scores, of equal ones the lowest index, NaN the lowest score. A block
/// a token: radix selection over the scores' bits.
#[kernel(module = "indexer", entry = "indexer_select", reference = select_reference, cases = select_cases, tol = 0)]
#[launch(grid = (tokens, 1, 1), block = (1024, 1, 1), dependent)]
#[cost(read = scores.bytes(), write = pools.bytes() + count.bytes(), flops = 5 * tokens * max_pools)]
pub fn indexer_select(
    #[len(tokens * max_pools)] scores: &[f32],
    position: &Counter,
    #[out]
    #[len(tokens * top)]
    pools: &mut [u32],
    #[out]
    #[len(tokens)]
    count: &mut [u32],
    kpool: u32,
    top: u32,
    max_pools: u32,
    tokens: u32,
);
