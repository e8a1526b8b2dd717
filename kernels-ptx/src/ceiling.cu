// How fast memory can be read: what measured times are set against. Reads everything once and keeps next to nothing.
#include "bw_prototypes.cuh"
#include "warp.cuh"

using namespace bw;

// folded[b] = the exclusive-or of the words that block b reads: quads b·256 + t, and every gridDim·256 on. Four loads of 16 bytes
// are in flight a thread.
extern "C" __global__ void __launch_bounds__(256) read_only(const uint32_t* words, uint32_t* folded, uint32_t quads, uint32_t blocks) {
  __shared__ uint32_t warp_folded[8];
  const uint4* data = reinterpret_cast<const uint4*>(words);
  const uint64_t stride = static_cast<uint64_t>(blocks) * 256;
  uint32_t own = 0;
  uint64_t i = static_cast<uint64_t>(blockIdx.x) * 256 + threadIdx.x;
  for (; i + 3 * stride < quads; i += 4 * stride) {
    const uint4 a = __ldcs(data + i), b = __ldcs(data + i + stride);
    const uint4 c = __ldcs(data + i + 2 * stride), d = __ldcs(data + i + 3 * stride);
    own ^= a.x ^ a.y ^ a.z ^ a.w ^ b.x ^ b.y ^ b.z ^ b.w ^ c.x ^ c.y ^ c.z ^ c.w ^ d.x ^ d.y ^ d.z ^ d.w;
  }
  for (; i < quads; i += stride) {
    const uint4 a = __ldcs(data + i);
    own ^= a.x ^ a.y ^ a.z ^ a.w;
  }
#pragma unroll
  for (uint32_t step = 16; step != 0; step >>= 1) own ^= __shfl_xor_sync(FULL_MASK, own, step);
  if (lane_id() == 0) warp_folded[warp_id()] = own;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (uint32_t w = 1; w < 8; ++w) own ^= warp_folded[w];
    folded[blockIdx.x] = own;
  }
}
