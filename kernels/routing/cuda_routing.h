// Data that the routing kernel shares among the lanes of a warp and the threads of a block. Only
// for routing.cu.
#pragma once

#include <cuda_runtime.h>

#include "kernels/core/cuda_warp.h"
#include "kernels/routing/core.h"

namespace plumbline {

constexpr unsigned kAll = 0xffffffffu;

// The reductions of a row, in addition to the warp's own.
struct RoutingWarp : DeviceWarp {
  template <typename T>
  __device__ __forceinline__ static T Sum(const Var<T>& var) {
    T v = var.v;
    for (int step = kRowLanes / 2; step > 0; step /= 2) v += __shfl_xor_sync(kAll, v, step);
    return v;
  }
  __device__ __forceinline__ static double Max(const Var<double>& var) {
    double v = var.v;
    for (int step = kRowLanes / 2; step > 0; step /= 2) {
      const double other = __shfl_xor_sync(kAll, v, step);
      v = other > v ? other : v;
    }
    return v;
  }
  __device__ __forceinline__ static bool Any(const Var<bool>& var) {
    __syncwarp();
    return __any_sync(kAll, var.v) != 0;
  }
  __device__ __forceinline__ static uint32_t Ballot(const Var<bool>& var) {
    return __ballot_sync(kAll, var.v);
  }
  __device__ __forceinline__ static RankCandidate Best(const Var<RankCandidate>& var) {
    RankCandidate best = var.v;
    for (int step = kRowLanes / 2; step > 0; step /= 2) {
      const RankCandidate other{__shfl_xor_sync(kAll, best.key, step),
                                __shfl_xor_sync(kAll, best.x, step),
                                __shfl_xor_sync(kAll, best.index, step)};
      if (RanksBefore(other, best)) best = other;
    }
    return best;
  }
  template <typename T>
  __device__ __forceinline__ static T At(const Var<T>& var, int lane) {
    return __shfl_sync(kAll, var.v, lane);
  }
  __device__ __forceinline__ static RankCandidate At(const Var<RankCandidate>& var, int lane) {
    return {__shfl_sync(kAll, var.v.key, lane), __shfl_sync(kAll, var.v.x, lane),
            __shfl_sync(kAll, var.v.index, lane)};
  }
};

using Word = unsigned long long;

__device__ __forceinline__ Word* AsWord(uint64_t* p) { return reinterpret_cast<Word*>(p); }

struct DeviceOps {
  template <typename T>
  __device__ __forceinline__ static T Peek(const T* p) {
    return *static_cast<const volatile T*>(p);
  }
  __device__ __forceinline__ static uint32_t Add(uint32_t* p, uint32_t n) {
    return atomicAdd(p, n);
  }
  // Most offers do not raise a maximum: reading first saves the atomic.
  __device__ __forceinline__ static void Max(uint64_t* p, uint64_t v) {
    if (Peek(p) < v) atomicMax(AsWord(p), static_cast<Word>(v));
  }
  __device__ __forceinline__ static uint64_t Swap(uint64_t* p, uint64_t expected,
                                                  uint64_t desired) {
    return atomicCAS(AsWord(p), static_cast<Word>(expected), static_cast<Word>(desired));
  }
};

// Counts of a block, in shared memory.
struct BlockSink {
  RoutingCounts* counts;
  uint64_t* bad_index;  // in global memory: rare
  PoolMemory pools;     // in global memory

  __device__ void Fate(const RoutingPlan& plan, int64_t row, int32_t e, bool kept, bool padding) {
    CountFate<DeviceOps>(plan, pools, row, e, kept, padding);
  }

  __device__ void Add(uint64_t RoutingCounts::*member, uint64_t n) {
    atomicAdd(AsWord(&(counts->*member)), static_cast<Word>(n));
  }
  __device__ void AbsMax(uint64_t bits) {
    atomicMax(AsWord(&counts->abs_max_bits), static_cast<Word>(bits));
  }
  __device__ void Load(int32_t e) { atomicAdd(&counts->load[e], 1u); }
  __device__ void Refused(int32_t e) { atomicAdd(&counts->refused[e], 1u); }
  __device__ void DropBin(int bin) { atomicAdd(AsWord(&counts->drop_histogram[bin]), Word{1}); }
  __device__ void OfferBin(int bin, uint64_t n) {
    atomicAdd(AsWord(&counts->offered_histogram[bin]), static_cast<Word>(n));
  }
  __device__ void BadIndex(uint64_t key) { atomicMin(AsWord(bad_index), static_cast<Word>(key)); }
};

// Sums one value per thread as the tree in RoutingRaw's comment; thread 0 gets the result.
__device__ inline double SumTree(double* shared, double v) {
  shared[threadIdx.x] = v;
  for (int step = kTileRows / 2; step > 0; step /= 2) {
    __syncthreads();
    if (threadIdx.x < static_cast<unsigned>(step))
      shared[threadIdx.x] += shared[threadIdx.x + step];
  }
  __syncthreads();
  const double sum = shared[0];
  __syncthreads();
  return sum;
}

}  // namespace plumbline
