// The probes of a step's block. Ends the program if a call cannot be captured.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "agent/core/sites/cadence.h"
#include "bench/gpu/step_block.h"
#include "probes/device/probe.h"
#include "tests/kernels/device/device_library.h"

namespace plumbline::gpu {

constexpr uint64_t kTrafficBytes = 3072;  // per rank-step: the agent's default
// Bytes as the agent counts them, for a router with 64 experts and for each gradient.
constexpr uint64_t kSummaryBytes = 564 + 420 * StepBlock::kLayers;

// The probes of one block, called like the agent does: routers and gradients when they are due,
// products on sampled steps. Alternatively captured once, and enabled in each due step.
class Observer final : private probes::GraphOwner {
 public:
  Observer(const StepBlock& block, cudaStream_t stream)
      : block_(block),
        stream_(stream),
        cadence_(1, kTrafficBytes),
        probe_([](DeviceError* error) { return Table(error); }, {}, {}) {
    routing_.input.scores = block.RouterScores();
    routing_.input.topk_indices = block.Choices();
    routing_.input.top_k = block.shape().top_k;
    routing_.mode = "train";
    drain_ = std::thread([this] { Drain(); });
  }
  ~Observer() {
    Finish();
    probe_.Free();
  }
  Observer(const Observer&) = delete;
  Observer& operator=(const Observer&) = delete;

  // For steps without a graph.
  void AfterForward() {
    const bool sampled = cadence_.SampleDue(step_);
    if (sampled || cadence_.FirstDue(step_) == step_) Router(sampled);
    if (!sampled) return;
    for (int layer = 0; layer < StepBlock::kLayers - 1; ++layer) Product(layer);
  }
  void AfterBackward() {
    const bool sampled = cadence_.SampleDue(step_);
    if (sampled || cadence_.FirstDue(step_) == step_) {
      for (int layer = 0; layer < StepBlock::kLayers; ++layer) Gradient(layer, sampled);
    }
    cadence_.AtStepEnd(sample_bytes_, kSummaryBytes);
    ++step_;
  }

  // Call while the stream is captured.
  void CaptureForward() {
    Capture(routing_, &kRouterSite);
    for (int layer = 0; layer < StepBlock::kLayers - 1; ++layer) {
      Capture(ProductOf(layer), &kProductSite);
    }
  }
  void CaptureBackward() {
    for (int layer = 0; layer < StepBlock::kLayers; ++layer) {
      Capture(GradientOf(layer), &kGradientSite);
    }
    sample_bytes_ = probes::SampleBytes(routing_);
  }
  // Call before and after a replay.
  void BeginGraph() {
    probes::DeviceReply reply;
    wished_ = 0;
    probe_.BeginStep(step_, this, &reply);
    const bool taken = reply.outcome == probes::DeviceOutcome::kTaken;
    if (wished_ > 0 || !taken) Count(reply, std::max<int64_t>(wished_, 1));
    sampled_ += wished_ > 0 && cadence_.SampleDue(step_) ? 1 : 0;
  }
  void EndGraph() {
    probes::DeviceReply reply;
    probe_.EndStep(&reply);
    if (reply.outcome != probes::DeviceOutcome::kTaken) Count(reply);
    cadence_.AtStepEnd(sample_bytes_, kSummaryBytes);
    ++step_;
  }

  // Waits for pending work; nothing is observed after it.
  void Finish() {
    ended_ = true;
    if (drain_.joinable()) drain_.join();
  }

  void CatchUp() const {
    while (!probe_.empty()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

  int64_t steps() const { return step_; }
  int64_t taken() const { return taken_; }
  int64_t lost() const { return lost_; }
  int64_t sampled() const { return sampled_; }
  int64_t measured() const { return measured_; }

 private:
  static const DeviceTable* Table(DeviceError* error) {
    static std::string why;
    static const DeviceTable* const table = OpenDeviceLibrary(&why);
    if (table == nullptr) std::snprintf(error->text, sizeof(error->text), "%s", why.c_str());
    return table;
  }

  // Returns what the step needs of a captured call: a product only if it is sampled.
  probes::GraphWish Wish(void* site) override {
    probes::GraphWish wish;
    wish.options.sampled = cadence_.SampleDue(step_);
    wish.due = wish.options.sampled || (site != &kProductSite && cadence_.FirstDue(step_) == step_);
    wish.options.key = static_cast<uint64_t>(step_);
    if (wish.due) {
      wished_ += site == &kRouterSite    ? 1
                 : site == &kProductSite ? StepBlock::kLayers - 1
                                         : StepBlock::kLayers;
    }
    return wish;
  }
  uint32_t Reserve(void*, uint32_t, uint32_t, uint32_t) override { return 0; }
  uint64_t ReserveOrders(uint64_t) override { return 0; }

  template <typename Call>
  void Capture(const Call& call, void* site) {
    probes::DeviceReply reply;
    probe_.Capture(call, 0, stream_, stream_, site, &reply);
    if (reply.outcome != probes::DeviceOutcome::kTaken) {
      std::fprintf(stderr, "not captured: %s\n", reply.error.text);
      std::exit(1);
    }
  }

  void Router(bool sampled) {
    probes::DeviceReply reply;
    probe_.Observe(routing_, stream_, {nullptr, step_, 0, sampled}, &reply);
    sample_bytes_ = std::max(sample_bytes_, probes::SampleBytes(routing_));
    sampled_ += sampled ? 1 : 0;
    Count(reply);
  }

  probes::MatmulCall ProductOf(int layer) const {
    const StepBlock::Layer& l = block_.layer(layer);
    probes::MatmulCall call;
    call.input = {l.X(block_.shape().tokens), l.W(), l.Y(block_.shape().tokens), {}};
    probes::Complete(&call);
    return call;
  }
  void Product(int layer) {
    const probes::MatmulCall call = ProductOf(layer);
    const ProductPlan plan = probes::PlanSample(call, OptionsOf(layer, true));
    probes::DeviceReply reply;
    probe_.Observe(call, plan, stream_, {nullptr, step_, 0, true}, &reply);
    Count(reply);
  }

  probes::TensorCall GradientOf(int layer) const {
    probes::TensorCall call;
    call.values = block_.layer(layer).GradW();
    call.role = "gradient";
    return call;
  }
  void Gradient(int layer, bool sampled) {
    probes::DeviceReply reply;
    probe_.Observe(GradientOf(layer), OptionsOf(layer, sampled), stream_,
                   {nullptr, step_, 0, sampled}, &reply);
    Count(reply);
  }

  probes::MeasureOptions OptionsOf(int layer, bool sampled) const {
    probes::MeasureOptions options;
    options.sampled = sampled;
    options.key = static_cast<uint64_t>(step_ * StepBlock::kLayers + layer);
    return options;
  }

  void Count(const probes::DeviceReply& reply, int64_t calls = 1) {
    const bool taken = reply.outcome == probes::DeviceOutcome::kTaken;
    (taken ? taken_ : lost_) += calls;
    if (!taken && lost_ == calls) std::fprintf(stderr, "lost: %s\n", reply.error.text);
  }

  void Drain() {
    while (!ended_ || !probe_.empty()) {
      probe_.Drain([this](const probes::DeviceItem& item) { measured_ += item.measured ? 1 : 0; });
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  // Only their addresses are used.
  static inline char kRouterSite = 0, kProductSite = 0, kGradientSite = 0;

  const StepBlock& block_;
  cudaStream_t stream_;
  int64_t step_ = 0;
  int64_t wished_ = 0;  // captured calls that are due in this step
  agent::Cadence cadence_;
  probes::DeviceProbe probe_;
  probes::RoutingCall routing_;
  uint64_t sample_bytes_ = 0;
  int64_t taken_ = 0, lost_ = 0, sampled_ = 0;
  std::atomic<int64_t> measured_{0};
  std::atomic<bool> ended_{false};
  std::thread drain_;
};

}  // namespace plumbline::gpu
