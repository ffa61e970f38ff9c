// Measures the cost of a due observation on a device for the trainer's thread, and the share of
// CUDA's own launches. Observe is the ring's call, Launches calls the same functions of the device
// library directly, Besides is their difference, in alternating lumps. Host time only; between
// lumps the device catches up and is drained, which is not timed.
#include <chrono>
#include <memory>
#include <string>

#include "bench/gpu/device_memory.h"
#include "bench/gpu/paired.h"
#include "probes/device/ring.h"
#include "tests/kernels/device/device_library.h"

namespace plumbline::gpu {
namespace {

constexpr int kLump = 64;  // calls in flight, far below the capacity of the ring and the stream

const DeviceTable* Table() {
  static const DeviceTable* const table = [] {
    Must(cudaFree(nullptr), "device 0");  // the trainer has initialised it
    std::string why;
    const DeviceTable* opened = OpenDeviceLibrary(&why);
    if (opened == nullptr) std::fprintf(stderr, "failed: %s\n", why.c_str());
    return opened;
  }();
  return table;
}

// One router call whose tensors are on device 0, and a stream.
struct Router {
  static constexpr int64_t kTokens = 8192;
  static constexpr int kExperts = 64, kTopK = 8;

  Router() : scores(kTokens * kExperts * 4), chosen(kTokens * kTopK * 8) {
    FillNormal(scores.data(), DType::kF32, kTokens * kExperts, 1, 1);
    Must(cudaMemset(chosen.data(), 0, chosen.bytes()), "memset");
    Must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
    call.input.scores = TensorView::Dense(scores.data(), DType::kF32, kTokens, kExperts);
    call.input.topk_indices = TensorView::Dense(chosen.data(), DType::kI64, kTokens, kTopK);
    call.input.scores.device = call.input.topk_indices.device = 0;
    call.input.top_k = kTopK;
    call.mode = "train";
  }
  ~Router() { cudaStreamDestroy(stream); }

  DeviceMemory scores, chosen;
  cudaStream_t stream = nullptr;
  probes::RoutingCall call;
};

// Returns the seconds per call of a lump; negative if a call was not accepted.
template <typename Call>
double LumpOf(Call call) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  for (int i = 0; i < kLump; ++i) {
    if (!call()) return -1;
  }
  return std::chrono::duration<double>(Clock::now() - begin).count() / kLump;
}

template <typename Call, typename CatchUp>
void TimeLumps(benchmark::State& state, Call call, CatchUp catch_up) {
  for (auto _ : state) {
    const double took = LumpOf(call);
    if (took < 0) return state.SkipWithError("a call was not taken");
    state.SetIterationTime(took);
    catch_up();
  }
}

// The ring, and the router's call through it.
class Observed {
 public:
  Observed(const Router& router, bool sampled)
      : router_(router), tag_{nullptr, 0, 0, sampled}, ring_(Open(&error_)) {}
  bool ok() const { return ring_ != nullptr; }
  const char* why() const { return error_.text; }

  bool Call() {
    bool prepared = false;
    return ring_->Observe(router_.call, router_.stream, tag_, &prepared, &error_) ==
           probes::DeviceOutcome::kTaken;
  }
  void CatchUp() {
    cudaStreamSynchronize(router_.stream);
    probes::DeviceItem item;
    while (ring_->Front(&item)) ring_->Pop();
  }

 private:
  static std::unique_ptr<probes::DeviceRing> Open(DeviceError* error) {
    probes::DeviceLimits limits;
    limits.ring_bytes = 512ull << 20;  // fits a lump with its rows
    return probes::DeviceRing::Open(Table(), 0, limits, error);
  }
  const Router& router_;
  const probes::DeviceTag tag_;
  DeviceError error_{};
  std::unique_ptr<probes::DeviceRing> ring_;
};

void Observe(benchmark::State& state) {
  if (Table() == nullptr) return state.SkipWithError("no device library");
  const Router router;
  Observed observed(router, state.range(0) != 0);
  if (!observed.ok() || !observed.Call()) return state.SkipWithError(observed.why());
  observed.CatchUp();  // the first call prepares the width
  TimeLumps(
      state, [&] { return observed.Call(); }, [&] { observed.CatchUp(); });
}

// A device of the library, and the memory that its calls need.
class Bare {
 public:
  explicit Bare(const Router& router) : router_(router), pages_(kPages) {
    Check(Table()->open(0, &device_, &error_));
    workspace_bytes_ = Table()->workspace_bytes(Router::kTokens, Router::kExperts);
    Check(Table()->allocate(device_, workspace_bytes_, &workspace_, &error_));
    Check(Table()->make_event(device_, &event_, &error_));
    Check(Table()->make_timer(device_, &timer_, &error_));
    ok_ = ok_ && PlanRouting(router.call.input, &plan_).ok();
  }
  ~Bare() {
    if (event_ != nullptr) Table()->destroy_event(device_, event_);
    if (timer_ != nullptr) Table()->destroy_timer(device_, timer_);
    if (workspace_ != nullptr) Table()->free_memory(device_, workspace_);
    if (device_ != nullptr) Table()->close(device_);
  }
  Bare(const Bare&) = delete;
  Bare& operator=(const Bare&) = delete;

  bool ok() const { return ok_; }

  bool Call(bool sampled) {
    uint64_t id = 0;
    Check(Table()->stream_id(device_, router_.stream, &id, &error_));
    if (sampled) Check(Table()->mark_timer(device_, timer_, 0, router_.stream, &error_));
    auto* raw = static_cast<RoutingRaw*>(pages_.data());
    Check(Table()->measure(device_, &plan_, workspace_, workspace_bytes_, raw, router_.stream,
                           &error_));
    if (sampled) {
      auto* rows = static_cast<std::byte*>(pages_.data()) + sizeof(RoutingRaw) / 64 * 64 + 64;
      Check(Table()->copy(device_, &router_.call.input.scores, rows, router_.stream, &error_));
      Check(Table()->copy(device_, &router_.call.input.topk_indices, rows + router_.scores.bytes(),
                          router_.stream, &error_));
      Check(Table()->mark_timer(device_, timer_, 1, router_.stream, &error_));
    }
    Check(Table()->record_event(device_, event_, router_.stream, &error_));
    return ok_;
  }

 private:
  static constexpr size_t kPages = 16u << 20;
  void Check(DeviceStatus status) { ok_ = ok_ && status == kDeviceOk; }

  const Router& router_;
  PinnedMemory pages_;
  void* device_ = nullptr;
  void* workspace_ = nullptr;
  void* event_ = nullptr;
  void* timer_ = nullptr;
  uint64_t workspace_bytes_ = 0;
  RoutingPlan plan_;
  DeviceError error_{};
  bool ok_ = true;
};

void Launches(benchmark::State& state) {
  if (Table() == nullptr) return state.SkipWithError("no device library");
  const Router router;
  Bare bare(router);
  if (!bare.ok()) return state.SkipWithError("the device cannot be opened");
  TimeLumps(
      state, [&] { return bare.Call(state.range(0) != 0); },
      [&] { cudaStreamSynchronize(router.stream); });
}

// Alternates lumps of each method, in changing order, so that external effects are the same for
// both. The counters are differences of neighbours; the time is that of a call through the ring.
void Besides(benchmark::State& state) {
  if (Table() == nullptr) return state.SkipWithError("no device library");
  const bool sampled = state.range(0) != 0;
  const Router router;
  Observed observed(router, sampled);
  Bare bare(router);
  if (!observed.ok() || !observed.Call()) return state.SkipWithError(observed.why());
  if (!bare.ok()) return state.SkipWithError("the device cannot be opened");
  observed.CatchUp();
  const auto through_ring = [&] {
    const double took = LumpOf([&] { return observed.Call(); });
    observed.CatchUp();
    return took;
  };
  const auto launches = [&] {
    const double took = LumpOf([&] { return bare.Call(sampled); });
    cudaStreamSynchronize(router.stream);
    return took;
  };
  PairedDifferences differences;
  for (auto _ : state) {
    if (!differences.Take(through_ring, launches))
      return state.SkipWithError("a call was not taken");
    state.SetIterationTime(differences.last_whole());
  }
  state.counters["besides_ns"] = differences.At(0.5) * 1e9;
  state.counters["besides_low_ns"] = differences.At(0.25) * 1e9;
  state.counters["besides_high_ns"] = differences.At(0.75) * 1e9;
  state.counters["besides_pairs"] = static_cast<double>(differences.pairs());
}

BENCHMARK(Besides)->ArgName("sampled")->Arg(0)->Arg(1)->UseManualTime();
BENCHMARK(Observe)->ArgName("sampled")->Arg(0)->Arg(1)->UseManualTime();
BENCHMARK(Launches)->ArgName("sampled")->Arg(0)->Arg(1)->UseManualTime();

}  // namespace
}  // namespace plumbline::gpu
