// Measures the host cost of a due call on a device without CUDA's own launches: the ring over a
// device whose functions all return at once. Includes taking the call out again, which the drain
// thread does.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

#include "probes/device/ring.h"

namespace plumbline::probes {
namespace {

void* Something() {
  static char byte;
  return &byte;
}

// Graphs that are never destroyed.
std::vector<std::pair<void (*)(void*), void*>>& Watched() {
  static auto* watched = new std::vector<std::pair<void (*)(void*), void*>>;
  return *watched;
}

DeviceStatus TakeBatch(void*, const BatchShape*, const BatchMemory*, const SampledPart*, void*,
                       DeviceError*) {
  return kDeviceOk;
}

DeviceStatus CaptureBatch(void*, const BatchShape*, void*, const GraphCall*, void*, DeviceError*) {
  return kDeviceOk;
}

const DeviceTable kNull = {
    sizeof(DeviceTable),
    kDeviceTableVersion,
    kDeviceSizes,
    [](int32_t, void** device, DeviceError*) {
      *device = Something();
      return kDeviceOk;
    },
    [](void*) {},
    [](void*, uint64_t, void** memory, DeviceError*) {
      *memory = Something();
      return kDeviceOk;
    },
    [](void*, void*) {},
    [](void*, void* pages, uint64_t, void** alias, DeviceError*) {
      *alias = pages;
      return kDeviceOk;
    },
    [](void*, void*) {},
    [](void*, void** event, DeviceError*) {
      *event = Something();
      return kDeviceOk;
    },
    [](void*, void*) {},
    [](int64_t, int32_t) { return uint64_t{1}; },
    [](void*, void*, uint64_t* id, DeviceError*) {
      *id = 1;
      return kDeviceOk;
    },
    [](void*, const RoutingPlan*, void*, uint64_t, RoutingRaw*, void*, DeviceError*) {
      return kDeviceOk;
    },
    [](void*, const TensorView*, void*, void*, DeviceError*) { return kDeviceOk; },
    [](void*, const ProductPlan*, void*, void*, DeviceError*) { return kDeviceOk; },
    TakeBatch,
    TakeBatch,
    TakeBatch,
    [](void*, void*, void*, DeviceError*) { return kDeviceOk; },
    [](void*, void*, DeviceError*) { return kDeviceOk; },
    [](void*, void** timer, DeviceError*) {
      *timer = Something();
      return kDeviceOk;
    },
    [](void*, void*) {},
    [](void*, void*, int32_t, void*, DeviceError*) { return kDeviceOk; },
    [](void*, void*, uint64_t* ns, DeviceError*) {
      *ns = 1000;
      return kDeviceOk;
    },
    [](void*, void*, const void*, uint64_t, DeviceError*) { return kDeviceOk; },
    [](void*, GraphSlot*, const GraphSlot*, uint32_t, void*, DeviceError*) { return kDeviceOk; },
    [](void*, void*, uint64_t* id, DeviceError*) {
      *id = 1;
      return kDeviceOk;
    },
    [](void*, void*, void (*gone)(void*), void* argument, DeviceError*) {
      Watched().emplace_back(gone, argument);
      return kDeviceOk;
    },
    CaptureBatch,
    CaptureBatch,
    [](void*, const RoutingPlan*, void*, uint64_t, const GraphCall*, void*, DeviceError*) {
      return kDeviceOk;
    },
    [](void*, int64_t, const GraphCall*, void*, DeviceError*) { return kDeviceOk; },
};

void DueOnADevice(benchmark::State& state) {
  DeviceError error{};
  const auto ring = DeviceRing::Open(&kNull, 0, {}, &error);
  constexpr int64_t kTokens = 4096, kExperts = 64, kChoices = 8;
  const std::vector<float> scores(kTokens * kExperts);
  const std::vector<int64_t> topk(kTokens * kChoices);
  RoutingCall call;
  call.input.scores = TensorView::Dense(scores.data(), DType::kF32, kTokens, kExperts);
  call.input.topk_indices = TensorView::Dense(topk.data(), DType::kI64, kTokens, kChoices);
  call.input.scores.device = call.input.topk_indices.device = 0;
  call.input.top_k = kChoices;
  call.mode = "train";
  const DeviceTag tag{nullptr, 0, 0, state.range(0) != 0};
  bool prepared = false;
  DeviceItem item;
  for (auto _ : state) {
    if (ring->Observe(call, nullptr, tag, &prepared, &error) != DeviceOutcome::kTaken ||
        !ring->Front(&item)) {
      state.SkipWithError(error.text);
      break;
    }
    ring->Pop();
  }
}
BENCHMARK(DueOnADevice)->ArgName("sampled")->Arg(0)->Arg(1);

void TensorOnADevice(benchmark::State& state) {
  DeviceError error{};
  const auto ring = DeviceRing::Open(&kNull, 0, {}, &error);
  const std::vector<float> values(4096 * 1024);
  TensorCall call;
  call.values = TensorView::Dense(values.data(), DType::kF32, 4096, 1024);
  call.values.device = 0;
  call.role = "weight";
  MeasureOptions options;
  options.sampled = state.range(0) != 0;
  options.key = 1;
  const DeviceTag tag{nullptr, 0, 0, options.sampled};
  bool prepared = false;
  DeviceItem item;
  for (auto _ : state) {
    if (ring->Observe(call, options, nullptr, tag, &prepared, &error) != DeviceOutcome::kTaken ||
        !ring->Front(&item)) {
      state.SkipWithError(error.text);
      break;
    }
    ring->Pop();
  }
}
BENCHMARK(TensorOnADevice)->ArgName("sampled")->Arg(0)->Arg(1);

// Measures the host's part of a step whose graph holds 64 tensors: begin, end, and the drain
// thread's check of a record that no replay has filled.
class Tensors final : public GraphOwner {
 public:
  GraphWish Wish(void*) override { return wish; }
  uint32_t Reserve(void*, uint32_t, uint32_t, uint32_t) override { return 0; }
  uint64_t ReserveOrders(uint64_t) override { return 1; }
  GraphWish wish;
};

void StepOfAGraph(benchmark::State& state) {
  constexpr int kCalls = 64;
  DeviceError error{};
  DeviceLimits limits;
  limits.ring_bytes = 64 << 20;
  const auto ring = DeviceRing::Open(&kNull, 0, limits, &error);
  const std::vector<float> values(4096 * 1024);
  TensorCall call;
  call.values = TensorView::Dense(values.data(), DType::kF32, 4096, 1024);
  call.values.device = 0;
  std::vector<char> sites(kCalls);
  for (char& site : sites) ring->Capture(call, nullptr, nullptr, &site, &error);
  Tensors owner;
  owner.wish.due = state.range(0) > 0;
  owner.wish.options.sampled = state.range(0) > 1;
  DeviceItem item;
  int64_t step = 0;
  for (auto _ : state) {
    if (ring->BeginStep(step++, &owner, &error) != DeviceOutcome::kTaken ||
        ring->EndStep(&error) != DeviceOutcome::kTaken) {
      state.SkipWithError(error.text);
      break;
    }
    while (ring->Front(&item)) ring->Pop();
  }
  state.counters["calls"] = benchmark::Counter(
      kCalls, benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}
BENCHMARK(StepOfAGraph)->ArgName("not_due_due_sampled")->Arg(0)->Arg(1)->Arg(2);

}  // namespace
}  // namespace plumbline::probes

BENCHMARK_MAIN();
