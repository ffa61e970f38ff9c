// Measures basic figures of a GPU on which the kernels' budgets depend: the rate of histogram
// atomics in shared memory, and the cost of an empty graph node. Bandwidth is in stats_bench.cu:
// Copy, ReadOnce.
#include "bench/gpu/device_memory.h"

namespace plumbline::gpu {
namespace {

constexpr int kThreads = 256;
constexpr int kRounds = 4096;  // atomics per thread
constexpr int kBins = 256;

enum class Spread {
  kOneBin,  // all lanes of a warp add to one word
  kApart,   // each lane adds to a word of its own bank
  kNormal,  // distributed like exponents of normal values: half of them in two bins
};

// Returns the bin of a round. It is cheap, so that the atomics dominate the time.
template <Spread spread>
__device__ unsigned BinOf(unsigned lane, unsigned round) {
  if (spread == Spread::kOneBin) return round % kBins;
  if (spread == Spread::kApart) return (lane + 32 * round) % kBins;
  unsigned mixed = (lane * 0x9e3779b9u) ^ (round * 0x85ebca6bu);
  mixed ^= mixed >> 15;
  return static_cast<unsigned>(__clz(static_cast<int>(mixed | 1u))) +
         100;  // halves from bin to bin
}

template <Spread spread>
__global__ void __launch_bounds__(kThreads) AtomicsKernel(unsigned* out) {
  __shared__ unsigned bins[kBins];
  bins[threadIdx.x] = 0;
  __syncthreads();
  for (unsigned round = 0; round < kRounds; ++round)
    atomicAdd(&bins[BinOf<spread>(threadIdx.x, round)], 1u);
  __syncthreads();
  if (bins[threadIdx.x] == ~0u)
    *out = 1;  // never true: prevents the compiler from removing the
               // bins
}

template <Spread spread>
void SharedAtomics(benchmark::State& state) {
  const DeviceMemory out(sizeof(unsigned));
  const int blocks = 4 * Processors();
  TimeLaunches(state, 0, [&](cudaStream_t stream) {
    AtomicsKernel<spread><<<blocks, kThreads, 0, stream>>>(static_cast<unsigned*>(out.data()));
    return cudaGetLastError();
  });
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations()) * blocks * kThreads * kRounds);
}

__global__ void EmptyKernel() {}

// Measures one graph of many empty kernels in sequence: the time of all of them.
void EmptyNodes(benchmark::State& state) {
  cudaStream_t capturing = nullptr;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t runnable = nullptr;
  Must(cudaStreamCreateWithFlags(&capturing, cudaStreamNonBlocking), "stream");
  Must(cudaStreamBeginCapture(capturing, cudaStreamCaptureModeThreadLocal), "capture");
  for (int64_t i = 0; i < state.range(0); ++i) EmptyKernel<<<1, 32, 0, capturing>>>();
  Must(cudaStreamEndCapture(capturing, &graph), "capture");
  Must(cudaGraphInstantiate(&runnable, graph, 0), "graph");
  TimeLaunches(state, 0, [&](cudaStream_t stream) { return cudaGraphLaunch(runnable, stream); });
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations()) * state.range(0));
  cudaGraphExecDestroy(runnable);
  cudaGraphDestroy(graph);
  cudaStreamDestroy(capturing);
}

BENCHMARK(SharedAtomics<Spread::kOneBin>)->Name("SharedAtomics/one_bin")->UseManualTime();
BENCHMARK(SharedAtomics<Spread::kApart>)->Name("SharedAtomics/apart")->UseManualTime();
BENCHMARK(SharedAtomics<Spread::kNormal>)->Name("SharedAtomics/normal")->UseManualTime();
BENCHMARK(EmptyNodes)->Arg(1)->Arg(64)->Arg(192)->UseManualTime();

}  // namespace
}  // namespace plumbline::gpu
