// A row of a pair of logits, shared by the threads of a device: the logits that each thread reads,
// layouts and dtypes, and the exchange of results. Only for .cu files.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>

#include "base/half.h"
#include "kernels/core/device_load.h"
#include "kernels/logits/core.h"
#include "kernels/logits/lane_round.h"
#include "kernels/logits/pair.h"

namespace plumbline {

inline constexpr int kWarp = 32;
inline constexpr int kVector = kLogitVector;
inline constexpr unsigned kAll = 0xffffffffu;

__device__ __forceinline__ float NegativeInfinity() { return -__int_as_float(0x7f800000); }

// Converts with the processor's instruction; exact.
__device__ __forceinline__ float DeviceF16ToFloat(uint16_t code) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(code));
  return value;
}

// Loads eight logits of a row, -inf beyond the first n. Uses one or two loads if the row is dense
// and aligned. `out` is in registers if all code that uses it indexes it by constants.
__device__ __forceinline__ void LoadLogits(const LogitPart& part, int64_t row_at, int64_t first,
                                           int n, bool vector, float* out) {
  if (vector && n == kVector) {
    if (part.dtype == DType::kF32) {
      const auto* from =
          reinterpret_cast<const float4*>(static_cast<const float*>(part.data) + row_at + first);
      const float4 a = __ldg(from), b = __ldg(from + 1);
      out[0] = a.x, out[1] = a.y, out[2] = a.z, out[3] = a.w;
      out[4] = b.x, out[5] = b.y, out[6] = b.z, out[7] = b.w;
      return;
    }
    const uint4 words = __ldg(
        reinterpret_cast<const uint4*>(static_cast<const uint16_t*>(part.data) + row_at + first));
    const uint32_t word[4] = {words.x, words.y, words.z, words.w};
    const bool bf16 = part.dtype == DType::kBF16;
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      const auto code = static_cast<uint16_t>(word[i / 2] >> (16 * (i % 2)));
      out[i] = bf16 ? BF16ToFloat(code) : DeviceF16ToFloat(code);
    }
    return;
  }
#pragma unroll
  for (int i = 0; i < kVector; ++i) {
    const int64_t at = row_at + (first + i) * part.stride;
    out[i] = i < n ? static_cast<float>(CalledLoadDouble(part.data, part.dtype, at))
                   : NegativeInfinity();
  }
}

// Eight logits of bf16 or f32 in memory form, by 16-byte loads.
template <typename Raw>
struct LogitWords {
  static constexpr int kLoads = static_cast<int>(sizeof(Raw)) / 2;
  uint4 load[kLoads];

  __device__ __forceinline__ static LogitWords Load(const LogitWords* from) {
    LogitWords words;
#pragma unroll
    for (int i = 0; i < kLoads; ++i) words.load[i] = __ldg(&from->load[i]);
    return words;
  }
  // For bf16: returns the larger of four, twice.
  __device__ __forceinline__ uint32_t Most() const {
    using internal::LargerBF16;
    return LargerBF16(LargerBF16(load[0].x, load[0].y), LargerBF16(load[0].z, load[0].w));
  }
  __device__ __forceinline__ void Widen(float* out) const {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const uint32_t word[4] = {load[i].x, load[i].y, load[i].z, load[i].w};
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        if constexpr (sizeof(Raw) == 4) {
          out[4 * i + k] = __uint_as_float(word[k]);
        } else {
          out[2 * k] = __uint_as_float(word[k] << 16);
          out[2 * k + 1] = __uint_as_float(word[k] & 0xffff0000u);
        }
      }
    }
  }
};

// One row from the view of a thread of its group: vectors `lane`, `lane` + kThreads, ...
template <int kThreads>
struct LogitRowView {
  const LogitPlan& plan;
  int64_t at[2];
  int64_t allowed_at = 0;
  bool vector[2];

  __device__ LogitRowView(const LogitPlan& p, int64_t row) : plan(p) {
    for (int s = 0; s < 2; ++s) {
      const LogitPart& part = p.side[s];
      at[s] = part.rows.Offset(row);
      const auto address = reinterpret_cast<uint64_t>(part.data) +
                           static_cast<uint64_t>(at[s]) * DTypeSize(part.dtype);
      vector[s] = part.stride == 1 && address % 16 == 0;
    }
    if (p.allowed.data != nullptr) allowed_at = p.allowed.rows.Offset(row);
  }

  // Loads eight pairs from `first` on, -inf beyond the row's end; returns their number.
  __device__ __forceinline__ int Load(int64_t first, float* train, float* rollout) const {
    const int n = static_cast<int>(min(static_cast<int64_t>(kVector), plan.vocabulary - first));
    LoadLogits(plan.side[0], at[0], first, n, vector[0], train);
    LoadLogits(plan.side[1], at[1], first, n, vector[1], rollout);
    if (plan.allowed.data == nullptr) return n;
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      const int64_t mask = allowed_at + (first + i) * plan.allowed.stride;
      if (i >= n || LoadRaw<uint8_t>(plan.allowed.data, mask) != 0) continue;
      train[i] = rollout[i] = NegativeInfinity();
    }
    return n;
  }

  // Returns true if both sides are dense, aligned rows of one dtype, and every logit is allowed.
  __device__ bool Plain(DType t) const {
    return plan.side[0].dtype == t && plan.side[1].dtype == t && vector[0] && vector[1] &&
           plan.allowed.data == nullptr;
  }

  // For plain rows: calls f(train, rollout, most) for each of the thread's whole vectors; the next
  // loads are in flight meanwhile. Returns the first remaining pair if it belongs to this thread;
  // else -1.
  template <typename Raw, typename F>
  __device__ __forceinline__ int64_t EachWhole(int lane, F f) const {
    using Words = LogitWords<Raw>;
    const auto* train_from =
        reinterpret_cast<const Words*>(static_cast<const Raw*>(plan.side[0].data) + at[0]);
    const auto* rollout_from =
        reinterpret_cast<const Words*>(static_cast<const Raw*>(plan.side[1].data) + at[1]);
    const auto whole = static_cast<int>(plan.vocabulary / kVector);
    Words words[2] = {};
    if (lane < whole)
      words[0] = Words::Load(train_from + lane), words[1] = Words::Load(rollout_from + lane);
    // Widened at the end of a round: then the words' registers are free for the next load.
    float train[kVector], rollout[kVector];
    uint32_t most[2];
    const auto widen = [&] {
      words[0].Widen(train);
      words[1].Widen(rollout);
      for (int s = 0; s < 2; ++s) most[s] = sizeof(Raw) == 2 ? words[s].Most() : 0;
#pragma unroll
      for (int i = 0; i < kVector; ++i) internal::Keep(&train[i]), internal::Keep(&rollout[i]);
    };
    widen();
#pragma unroll 1
    for (int i = lane; i < whole;) {
      i += kThreads;
      if (i < whole) {
        words[0] = Words::Load(train_from + i);
        words[1] = Words::Load(rollout_from + i);
      }
      f(train, rollout, most);
      widen();
    }
    const int64_t rest = int64_t{whole} * kVector;
    return rest < plan.vocabulary && whole % kThreads == lane ? rest : -1;
  }

  template <typename F>
  __device__ __forceinline__ void Each(int lane, F f) const {
    float train[kVector], rollout[kVector];
    for (int64_t first = static_cast<int64_t>(lane) * kVector; first < plan.vocabulary;
         first += static_cast<int64_t>(kThreads) * kVector) {
      f(first, Load(first, train, rollout), train, rollout);
    }
  }
};

// The threads of one row: they exchange data by shuffles within a warp, and by shared memory
// between warps.
template <int kThreads>
struct LogitGroup {
  static constexpr int kWarps = kThreads / kWarp;
  int lane;

  __device__ void Sync() const {
    if constexpr (kWarps > 1) {
      __syncthreads();
    } else {
      __syncwarp();
    }
  }
};

template <typename T>
__device__ __forceinline__ T Shuffled(const T& value, int mask) {
  static_assert(sizeof(T) % 4 == 0);
  T out;
  uint32_t words[sizeof(T) / 4];
  memcpy(words, &value, sizeof(T));
#pragma unroll
  for (size_t i = 0; i < sizeof(T) / 4; ++i) words[i] = __shfl_xor_sync(kAll, words[i], mask);
  memcpy(&out, words, sizeof(T));
  return out;
}

// Sets the row's token; its logits are at `sides` and its mask at `allowed_at`.
__device__ inline void SetToken(const LogitPlan& plan, int64_t at, LogitRow* row,
                                const int64_t* sides, int64_t allowed_at) {
  const LogitPart& tokens = plan.tokens;
  if (tokens.data == nullptr) return;
  const int64_t token = CalledLoadInt64(tokens.data, tokens.dtype, tokens.rows.Offset(at));
  if (token < 0 || token >= plan.vocabulary) return;
  row->token = token;
  const bool allowed =
      plan.allowed.data == nullptr ||
      LoadRaw<uint8_t>(plan.allowed.data, allowed_at + token * plan.allowed.stride) != 0;
  for (int s = 0; s < 2; ++s) {
    const LogitPart& part = plan.side[s];
    const double z = CalledLoadDouble(part.data, part.dtype, sides[s] + token * part.stride);
    row->logprob[s] = allowed ? z - row->lse[s] : NoLogit();
  }
}

}  // namespace plumbline
