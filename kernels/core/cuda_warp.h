// The warp of the tiles and of routing on a device: a thread is one lane. Only for .cu files.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace plumbline {

struct DeviceWarp {
  template <typename T>
  struct Var {
    T v;
    __device__ __forceinline__ T& operator[](int) { return v; }
    __device__ __forceinline__ const T& operator[](int) const { return v; }
  };

  template <typename F>
  __device__ __forceinline__ static void Each(F f) {
    f(static_cast<int>(threadIdx.x % 32));
  }

  // Returns true if the value is true on any lane.
  __device__ __forceinline__ static bool Any(const Var<bool>& var) {
    return __any_sync(0xffffffffu, var.v ? 1 : 0) != 0;
  }

  // Returns that lane's value, on all lanes.
  __device__ __forceinline__ static Var<uint64_t> From(const Var<uint64_t>& var, int lane) {
    return {__shfl_sync(0xffffffffu, static_cast<unsigned long long>(var.v), lane)};
  }

  // Works word by word, so that pairs and 128-bit integers are exchanged too.
  template <typename T>
  __device__ __forceinline__ static Var<T> Xor(const Var<T>& var, int mask) {
    Var<T> out;
    if constexpr (sizeof(T) <= 8) {
      out.v = __shfl_xor_sync(0xffffffffu, var.v, mask);
    } else {
      static_assert(sizeof(T) == 16);
      uint64_t words[2];
      memcpy(words, &var.v, sizeof(words));
      words[0] = __shfl_xor_sync(0xffffffffu, static_cast<unsigned long long>(words[0]), mask);
      words[1] = __shfl_xor_sync(0xffffffffu, static_cast<unsigned long long>(words[1]), mask);
      memcpy(&out.v, words, sizeof(words));
    }
    return out;
  }
};

}  // namespace plumbline
