// The routing kernel. One warp per row; a block takes tiles of 256 rows, counts in shared memory
// and adds to global memory once, at its end. Compiled with --fmad=false: see base/portable_math.h.
#include <cuda_runtime.h>

#include <algorithm>

#include "kernels/core/cuda_gate.h"
#include "kernels/routing/cuda_routing.h"
#include "kernels/routing/device.h"

namespace plumbline {
namespace {

constexpr int kThreads = kTileRows;  // one thread per row value when a tile is summed
constexpr int kWarps = kThreads / kRowLanes;
constexpr int kFoldBlocks = 64;
constexpr int kRowsPerWarp = kTileRows / kWarps;

// Partial sums of a tile, then the counts; both in the caller's workspace.
struct TilePartial {
  double entropy;
  double margin;
  double z;
};

// The workspace: the raw counts, the partial sums, then the memory of pools; each 256-byte aligned.
constexpr size_t Aligned(size_t bytes) { return (bytes + 255) / 256 * 256; }

struct Layout {
  size_t partials, tables, cells, unit_cells, end;

  Layout(int64_t tokens, int experts) {
    const auto tiles =
        static_cast<size_t>((std::max<int64_t>(tokens, 1) + kTileRows - 1) / kTileRows);
    const auto width = static_cast<size_t>(std::max(experts, 1));
    partials = Aligned(sizeof(RoutingRaw));
    tables = partials + Aligned(tiles * sizeof(TilePartial));
    cells = tables + Aligned(sizeof(PoolTables));
    unit_cells = cells + Aligned(kMaxPools * width * sizeof(PoolCell));
    end = unit_cells + Aligned(kMaxUnits * width * sizeof(UnitCell));
  }
};

// The first launch, of one block. In a graph it reads the section for all other launches.
__global__ void PrepareKernel(RoutingRaw* raw, GraphCall call) {
  if (call.slot != nullptr) {
    if (threadIdx.x == 0) BeginReplay(call);
    __syncthreads();
    if (Closed(call.section)) return;
  }
  auto* words = reinterpret_cast<uint32_t*>(raw);
  for (unsigned i = threadIdx.x; i < sizeof(RoutingRaw) / 4; i += blockDim.x) words[i] = 0;
  __syncthreads();
  if (threadIdx.x == 0) {
    raw->bad_index = kNothingBad;
    raw->bad_position = kNothingBad;
  }
}

// A kernel zeroes a graph's memory: a memset could not test whether the slot is open.
__global__ void ZeroKernel(uint4* memory, int64_t count, const uint64_t* section) {
  if (Closed(section)) return;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += stride) {
    memory[i] = uint4{0, 0, 0, 0};
  }
}

__global__ void PositionKernel(const __grid_constant__ RoutingPlan plan, RoutingRaw* raw,
                               const uint64_t* section) {
  if (Closed(section)) return;
  Word longest = 0;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t row = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; row < plan.tokens;
       row += stride) {
    if (plan.padding.present() && plan.padding.Integer(row) != 0) continue;
    const int64_t p = plan.position.Integer(row);
    if (p < 0 || p >= kMaxPosition) {
      atomicMin(AsWord(&raw->bad_position), static_cast<Word>(BadPositionKey(row, p)));
    } else {
      longest = max(longest, static_cast<Word>(p) + 1);
    }
  }
  for (int step = kRowLanes / 2; step > 0; step /= 2) {
    longest = max(longest, __shfl_xor_sync(kAll, longest, step));
  }
  if (threadIdx.x % kRowLanes == 0 && longest > 0) atomicMax(AsWord(&raw->longest), longest);
}

__global__ void PoolIdsKernel(const __grid_constant__ RoutingPlan plan, PoolMemory pools,
                              const uint64_t* section) {
  if (Closed(section)) return;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t row = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; row < plan.tokens;
       row += stride) {
    EnterRow<DeviceOps>(plan, row, pools);
  }
}

// Folds the cells; looks at the units only if a choice was refused.
__global__ void FoldPoolsKernel(const __grid_constant__ RoutingPlan plan, PoolMemory pools,
                                RoutingRaw* raw, const uint64_t* section) {
  if (Closed(section) || !PoolsMeasured(pools)) return;
  const int64_t experts = plan.rule.experts;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  for (int64_t i = first; i < pools.tables->pools.count * experts; i += stride) {
    FoldCell<DeviceOps>(pools.cells[i], &raw->pools);
  }
  if (raw->counts.dropped == 0 || !UnitsMeasured(pools)) return;
  for (int64_t i = first; i < pools.tables->units.count * experts; i += stride) {
    FoldUnitCell<DeviceOps>(pools.unit_cells[i], static_cast<int32_t>(i % experts), &raw->pools);
  }
}

__device__ void AddCounts(const RoutingCounts& from, int experts, RoutingCounts* to) {
  constexpr unsigned kSums = offsetof(RoutingCounts, abs_max_bits) / sizeof(uint64_t);
  const unsigned t = threadIdx.x;
  const auto* source = reinterpret_cast<const Word*>(&from);
  auto* target = reinterpret_cast<Word*>(to);
  if (t < kSums && source[t] != 0) atomicAdd(&target[t], source[t]);
  if (t == kSums) atomicMax(AsWord(&to->abs_max_bits), static_cast<Word>(from.abs_max_bits));
  if (t < kDropBins && from.drop_histogram[t] != 0) {
    atomicAdd(AsWord(&to->drop_histogram[t]), static_cast<Word>(from.drop_histogram[t]));
  }
  if (t < kDropBins && from.offered_histogram[t] != 0) {
    atomicAdd(AsWord(&to->offered_histogram[t]), static_cast<Word>(from.offered_histogram[t]));
  }
  for (unsigned e = t; e < static_cast<unsigned>(experts); e += blockDim.x) {
    if (from.load[e] != 0) atomicAdd(&to->load[e], from.load[e]);
    if (from.refused[e] != 0) atomicAdd(&to->refused[e], from.refused[e]);
  }
}

// Dynamic shared memory: kWarps * E doubles with a group limit, else none. With the static part at
// most 47 KiB, which every device permits by default.
template <int Slots>
__global__ void __launch_bounds__(kThreads)
    RowsKernel(const __grid_constant__ RoutingPlan plan, PoolMemory pools, RoutingRaw* raw,
               TilePartial* partials, const uint64_t* section) {
  if (Closed(section)) return;
  __shared__ RoutingCounts counts;
  __shared__ double bias[kMaxExperts];
  __shared__ double means[3][kTileRows];
  extern __shared__ double values[];

  for (unsigned i = threadIdx.x; i < sizeof(RoutingCounts) / 4; i += kThreads) {
    reinterpret_cast<uint32_t*>(&counts)[i] = 0;
  }
  if (plan.rule.has_bias) {
    for (int i = threadIdx.x; i < plan.rule.experts; i += kThreads) bias[i] = plan.bias.Number(i);
  }
  __syncthreads();

  const int warp = threadIdx.x / kRowLanes;
  BlockSink sink{&counts, &raw->bad_index, pools};
  RowMeasure<RoutingWarp, BlockSink, Slots> measure(plan, bias, values + warp * plan.rule.experts,
                                                    raw->longest, &sink);
  const int64_t tiles = (plan.tokens + kTileRows - 1) / kTileRows;
  for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    for (int n = 0; n < kRowsPerWarp; ++n) {
      const int in_tile = warp * kRowsPerWarp + n;
      const int64_t row = tile * kTileRows + in_tile;
      RowMeans row_means;
      if (row < plan.tokens) row_means = measure.Measure(row);
      if (threadIdx.x % kRowLanes == 0) {
        means[0][in_tile] = row_means.entropy;
        means[1][in_tile] = row_means.margin;
        means[2][in_tile] = row_means.z;
      }
      __syncwarp();
    }
    __syncthreads();
    double sums[3];
    for (int q = 0; q < 3; ++q) sums[q] = SumTree(means[q], means[q][threadIdx.x]);
    if (threadIdx.x == 0) partials[tile] = {sums[0], sums[1], sums[2]};
  }
  __syncthreads();
  AddCounts(counts, plan.rule.experts, &raw->counts);
}

__global__ void __launch_bounds__(kThreads)
    FinishKernel(const __grid_constant__ RoutingPlan plan, PoolMemory pools, const RoutingRaw* raw,
                 const TilePartial* partials, int64_t tiles, RoutingRaw* result, GraphCall call) {
  if (call.slot != nullptr) {
    const uint64_t section = OpenSection(call);
    if (section == 0) {
      if (threadIdx.x == 0) EndReplay(call);
      return;
    }
    result = reinterpret_cast<RoutingRaw*>(PlaceIn(section, WorkOf(section)->results_at));
  }
  __shared__ double shared[kTileRows];
  TilePartial stripe{0, 0, 0};
  for (int64_t tile = threadIdx.x; tile < tiles; tile += kThreads) {
    stripe.entropy += partials[tile].entropy;
    stripe.margin += partials[tile].margin;
    stripe.z += partials[tile].z;
  }
  const double entropy = SumTree(shared, stripe.entropy);
  const double margin = SumTree(shared, stripe.margin);
  const double z = SumTree(shared, stripe.z);
  const auto* from = reinterpret_cast<const uint32_t*>(raw);
  auto* to = reinterpret_cast<uint32_t*>(result);
  for (unsigned i = threadIdx.x; i < sizeof(RoutingRaw) / 4; i += kThreads) to[i] = from[i];
  __syncthreads();
  if (threadIdx.x != 0) return;
  result->entropy_sum = entropy;
  result->margin_sum = margin;
  result->z_sum = z;
  EndPools(plan, pools, &result->pools);
  if (call.slot != nullptr) EndReplay(call);
}

// Copies a sampled step's rows. Runs before FinishKernel, which moves the slot on.
__global__ void __launch_bounds__(kThreads) RowsCopyKernel(GraphCall call) {
  const uint64_t section = OpenSection(call);
  if (section == 0) return;
  __shared__ uint64_t memory[(sizeof(GraphWork) + 7) / 8];
  auto* work = reinterpret_cast<GraphWork*>(memory);
  TakeDown(DeviceBlock(), kThreads, WorkOf(section), sizeof(GraphWork), work);
  CopyRows(*work, section, static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x,
           static_cast<int64_t>(gridDim.x) * blockDim.x);
}

// Returns a number of blocks that fills the device a few times over; more would only add to the
// final atomics.
int Blocks(int64_t tiles, int processors) {
  return static_cast<int>(std::min<int64_t>(tiles, 8LL * std::max(processors, 1)));
}

template <typename Kernel>
cudaError_t Load(Kernel* kernel) {
  cudaFuncAttributes attributes;
  return cudaFuncGetAttributes(&attributes, kernel);
}

}  // namespace

size_t RoutingWorkspaceBytes(int64_t tokens, int experts) { return Layout(tokens, experts).end; }

int LoadRoutingKernels() {
  cudaError_t error = Load(PrepareKernel);
  if (error == cudaSuccess) error = Load(PositionKernel);
  if (error == cudaSuccess) error = Load(PoolIdsKernel);
  if (error == cudaSuccess) error = Load(FoldPoolsKernel);
  if (error == cudaSuccess) error = Load(FinishKernel);
  if (error == cudaSuccess) error = Load(ZeroKernel);
  if (error == cudaSuccess) error = Load(RowsCopyKernel);
  for (const int experts : {32, 64, 128, 256, 512}) {
    WithSlots(experts, [&](auto slots) {
      if (error == cudaSuccess) error = Load(RowsKernel<decltype(slots)::value>);
    });
  }
  return error;
}

namespace {

constexpr unsigned kCopyBlocks = 64;  // the bus is slower than a few blocks

void SetZero(char* from, size_t bytes, const uint64_t* section, cudaStream_t on) {
  if (section == nullptr) {
    cudaMemsetAsync(from, 0, bytes, on);
    return;
  }
  static_assert(Aligned(1) % sizeof(uint4) == 0);
  const auto count = static_cast<int64_t>(bytes / sizeof(uint4));
  const int64_t blocks = std::clamp<int64_t>((count + kThreads - 1) / kThreads, 1, 1024);
  ZeroKernel<<<static_cast<unsigned>(blocks), kThreads, 0, on>>>(reinterpret_cast<uint4*>(from),
                                                                 count, section);
}

// `call`: of a graph, or all null. The counts are written to `call`'s section or to `result`.
int Enqueue(const RoutingPlan& plan, int processors, void* workspace, RoutingRaw* result,
            const GraphCall& call, void* stream) {
  const Layout layout(plan.tokens, plan.rule.experts);
  auto* base = static_cast<char*>(workspace);
  auto* raw = static_cast<RoutingRaw*>(workspace);
  auto* partials = reinterpret_cast<TilePartial*>(base + layout.partials);
  auto* on = static_cast<cudaStream_t>(stream);
  const int64_t tiles = (plan.tokens + kTileRows - 1) / kTileRows;
  const int blocks = Blocks(tiles, processors);
  PoolMemory pools;
  PrepareKernel<<<1, kThreads, 0, on>>>(raw, call);
  if (plan.position.present()) PositionKernel<<<blocks, kThreads, 0, on>>>(plan, raw, call.section);
  if (plan.fates_known) {
    pools.tables = reinterpret_cast<PoolTables*>(base + layout.tables);
    pools.cells = reinterpret_cast<PoolCell*>(base + layout.cells);
    if (plan.units_known) pools.unit_cells = reinterpret_cast<UnitCell*>(base + layout.unit_cells);
    const size_t end = plan.units_known ? layout.end : layout.unit_cells;
    SetZero(base + layout.tables, end - layout.tables, call.section, on);
    PoolIdsKernel<<<blocks, kThreads, 0, on>>>(plan, pools, call.section);
  }
  const size_t shared =
      plan.rule.limited() ? sizeof(double) * kWarps * static_cast<size_t>(plan.rule.experts) : 0;
  WithSlots(plan.rule.experts, [&](auto slots) {
    constexpr int kSlots = decltype(slots)::value;
    RowsKernel<kSlots><<<blocks, kThreads, shared, on>>>(plan, pools, raw, partials, call.section);
  });
  if (plan.fates_known)
    FoldPoolsKernel<<<kFoldBlocks, kThreads, 0, on>>>(plan, pools, raw, call.section);
  if (call.slot != nullptr) RowsCopyKernel<<<kCopyBlocks, kThreads, 0, on>>>(call);
  FinishKernel<<<1, kThreads, 0, on>>>(plan, pools, raw, partials, tiles, result, call);
  return cudaGetLastError();
}

}  // namespace

int LaunchRouting(const RoutingPlan& plan, int processors, void* workspace, RoutingRaw* result,
                  void* stream) {
  return Enqueue(plan, processors, workspace, result, GraphCall{}, stream);
}

int CaptureRouting(const RoutingPlan& plan, int processors, void* workspace, const GraphCall& call,
                   void* stream) {
  if (workspace == nullptr || call.slot == nullptr) return cudaErrorInvalidValue;
  return Enqueue(plan, processors, workspace, nullptr, call, stream);
}

}  // namespace plumbline
