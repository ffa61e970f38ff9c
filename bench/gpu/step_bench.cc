// What the probes cost a training step on a GPU: blocks of steps with them and without in turns, so
// that heat and neighbours meet both alike, at the cadence that the agent has by default. Prints
// one JSON object; tools/gpu_check makes the figure of it.
//
//   gpu_step [--blocks 80] [--steps 20]
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "agent/core/cadence.h"
#include "bench/gpu/step_block.h"
#include "probes/device_probe.h"
#include "tests/kernels/device_library.h"
#include "tests/support/gpu.h"

namespace plumbline::gpu {
namespace {

constexpr uint64_t kTrafficBytes = 3072;  // a rank-step: the agent's default
// As the agent counts them, of a router with 64 experts and of each gradient.
constexpr uint64_t kSummaryBytes = 564 + 420 * StepBlock::kLayers;
constexpr int kWarmUp = 20;

// The probes of one block, as the agent calls them: routers and gradients when they are due,
// products on sampled steps.
class Observer {
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

  void AfterForward(int64_t step) {
    const bool sampled = cadence_.SampleDue(step);
    if (sampled || cadence_.FirstDue(step) == step) Router(step, sampled);
    if (!sampled) return;
    for (int layer = 0; layer < StepBlock::kLayers - 1; ++layer) Product(step, layer);
  }

  void AfterBackward(int64_t step) {
    const bool sampled = cadence_.SampleDue(step);
    if (sampled || cadence_.FirstDue(step) == step) {
      for (int layer = 0; layer < StepBlock::kLayers; ++layer) Gradient(step, layer, sampled);
    }
    cadence_.AtStepEnd(sample_bytes_, kSummaryBytes);
  }

  // Waits for what is under way; nothing is observed after it.
  void Finish() {
    ended_ = true;
    if (drain_.joinable()) drain_.join();
  }

  void CatchUp() const {
    while (!probe_.empty()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

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

  void Router(int64_t step, bool sampled) {
    probes::DeviceReply reply;
    probe_.Observe(routing_, stream_, {nullptr, step, 0, sampled}, &reply);
    sample_bytes_ = std::max(sample_bytes_, probes::SampleBytes(routing_));
    sampled_ += sampled ? 1 : 0;
    Count(reply);
  }

  void Product(int64_t step, int layer) {
    const StepBlock::Layer& l = block_.layer(layer);
    probes::MatmulCall call;
    call.input = {l.X(block_.shape().tokens), l.W(), l.Y(block_.shape().tokens), {}};
    probes::Complete(&call);
    probes::MeasureOptions options;
    options.sampled = true;
    options.key = static_cast<uint64_t>(step * StepBlock::kLayers + layer);
    const ProductPlan plan = probes::PlanSample(call, options);
    probes::DeviceReply reply;
    probe_.Observe(call, plan, stream_, {nullptr, step, 0, true}, &reply);
    Count(reply);
  }

  void Gradient(int64_t step, int layer, bool sampled) {
    probes::TensorCall call;
    call.values = block_.layer(layer).GradW();
    call.role = "gradient";
    probes::MeasureOptions options;
    options.sampled = sampled;
    options.key = static_cast<uint64_t>(step * StepBlock::kLayers + layer);
    probes::DeviceReply reply;
    probe_.Observe(call, options, stream_, {nullptr, step, 0, sampled}, &reply);
    Count(reply);
  }

  void Count(const probes::DeviceReply& reply) {
    const bool taken = reply.outcome == probes::DeviceOutcome::kTaken;
    ++(taken ? taken_ : lost_);
    if (!taken && lost_ == 1) std::fprintf(stderr, "lost: %s\n", reply.error.text);
  }

  void Drain() {
    while (!ended_ || !probe_.empty()) {
      probe_.Drain([this](const probes::DeviceItem& item) { measured_ += item.measured ? 1 : 0; });
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  const StepBlock& block_;
  cudaStream_t stream_;
  agent::Cadence cadence_;
  probes::DeviceProbe probe_;
  probes::RoutingCall routing_;
  uint64_t sample_bytes_ = 0;
  int64_t taken_ = 0, lost_ = 0, sampled_ = 0;
  std::atomic<int64_t> measured_{0};
  std::atomic<bool> ended_{false};
  std::thread drain_;
};

// Milliseconds of each of `steps` steps by the GPU's own clock.
std::vector<float> RunBlock(StepBlock* block, Observer* observer, cudaStream_t stream, int steps,
                            int64_t* step) {
  std::vector<cudaEvent_t> events(static_cast<size_t>(steps) + 1);
  for (cudaEvent_t& e : events) Must(cudaEventCreate(&e), "event");
  Must(cudaEventRecord(events[0], stream), "event");
  for (int i = 0; i < steps; ++i) {
    block->Forward();
    if (observer != nullptr) observer->AfterForward(*step);
    block->Backward();
    if (observer != nullptr) observer->AfterBackward((*step)++);
    Must(cudaEventRecord(events[static_cast<size_t>(i) + 1], stream), "event");
  }
  Must(cudaStreamSynchronize(stream), "steps");
  std::vector<float> took(static_cast<size_t>(steps));
  for (size_t i = 0; i < took.size(); ++i) {
    Must(cudaEventElapsedTime(&took[i], events[i], events[i + 1]), "time");
  }
  for (cudaEvent_t e : events) cudaEventDestroy(e);
  return took;
}

void PrintBlock(bool first, bool probes, const std::vector<float>& took) {
  std::printf("%s\n  {\"probes\": %s, \"milliseconds\": [", first ? "" : ",",
              probes ? "true" : "false");
  for (size_t i = 0; i < took.size(); ++i) std::printf("%s%.4f", i == 0 ? "" : ", ", took[i]);
  std::printf("]}");
}

int Run(int blocks, int steps) {
  Blas blas;
  const std::string why = blas.Open();
  if (!why.empty()) {
    std::printf("skipped: %s\n", why.c_str());
    return test::kSkipped;
  }
  cudaStream_t stream = nullptr;
  Must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
  StepBlock block({}, blas, stream);
  int64_t step = 0;
  Observer observer(block, stream);
  RunBlock(&block, nullptr, stream, kWarmUp, &step);
  // Each of the first steps is sampled, more than the ring holds of steps that are all enqueued at
  // once; a trainer looks at its loss now and then.
  for (int i = 0; i < kWarmUp; ++i) {
    RunBlock(&block, &observer, stream, 1, &step);
    observer.CatchUp();
  }
  std::printf("{\"flops\": %.0f, \"blocks\": [", block.flops());
  for (int i = 0; i < blocks; ++i) {
    const bool probes = i % 2 == 0;
    PrintBlock(i == 0, probes,
               RunBlock(&block, probes ? &observer : nullptr, stream, steps, &step));
  }
  observer.Finish();
  const auto number = [](int64_t n) { return static_cast<long long>(n); };
  std::printf(
      "], \"observed_steps\": %lld, \"taken\": %lld, \"lost\": %lld, \"sampled\": %lld, "
      "\"measured\": %lld}\n",
      number(step), number(observer.taken()), number(observer.lost()), number(observer.sampled()),
      number(observer.measured()));
  return observer.measured() == observer.taken() ? 0 : 1;
}

}  // namespace
}  // namespace plumbline::gpu

int main(int argc, char** argv) {
  int blocks = 80, steps = 20;
  for (int i = 1; i < argc; i += 2) {
    const bool known = i + 1 < argc && (std::strcmp(argv[i], "--blocks") == 0 ||
                                        std::strcmp(argv[i], "--steps") == 0);
    const int value = known ? std::atoi(argv[i + 1]) : 0;
    if (value < 1) {
      std::fprintf(stderr, "usage: gpu_step [--blocks N] [--steps N], N at least 1\n");
      return 2;
    }
    (std::strcmp(argv[i], "--blocks") == 0 ? blocks : steps) = value;
  }
  const std::string why = plumbline::test::WhyNoGpu();
  if (!why.empty()) {
    std::printf("skipped: %s\n", why.c_str());
    return plumbline::test::kSkipped;
  }
  return plumbline::gpu::Run(blocks, steps);
}
