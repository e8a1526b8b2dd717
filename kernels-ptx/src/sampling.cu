// Sampling on the device: repetition penalty, top-k, top-p, min-p, temperature, in that order, and a draw.
//
// Probabilities are integers: a logit's mass is exp(logit − largest) in units of 2^-40. Sums of integers do not depend on their
// order, so blocks may add them as they come and every device still draws the same token. A tail of less than 2^-40 of the
// likeliest token's probability has mass 0 and is never drawn.
//
// Finding the k likeliest, or the fewest that hold a share p, needs no sorting. A histogram over the distance from the largest
// logit tells which bins can hold them (sample_histogram); what is in those bins is gathered, in order of index
// (sample_gather); one block then finds the exact cut among the gathered by radix selection, and draws (sample_draw). Equal
// logits rank by index, the lowest first.
#include "bw_math.cuh"
#include "bw_prototypes.cuh"
#include "dependent.cuh"
#include "warp.cuh"

using namespace bw;

namespace bw {

constexpr uint32_t THREADS = 256;         // of all kernels but the last
constexpr uint32_t DRAW_THREADS = 1024;   // of sample_draw
constexpr uint32_t BINS = 2048;           // of the histogram: 64 a unit of distance, so the last begins at 31.98
constexpr uint32_t RUN = 8192;            // logits a part may have
constexpr uint32_t PARTS = 256;           // parts there may be

// Words of the parameters.
constexpr uint32_t TEMPERATURE = 0;  // float
constexpr uint32_t REPEAT = 1;       // float: the repetition penalty
constexpr uint32_t TOP_K = 2;        // 0: off
constexpr uint32_t TOP_P = 3;        // in units of 2^-32; 0: off
constexpr uint32_t MIN_P = 4;        // float; 0: off
constexpr uint32_t MIN_P_BIN = 5;    // no logit that MIN_P keeps lies in a later bin
constexpr uint32_t SEED_LOW = 6, SEED_HIGH = 7;

__device__ __forceinline__ float minus_infinity() { return __int_as_float(0xff800000); }

// The run of the vocabulary that the b-th of `parts` parts has.
struct Run {
  uint32_t first, end;
};

__device__ __forceinline__ Run run_of(uint32_t b, uint32_t vocab, uint32_t parts) {
  const uint32_t run = (vocab + parts - 1) / parts;
  const uint32_t first = min(b * run, vocab);
  return {first, min(first + run, vocab)};
}

// How far below the largest; 0 for the largest itself even where it is infinite.
__device__ __forceinline__ float distance(float largest, float v) { return v == largest ? 0.0f : largest - v; }

__device__ __forceinline__ uint32_t bin_of(float d) { return static_cast<uint32_t>(fminf(d * 64.0f, 2047.0f)); }

// exp(−d) in units of 2^-40, truncated. Shifts of the significand: no conversion that a device could round otherwise.
__device__ __forceinline__ uint64_t mass_of(float d) {
  const uint32_t bits = __float_as_uint(bw::exp(-d));
  const uint64_t significand = (bits & 0x7fffffu) | 0x800000u;
  const int32_t shift = static_cast<int32_t>(bits >> 23) - (127 + 23 - 40);
  if (shift >= 0) return significand << shift;
  return shift > -24 ? significand >> -shift : 0;
}

// Keys order as the floats do (no NaN among them).
__device__ __forceinline__ uint32_t key_of(float v) {
  const uint32_t bits = __float_as_uint(v);
  return bits ^ (static_cast<uint32_t>(static_cast<int32_t>(bits) >> 31) | 0x80000000u);
}

__device__ __forceinline__ float value_of(uint32_t key) {
  return __uint_as_float(key ^ ((key & 0x80000000u) != 0 ? 0x80000000u : 0xffffffffu));
}

// ⌈total · p / 2^32⌉ for total < 2^58.
__device__ __forceinline__ uint64_t share_of(uint64_t total, uint32_t p) {
  return (total >> 32) * p + (((total & 0xffffffffu) * p + 0xffffffffu) >> 32);
}

__device__ __forceinline__ void add(uint64_t* sum, uint64_t v) {
  atomicAdd(reinterpret_cast<unsigned long long*>(sum), static_cast<unsigned long long>(v));
}

__device__ __forceinline__ uint64_t warp_sum(uint64_t v) {
#pragma unroll
  for (uint32_t step = 16; step != 0; step >>= 1) v += __shfl_xor_sync(FULL_MASK, v, step);
  return v;
}

// Sum over the lanes up to this one.
__device__ __forceinline__ uint64_t warp_scan(uint64_t v) {
#pragma unroll
  for (uint32_t step = 1; step != WARP; step <<= 1) {
    const uint64_t below = __shfl_up_sync(FULL_MASK, v, step);
    if (lane_id() >= step) v += below;
  }
  return v;
}

// The largest of `best[parts]`, in every thread of a block of WARPS warps.
template <uint32_t WARPS>
__device__ __forceinline__ float largest_of(const float* best, uint32_t parts) {
  __shared__ float warp_best[WARPS];
  float v = threadIdx.x < parts ? best[threadIdx.x] : minus_infinity();
  v = butterfly_max<WARP>(v);
  if (lane_id() == 0) warp_best[warp_id()] = v;
  __syncthreads();
  v = warp_best[0];
#pragma unroll
  for (uint32_t w = 1; w < WARPS; ++w) v = fmaxf(v, warp_best[w]);
  return v;
}

// The last bin that can hold a token to be kept. With top-k, the bin of the k-th; without, the bin where top-p's share is
// reached, and never one past MIN_P's. A block of THREADS; count and mass are the whole vocabulary's.
__device__ __forceinline__ uint32_t last_bin(const uint32_t* parameters, const uint32_t* count, const uint64_t* mass) {
  __shared__ uint64_t warp_total[THREADS / WARP];
  __shared__ uint32_t found;
  const uint32_t top_k = parameters[TOP_K], top_p = parameters[TOP_P], min_p_bin = parameters[MIN_P_BIN];
  if (top_k == 0 && top_p == 0) return min_p_bin;
  constexpr uint32_t EACH = BINS / THREADS;
  const uint32_t first = threadIdx.x * EACH;
  uint64_t own = 0;
  for (uint32_t b = first; b < first + EACH; ++b) own += top_k != 0 ? count[b] : mass[b];
  const uint64_t scanned = warp_scan(own);
  if (lane_id() == WARP - 1) warp_total[warp_id()] = scanned;
  if (threadIdx.x == 0) found = BINS - 1;
  __syncthreads();
  uint64_t before = scanned - own, total = 0;
  for (uint32_t w = 0; w < THREADS / WARP; ++w) {
    if (w < warp_id()) before += warp_total[w];
    total += warp_total[w];
  }
  const uint64_t target = top_k != 0 ? top_k : share_of(total, top_p);
  if (before < target && target <= before + own) {
    uint32_t b = first;
    while (true) {
      before += top_k != 0 ? count[b] : mass[b];
      if (before >= target) break;
      ++b;
    }
    found = b;
  }
  __syncthreads();
  return top_k != 0 ? found : min(found, min_p_bin);
}

// The first word pair of Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011).
__device__ __forceinline__ uint64_t philox(uint32_t counter, uint32_t key_low, uint32_t key_high) {
  uint32_t x0 = counter, x1 = 0, x2 = 0, x3 = 0;
  for (uint32_t round = 0; round < 10; ++round) {
    const uint64_t a = static_cast<uint64_t>(0xD2511F53u) * x0, b = static_cast<uint64_t>(0xCD9E8D57u) * x2;
    x0 = static_cast<uint32_t>(b >> 32) ^ x1 ^ key_low;
    x1 = static_cast<uint32_t>(b);
    x2 = static_cast<uint32_t>(a >> 32) ^ x3 ^ key_high;
    x3 = static_cast<uint32_t>(a);
    key_low += 0x9E3779B9u;
    key_high += 0xBB67AE85u;
  }
  return static_cast<uint64_t>(x1) << 32 | x0;
}

// What sample_gather gathered, as one list in order of index. Warps own runs of whole parts, in order.
struct Gathered {
  const float* value;
  const uint32_t* index;
  const uint32_t* taken;  // in shared memory
  uint32_t vocab, parts, first, end;

  // f(whether there is an element, its value, its index) for the warp's elements in order, all lanes together.
  template <class F>
  __device__ __forceinline__ void each(F f) const {
    for (uint32_t p = first; p < end; ++p) {
      const uint32_t base = run_of(p, vocab, parts).first, n = taken[p];
      for (uint32_t j = 0; j < n; j += WARP) {
        const uint32_t at = j + lane_id();
        const bool there = at < n;
        f(there, there ? value[base + at] : 0.0f, there ? index[base + at] : 0u);
      }
    }
  }
};

// Which are kept: those above `key`, and those equal to it up to index `index`.
struct Cut {
  uint32_t key, index;

  __device__ __forceinline__ bool keeps(uint32_t k, uint32_t i) const { return k > key || (k == key && i <= index); }
};

// Shared memory of sample_draw.
struct DrawShared {
  uint64_t bins[256];
  uint64_t warp_total[DRAW_THREADS / WARP];
  uint64_t before;
  uint32_t digit, found;
  uint32_t taken[PARTS];
};

// The sum of w over the list, in every thread; the warps' sums stay in `s` for `find`.
template <class W>
__device__ __forceinline__ uint64_t sum(const Gathered& list, DrawShared& s, W w) {
  uint64_t own = 0;
  list.each([&](bool there, float v, uint32_t i) { own += there ? w(v, i) : 0; });
  own = warp_sum(own);
  __syncthreads();
  if (lane_id() == 0) s.warp_total[warp_id()] = own;
  __syncthreads();
  uint64_t total = 0;
  for (uint32_t k = 0; k < DRAW_THREADS / WARP; ++k) total += s.warp_total[k];
  return total;
}

// The index of the element where the running sum of w first exceeds r; `sum` of the same w was called before and gave more.
template <class W>
__device__ __forceinline__ uint32_t find(const Gathered& list, DrawShared& s, uint64_t r, W w) {
  uint64_t before = 0;
  for (uint32_t k = 0; k < warp_id(); ++k) before += s.warp_total[k];
  if (before <= r && r < before + s.warp_total[warp_id()]) {
    list.each([&](bool there, float v, uint32_t i) {
      const uint64_t own = there ? w(v, i) : 0;
      const uint64_t scanned = before + warp_scan(own);
      if (scanned - own <= r && r < scanned) s.found = i;
      before = __shfl_sync(FULL_MASK, scanned, WARP - 1);
    });
  }
  __syncthreads();
  return s.found;
}

// Narrows `cut` to the fewest, best first, whose w adds up to `target`; leaves it where all of them do not. w depends on the
// value only. Eight bits of the key at a time, then the ties by index.
template <class W>
__device__ __forceinline__ Cut narrow(const Gathered& list, DrawShared& s, Cut cut, uint64_t target, W w) {
  uint32_t prefix = 0;
  for (int32_t shift = 24; shift >= 0; shift -= 8) {
    for (uint32_t b = threadIdx.x; b < 256; b += DRAW_THREADS) s.bins[b] = 0;
    if (threadIdx.x == 0) s.digit = 256;
    __syncthreads();
    list.each([&](bool there, float v, uint32_t i) {
      const uint32_t key = key_of(v);
      if (!there || !cut.keeps(key, i)) return;
      if (shift != 24 && ((key ^ prefix) >> (shift + 8)) != 0) return;
      const uint64_t own = w(v);
      if (own != 0) add(&s.bins[key >> shift & 255u], own);
    });
    __syncthreads();
    if (warp_id() == 0) {
      // Lane l has the eight digits from 255 − 8·l down.
      const uint32_t first = 255 - 8 * lane_id();
      uint64_t own = 0;
      for (uint32_t b = 0; b < 8; ++b) own += s.bins[first - b];
      const uint64_t scanned = warp_scan(own);
      uint64_t before = scanned - own;
      if (before < target && target <= scanned) {
        uint32_t digit = first;
        while (before + s.bins[digit] < target) before += s.bins[digit--];
        s.digit = digit;
        s.before = before;
      }
    }
    __syncthreads();
    if (s.digit == 256) return cut;
    prefix |= s.digit << shift;
    target -= s.before;
    __syncthreads();
  }
  // Of the ties at `prefix`, `target` worth are kept.
  const float tie = value_of(prefix);
  const uint64_t each = w(tie);
  const uint64_t wanted = (target + each - 1) / each;
  const auto one = [&](float v, uint32_t i) -> uint64_t { return v == tie && cut.keeps(prefix, i) ? 1 : 0; };
  sum(list, s, one);
  return {prefix, find(list, s, wanted - 1, one)};
}

}  // namespace bw

// adjusted = logits with the penalty on every token of tokens[..= *position]: divided by it where positive, else multiplied.
// NaN becomes −∞, −0 becomes 0. best[b] is the largest of part b. The histogram is cleared for the next kernel. A block a part.
extern "C" __global__ void __launch_bounds__(256) sample_adjust(const float* logits, const uint32_t* tokens, const uint32_t* position, const uint32_t* parameters, float* adjusted, float* best, uint32_t* count, uint64_t* mass, uint32_t vocab, uint32_t parts) {
  dependent_begin();
  __shared__ uint32_t seen[RUN / 32];
  __shared__ float warp_best[THREADS / WARP];
  for (uint32_t b = blockIdx.x * THREADS + threadIdx.x; b < BINS; b += parts * THREADS) {
    count[b] = 0;
    mass[b] = 0;
  }
  const Run run = run_of(blockIdx.x, vocab, parts);
  const uint32_t length = run.end - run.first;
  const float penalty = __uint_as_float(parameters[REPEAT]);
  const bool penalised = penalty != 1.0f;
  if (penalised) {
    for (uint32_t w = threadIdx.x; w < RUN / 32; w += THREADS) seen[w] = 0;
    __syncthreads();
    const uint32_t last = *position;
    for (uint32_t p = threadIdx.x; p <= last; p += THREADS) {
      const uint32_t at = tokens[p] - run.first;
      if (at < length) atomicOr(&seen[at / 32], 1u << (at % 32));
    }
    __syncthreads();
  }
  float largest = minus_infinity();
  for (uint32_t at = threadIdx.x; at < length; at += THREADS) {
    float v = logits[run.first + at];
    if (penalised && (seen[at / 32] >> (at % 32) & 1u) != 0) v = v > 0.0f ? v / penalty : v * penalty;
    v = v != v ? minus_infinity() : (v == 0.0f ? 0.0f : v);
    adjusted[run.first + at] = v;
    largest = fmaxf(largest, v);
  }
  largest = butterfly_max<WARP>(largest);
  if (lane_id() == 0) warp_best[warp_id()] = largest;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (uint32_t w = 1; w < THREADS / WARP; ++w) largest = fmaxf(largest, warp_best[w]);
    best[blockIdx.x] = largest;
  }
}

// Adds to count and mass how many logits lie in each bin of distance from the largest, and their mass. A block a part.
extern "C" __global__ void __launch_bounds__(256) sample_histogram(const float* adjusted, const float* best, uint32_t* count, uint64_t* mass, uint32_t vocab, uint32_t parts) {
  dependent_begin();
  __shared__ uint64_t masses[BINS];
  __shared__ uint32_t counts[BINS];
  for (uint32_t b = threadIdx.x; b < BINS; b += THREADS) {
    counts[b] = 0;
    masses[b] = 0;
  }
  const float largest = largest_of<THREADS / WARP>(best, parts);  // synchronises
  const Run run = run_of(blockIdx.x, vocab, parts);
  for (uint32_t i = run.first + threadIdx.x; i < run.end; i += THREADS) {
    const float d = distance(largest, adjusted[i]);
    const uint32_t bin = bin_of(d);
    atomicAdd(&counts[bin], 1u);
    const uint64_t own = mass_of(d);
    if (own != 0) add(&masses[bin], own);
  }
  __syncthreads();
  for (uint32_t b = threadIdx.x; b < BINS; b += THREADS) {
    if (counts[b] != 0) atomicAdd(&count[b], counts[b]);
    if (masses[b] != 0) add(&mass[b], masses[b]);
  }
}

// Part b's logits that may be kept, in order of index, to value and index from the start of its run on; how many to taken[b].
// A block a part.
extern "C" __global__ void __launch_bounds__(256) sample_gather(const float* adjusted, const float* best, const uint32_t* parameters, const uint32_t* count, const uint64_t* mass, float* value, uint32_t* index, uint32_t* taken, uint32_t vocab, uint32_t parts) {
  dependent_begin();
  __shared__ uint32_t warp_count[THREADS / WARP];
  const float largest = largest_of<THREADS / WARP>(best, parts);
  const uint32_t last = last_bin(parameters, count, mass);
  const Run run = run_of(blockIdx.x, vocab, parts);
  uint32_t at = run.first;
  for (uint32_t base = run.first; base < run.end; base += THREADS) {
    const uint32_t i = base + threadIdx.x;
    const float v = i < run.end ? adjusted[i] : minus_infinity();
    const bool take = i < run.end && bin_of(distance(largest, v)) <= last;
    const uint32_t votes = __ballot_sync(FULL_MASK, take);
    if (lane_id() == 0) warp_count[warp_id()] = __popc(votes);
    __syncthreads();
    uint32_t before = 0, all = 0;
#pragma unroll
    for (uint32_t w = 0; w < THREADS / WARP; ++w) {
      if (w < warp_id()) before += warp_count[w];
      all += warp_count[w];
    }
    if (take) {
      const uint32_t to = at + before + __popc(votes & ((1u << lane_id()) - 1));
      value[to] = v;
      index[to] = i;
    }
    at += all;
    __syncthreads();
  }
  if (threadIdx.x == 0) taken[blockIdx.x] = at - run.first;
}

// tokens[*position + 1] = a token drawn from those kept; *position += 1. One block.
extern "C" __global__ void __launch_bounds__(1024) sample_draw(const float* best, const uint32_t* parameters, const uint64_t* mass, const float* value, const uint32_t* index, const uint32_t* taken, uint32_t* tokens, uint32_t* position, uint32_t vocab, uint32_t parts) {
  dependent_begin();
  __shared__ DrawShared s;
  const uint32_t next = *position + 1;
  const float largest = largest_of<DRAW_THREADS / WARP>(best, parts);
  if (threadIdx.x < parts) s.taken[threadIdx.x] = taken[threadIdx.x];
  const uint32_t each = (parts + DRAW_THREADS / WARP - 1) / (DRAW_THREADS / WARP);
  const uint32_t first = min(warp_id() * each, parts);
  const Gathered list = {value, index, s.taken, vocab, parts, first, min(first + each, parts)};
  __syncthreads();
  uint32_t token = 0;
  if (largest > minus_infinity()) {
    const uint32_t top_k = parameters[TOP_K], top_p = parameters[TOP_P];
    const float temperature = __uint_as_float(parameters[TEMPERATURE]), min_p = __uint_as_float(parameters[MIN_P]);
    Cut cut = {0, 0xffffffffu};
    if (top_k != 0) cut = narrow(list, s, cut, top_k, [](float) -> uint64_t { return 1; });
    if (top_p != 0) {
      // The share is of what top-k kept. Without top-k that is the whole vocabulary, of which the list may lack the tail.
      const auto kept = [&](float v, uint32_t i) { return cut.keeps(key_of(v), i) ? mass_of(distance(largest, v)) : 0; };
      uint64_t total;
      if (top_k != 0) {
        total = sum(list, s, kept);
      } else {
        uint64_t own = 0;
        for (uint32_t b = threadIdx.x; b < BINS; b += DRAW_THREADS) own += mass[b];
        own = warp_sum(own);
        if (lane_id() == 0) s.warp_total[warp_id()] = own;
        __syncthreads();
        total = 0;
        for (uint32_t k = 0; k < DRAW_THREADS / WARP; ++k) total += s.warp_total[k];
      }
      cut = narrow(list, s, cut, share_of(total, top_p), [&](float v) { return mass_of(distance(largest, v)); });
    }
    const auto weight = [&](float v, uint32_t i) -> uint64_t {
      const float d = distance(largest, v);
      if (!cut.keeps(key_of(v), i) || bw::exp(-d) < min_p) return 0;
      return mass_of(d / temperature);
    };
    const uint64_t total = sum(list, s, weight);
    token = find(list, s, __umul64hi(philox(next, parameters[SEED_LOW], parameters[SEED_HIGH]), total), weight);
  }
  if (threadIdx.x == 0) {
    tokens[next] = token;
    *position = next;
  }
}
