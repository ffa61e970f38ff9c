// Compares two rows of logits on the device. A group of threads takes a row: a warp for small
// vocabularies, a block of 256 for larger ones. Each thread keeps sums of its own pairs in f32
// (LogitLane), and the group merges them in f64. The largest eight of each side depend on the whole
// row: the few threads whose largest logit can be one of these read their logits again, which is
// counted.
#include <cuda_runtime.h>

#include <algorithm>
#include <cfloat>

#include "kernels/logits/core.h"
#include "kernels/logits/cuda_row.h"
#include "kernels/logits/lane.h"
#include "kernels/logits/pair_device.h"

namespace plumbline {
namespace {

constexpr int kBlock = 256;
constexpr int64_t kWarpVocabulary = 4096;  // up to this vocabulary a warp takes a row

__device__ __forceinline__ void MergeWarp(LogitSums<double>* sums) {
#pragma unroll 1  // long code that runs once per row
  for (int mask = kWarp / 2; mask > 0; mask /= 2) MergeLogits(sums, Shuffled(*sums, mask));
}

// A warp's part of the figures of a second read.
struct Tails {
  double js = 0, variation = 0, downward[kLogitLambdas] = {}, moments[kLogitThetas] = {};
};

template <int kThreads>
struct Shared {
  LogitSums<double> sums[kThreads / kWarp];
  Tails tails[kThreads / kWarp];
  TopLogits top[2];
  float max[2][kThreads];
  float floor[2];  // no logit below it is one of the eight largest
  float best[2];   // the largest logit
  bool shared_top;
  LogitReference reference;
  float begun[2];  // a large logit of each side, from the row's begin; -inf: none was seen
  LogitRow row;
  unsigned long long reads;
};

// Merges the sums of all threads into shared->sums[0].
template <int kThreads>
__device__ void MergeGroup(const LogitGroup<kThreads>& group, LogitSums<double> sums,
                           Shared<kThreads>* shared) {
  constexpr int kWarps = LogitGroup<kThreads>::kWarps;
  MergeWarp(&sums);
  if (group.lane % kWarp == 0) shared->sums[group.lane / kWarp] = sums;
  group.Sync();
  if constexpr (kWarps > 1) {
    if (group.lane < kWarp) {
      sums = group.lane < kWarps ? shared->sums[group.lane] : LogitSums<double>();
      MergeWarp(&sums);
      if (group.lane == 0) shared->sums[0] = sums;
    }
    group.Sync();
  }
}

__device__ __forceinline__ float MostOfWarp(float z) {
  for (int mask = kWarp / 2; mask > 0; mask /= 2) z = fmaxf(z, __shfl_xor_sync(kAll, z, mask));
  return z;
}

// Finds the first logit of the row that both sides have: nearly always in its first vectors. All
// threads begin with the largest logits of these.
template <int kThreads>
__device__ void FindReference(const LogitRowView<kThreads>& view, const LogitGroup<kThreads>& group,
                              Shared<kThreads>* shared) {
  if (group.lane == 0) {
    shared->reference = LogitReference{};
    shared->begun[0] = shared->begun[1] = NegativeInfinity();
  }
  group.Sync();
  if (group.lane >= kWarp) {
    group.Sync();
    return;
  }
  float train[kVector], rollout[kVector];
  const int64_t vocabulary = view.plan.vocabulary;
  for (int64_t start = 0; start < vocabulary; start += kWarp * kVector) {
    const int64_t first = start + group.lane * kVector;
    const int n = first < vocabulary ? view.Load(first, train, rollout) : 0;
    LogitReference found;
    float most[2] = {NegativeInfinity(), NegativeInfinity()};
#pragma unroll
    for (int i = kVector - 1; i >= 0; --i) {
      if (i >= n || !(fabsf(train[i]) <= FLT_MAX) || !(fabsf(rollout[i]) <= FLT_MAX)) continue;
      found = {train[i], rollout[i], true};
      most[0] = fmaxf(most[0], train[i]);
      most[1] = fmaxf(most[1], rollout[i]);
    }
    const unsigned who = __ballot_sync(kAll, found.set);
    if (who == 0) continue;
    for (int s = 0; s < 2; ++s) most[s] = MostOfWarp(most[s]);
    if (group.lane == __ffs(static_cast<int>(who)) - 1) {
      shared->reference = found;
      for (int s = 0; s < 2; ++s) shared->begun[s] = most[s];
    }
    break;
  }
  group.Sync();
}

// Divides the threads into 32 parts and takes the largest logit of each: the eighth of these bounds
// the eighth largest logit from below.
template <int kThreads>
__device__ void FindFloors(const LogitGroup<kThreads>& group, const float* top,
                           Shared<kThreads>* shared) {
  for (int s = 0; s < 2; ++s) shared->max[s][group.lane] = top[s];
  if (group.lane == 0) {
    shared->reads = 0;
    shared->shared_top = false;
  }
  group.Sync();
  if (group.lane < kWarp) {
    for (int s = 0; s < 2; ++s) {
      float z = NegativeInfinity();
      for (int i = group.lane; i < kThreads; i += kWarp) z = fmaxf(z, shared->max[s][i]);
      int larger = 0;
      for (int i = 0; i < kWarp; ++i) {
        const float other = __shfl_sync(kAll, z, i);
        larger += other > z || (other == z && i < group.lane) ? 1 : 0;
      }
      if (larger == kTopLogits - 1) shared->floor[s] = z;
      if (larger == 0) shared->best[s] = z;
      if (group.lane == 0) shared->top[s].count = 0;
    }
  }
  group.Sync();
}

PLUMB_CALLED void Insert(TopLogits* top, float z, int32_t place) { top->Insert(z, place); }

// Threads that have a logit at or above the floor read their logits again, one thread after
// another. They also find a logit that is the largest of both sides.
template <int kThreads>
__device__ void FindTop(const LogitRowView<kThreads>& view, const LogitGroup<kThreads>& group,
                        const float* most, Shared<kThreads>* shared) {
  bool wanted = false;
  for (int s = 0; s < 2; ++s) wanted |= most[s] > NegativeInfinity() && most[s] >= shared->floor[s];
  TopLogits top[2];
  if (wanted) {
    unsigned long long reads = 0;
    view.Each(group.lane, [&](int64_t first, int n, const float* train, const float* rollout) {
      const float* z[2] = {train, rollout};
      reads += 2 * n;
#pragma unroll
      for (int i = 0; i < kVector; ++i) {
        if (train[i] == shared->best[0] && rollout[i] == shared->best[1]) shared->shared_top = true;
      }
#pragma unroll
      for (int s = 0; s < 2; ++s) {
#pragma unroll
        for (int i = 0; i < kVector; ++i) {
          if (fabsf(z[s][i]) <= FLT_MAX && z[s][i] >= shared->floor[s] && top[s].Takes(z[s][i]))
            Insert(&top[s], z[s][i], static_cast<int32_t>(first + i));
        }
      }
    });
    atomicAdd(&shared->reads, reads);
  }
  // These are about eight threads, so taking turns is faster than a tree.
  for (int warp = 0; warp < LogitGroup<kThreads>::kWarps; ++warp) {
    if (group.lane / kWarp == warp) {
      unsigned waiting = __ballot_sync(kAll, wanted);
      while (waiting != 0) {
        const int next = __ffs(static_cast<int>(waiting)) - 1;
        waiting &= waiting - 1;
        if (group.lane % kWarp == next) {
          for (int s = 0; s < 2; ++s) {
            for (int i = 0; i < top[s].count; ++i) {
              if (shared->top[s].Takes(top[s].value[i]))
                Insert(&shared->top[s], top[s].value[i], top[s].at[i]);
            }
          }
        }
        __syncwarp();
      }
    }
    group.Sync();
  }
}

PLUMB_CALLED float NearJensenShannon(float s) {
  return s * s <= 0.0625f ? EvenLogSeries(s * s)
                          : (1 + s) * log1pf(s) + (s < 1 ? (1 - s) * log1pf(-s) : 0.0f);
}

// Returns mu (e^t - 1), without cancellation if t is small, without overflow if t is large.
PLUMB_CALLED float LessOne(float mu, float log_mu, float t) {
  return t < 40 ? mu * expm1f(t) : expf(log_mu + t);
}

// Does the second read, for figures that need both normalisers. f32 within a thread, as in the
// first.
template <int kThreads>
__device__ void MeasureTails(const LogitRowView<kThreads>& view, const LogitGroup<kThreads>& group,
                             const LogitSums<double>& sums, Shared<kThreads>* shared) {
  float max[2], rest[2];
  for (int s = 0; s < 2; ++s) {
    max[s] = shared->best[s];
    rest[s] = static_cast<float>(log(sums.side[s].s0) + (sums.side[s].max - max[s]));
  }
  const double entropy =
      log(sums.side[kRollout].s0) - sums.side[kRollout].s1 / sums.side[kRollout].s0;
  const auto h = static_cast<float>(entropy);
  float js = 0, variation = 0, downward[kLogitLambdas] = {}, moments[kLogitThetas] = {};
  view.Each(group.lane, [&](int64_t, int, const float* train, const float* rollout) {
#pragma unroll 1
    for (int i = 0; i < kVector; ++i) {
      const bool has_pi = train[i] > NegativeInfinity();
      const bool has_mu = rollout[i] > NegativeInfinity();
      const float log_pi = (train[i] - max[0]) - rest[0];
      const float log_mu = (rollout[i] - max[1]) - rest[1];
      const float pi = has_pi ? expf(log_pi) : 0.0f, mu = has_mu ? expf(log_mu) : 0.0f;
      const float sum = pi + mu, less = pi - mu;
      variation += fabsf(less);
      if (sum > 0) js += sum * NearJensenShannon(less / sum);
      if (!has_mu) continue;
      const float surprise = -log_mu - h;
      float lambda = 1, theta = 0.5f;
#pragma unroll
      for (int k = 0; k < kLogitLambdas; ++k) {
        downward[k] += fmaxf(0.0f, mu - lambda * less);
        moments[k] += LessOne(mu, log_mu, theta * surprise);
        moments[k + kLogitLambdas] += LessOne(mu, log_mu, -theta * surprise);
        lambda *= 0.5f;
        theta *= 0.5f;
      }
    }
  });
  Tails tails;
  tails.js = js;
  tails.variation = variation;
  for (int k = 0; k < kLogitLambdas; ++k) tails.downward[k] = downward[k];
  for (int k = 0; k < kLogitThetas; ++k) tails.moments[k] = moments[k];
  for (int mask = kWarp / 2; mask > 0; mask /= 2) {
    const Tails other = Shuffled(tails, mask);
    tails.js += other.js;
    tails.variation += other.variation;
    for (int k = 0; k < kLogitLambdas; ++k) tails.downward[k] += other.downward[k];
    for (int k = 0; k < kLogitThetas; ++k) tails.moments[k] += other.moments[k];
  }
  if (group.lane % kWarp == 0) shared->tails[group.lane / kWarp] = tails;
  group.Sync();
  if (group.lane != 0) return;
  Tails all;
  for (int w = 0; w < LogitGroup<kThreads>::kWarps; ++w) {
    all.js += shared->tails[w].js;
    all.variation += shared->tails[w].variation;
    for (int k = 0; k < kLogitLambdas; ++k) all.downward[k] += shared->tails[w].downward[k];
    for (int k = 0; k < kLogitThetas; ++k) all.moments[k] += shared->tails[w].moments[k];
  }
  LogitRow& row = shared->row;
  row.js = all.js / 4;
  row.total_variation = all.variation / 2;
  for (int k = 0; k < kLogitLambdas; ++k) row.downward[k] = all.downward[k];
  for (int k = 0; k < kLogitThetas; ++k) row.log_moments[k] = log1p(all.moments[k]);
  row.second_reads += 2 * static_cast<uint64_t>(view.plan.vocabulary);
}

// The start values of a row's threads.
struct LaneBegin {
  LogitReference reference;
  float most[2];
};

// A thread's figures of its pairs.
struct LaneFound {
  LogitSums<double> sums;
  float top[2];
};

// Each way of reading is a separate function, which has as many registers as it needs and is called
// once per row.
template <int kThreads, typename Raw>
PLUMB_CALLED void MeasurePlain(const LogitRowView<kThreads>& view, int at, const LaneBegin& begin,
                               LaneFound* found) {
  constexpr bool kExact = sizeof(Raw) == 2;  // bf16
  LogitLane<float> lane;
  const LaneReference<float> r(begin.reference);
  for (int s = 0; s < 2; ++s) lane.Start(s, begin.most[s]);
  const int64_t rest = view.template EachWhole<Raw>(
      at, [&](const float* train, const float* rollout, const uint32_t* most) {
        if constexpr (kExact) {
          lane.template Add<true, true>(train, rollout, r, PackedMost{most[0], most[1]});
        } else {
          lane.Add(train, rollout, r);
        }
      });
  if (rest >= 0) {
    float train[kVector], rollout[kVector];
    view.Load(rest, train, rollout);
    lane.AddRest(train, rollout, begin.reference);
  }
  *found = {lane.Sums(begin.reference, kExact, kExact), {lane.top(0), lane.top(1)}};
}

template <int kThreads>
PLUMB_CALLED void MeasureAny(const LogitRowView<kThreads>& view, int at, const LaneBegin& begin,
                             LaneFound* found) {
  LogitLane<float> lane;
  const LaneReference<float> r(begin.reference);
  for (int s = 0; s < 2; ++s) lane.Start(s, begin.most[s]);
  view.Each(at, [&](int64_t, int, const float* train, const float* rollout) {
    lane.Add(train, rollout, r);
  });
  *found = {lane.Sums(begin.reference), {lane.top(0), lane.top(1)}};
}

template <int kThreads>
__device__ void MeasureLane(const LogitRowView<kThreads>& view, int at, const LaneBegin& begin,
                            LaneFound* found) {
  if (view.Plain(DType::kBF16)) {
    MeasurePlain<kThreads, uint16_t>(view, at, begin, found);
  } else if (view.Plain(DType::kF32)) {
    MeasurePlain<kThreads, uint32_t>(view, at, begin, found);
  } else {
    MeasureAny(view, at, begin, found);
  }
}

template <int kThreads>
__device__ void MeasureRow(const LogitPlan& plan, int64_t at, bool detailed,
                           const LogitGroup<kThreads>& group, Shared<kThreads>* shared) {
  const LogitRowView<kThreads> view(plan, at);
  FindReference(view, group, shared);
  const LogitReference reference = shared->reference;
  LaneFound found;
  MeasureLane(view, group.lane, LaneBegin{reference, {shared->begun[0], shared->begun[1]}}, &found);
  MergeGroup(group, found.sums, shared);
  if (group.lane == 0) shared->row = FinishLogits(shared->sums[0], reference);
  group.Sync();
  if (!shared->row.usable) return;
  FindFloors(group, found.top, shared);
  FindTop(view, group, found.top, shared);
  if (group.lane == 0) {
    shared->row.topk_common = CommonLogits(shared->top[0], shared->top[1]);
    shared->row.second_reads = shared->reads;
    shared->row.top1_differs = !shared->shared_top;
    SetToken(plan, at, &shared->row, view.at, view.allowed_at);
  }
  if (detailed) MeasureTails(view, group, shared->sums[0], shared);
}

// A block of kThreads takes one row at a time.
template <int kThreads>
__global__ void __launch_bounds__(kThreads, kThreads == kBlock ? 2 : 1)
    LogitKernel(const __grid_constant__ LogitPlan plan, const __grid_constant__ LogitLaunch launch,
                LogitRow* out) {
  __shared__ Shared<kThreads> shared;
  const LogitGroup<kThreads> group{static_cast<int>(threadIdx.x)};
  for (int64_t i = blockIdx.x; i < launch.count; i += gridDim.x) {
    const int64_t row = launch.rows == nullptr ? i : static_cast<int64_t>(launch.rows[i]);
    MeasureRow<kThreads>(plan, row, i < launch.detailed, group, &shared);
    group.Sync();
    if (group.lane == 0) out[i] = shared.row;
    group.Sync();
  }
}

template <int kThreads>
void Launch(const LogitPlan& plan, const LogitLaunch& launch, int processors, LogitRow* out,
            cudaStream_t stream) {
  // As many blocks as fit a processor's threads.
  const int64_t most = static_cast<int64_t>(std::max(processors, 1)) * (2048 / kThreads);
  const auto blocks = static_cast<unsigned>(std::clamp<int64_t>(launch.count, 1, most));
  LogitKernel<kThreads><<<blocks, kThreads, 0, stream>>>(plan, launch, out);
}

}  // namespace

static_assert(sizeof(LogitPlan) + sizeof(LogitLaunch) <= 4000, "a kernel's arguments");

int LoadLogitKernels() {
  cudaFuncAttributes attributes;
  const int status = cudaFuncGetAttributes(&attributes, LogitKernel<kWarp>);
  return status != cudaSuccess
             ? status
             : static_cast<int>(cudaFuncGetAttributes(&attributes, LogitKernel<kBlock>));
}

int LaunchLogits(const LogitPlan& plan, const LogitLaunch& launch, int processors, LogitRow* out,
                 void* stream) {
  if (launch.count == 0) return cudaSuccess;
  auto* to = static_cast<cudaStream_t>(stream);
  if (plan.vocabulary <= kWarpVocabulary) {
    Launch<kWarp>(plan, launch, processors, out, to);
  } else {
    Launch<kBlock>(plan, launch, processors, out, to);
  }
  return cudaGetLastError();
}

}  // namespace plumbline
