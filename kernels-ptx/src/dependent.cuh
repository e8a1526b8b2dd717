// Programmatic dependent launch: a kernel begins while the launch ahead of it is still running, and waits for it itself.
//
// A kernel declared `dependent` (`#[launch(…, dependent)]`) calls, in this order and on every path, leaving early included:
//
//   1. `bw::dependent_trigger()`: this launch no longer holds the next one back. A kernel whose blocks stay until the end (rows.cuh)
//      triggers here, so that blocks of the next launch are placed as soon as there is room; others after the wait;
//   2. what reads only weights, tables and the launch's own scalars: copies and loads, prefetches, indices;
//   3. `bw::dependent_wait()`: every thread waits until the launch ahead has ended and its memory can be seen;
//   4. everything else: reads of what launches write (activations, counters, caches), and all stores and atomics.
//
// The next launch begins once all blocks here have triggered or left. What it does before its own wait runs beside this launch, and, where
// this one triggered before its wait, beside those that this one has not yet waited for: so nothing that any launch of the walk
// writes is read before a wait. Its wait is for this launch to end, which waited for the one before, and so on: what launch N + 2 reads
// of launch N's it sees by way of launch N + 1, as long as every thread of N + 1 waits. A thread that leaves without waiting
// breaks that chain two launches on, where nobody looks for it: `cargo xtask ptx` refuses it.
//
// A trigger is no store barrier and needs none: the next launch's wait is for the end of this one, not for its trigger. Blocks
// of the next launch cannot starve blocks of this one: none is placed until all of these have begun and triggered.
#pragma once

namespace bw {

// Waits for the launch ahead. Below compute capability 9.0 launches run one after the other and there is nothing to wait for.
// No access to memory is moved across it by the compiler.
__device__ __forceinline__ void dependent_wait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Lets the launch behind begin. Once a thread of each block is enough; all may call it.
__device__ __forceinline__ void dependent_trigger() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// The wait, then the trigger: the first line of a kernel that has nothing to do before.
__device__ __forceinline__ void dependent_begin() {
  dependent_wait();
  dependent_trigger();
}

}  // namespace bw
