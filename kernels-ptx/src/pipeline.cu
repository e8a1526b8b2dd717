// Between the stages of a model that is split over devices: what one stage made is stored where the next one reads it, in
// the memory of another device if that is reached.
#include "bw_prototypes.cuh"
#include "dependent.cuh"

// y[i] = x[i], bit for bit. A thread 4 elements: one 16-byte vector where both x and y lie on 16 bytes, which whole buffers
// do, one by one otherwise and at the end.
extern "C" __global__ void __launch_bounds__(256) hop(const float* x, float* y, uint32_t n) {
  bw::dependent_begin();
  const uint64_t first = (static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * 4;
  const bool vectors = ((reinterpret_cast<uint64_t>(x) | reinterpret_cast<uint64_t>(y)) & 15) == 0;
  if (vectors && first + 4 <= n) {
    *reinterpret_cast<uint4*>(y + first) = *reinterpret_cast<const uint4*>(x + first);
    return;
  }
  for (uint64_t i = first; i < first + 4 && i < n; ++i) {
    reinterpret_cast<uint32_t*>(y)[i] = reinterpret_cast<const uint32_t*>(x)[i];
  }
}

// tokens[*position] = incoming[0]: the token that the last stage handed back, where the first one reads it.
extern "C" __global__ void __launch_bounds__(32) take_token(const uint32_t* incoming, uint32_t* tokens, const uint32_t* position) {
  bw::dependent_begin();
  if (threadIdx.x == 0) tokens[*position] = incoming[0];
}

// out[0] = tokens[*position]: the token that the last stage chose, to be handed back.
extern "C" __global__ void __launch_bounds__(32) hop_token(const uint32_t* tokens, const uint32_t* position, uint32_t* out) {
  bw::dependent_begin();
  if (threadIdx.x == 0) out[0] = tokens[*position];
}
