// Measures the cost of the probes in a training step on a GPU: blocks of steps with and without
// them alternate, so that heat and neighbours affect both alike, at the agent's default cadence.
// Prints one JSON object, from which tools/gpu_check computes the figure.
//
//   gpu_step [--blocks 80] [--steps 20] [--graph 1] [--copies 1]
//
// --graph 1: the step is a CUDA graph, one with the probes in it, and one without.
// --copies 1: other streams copy 256 MB to the GPU and 256 MB back all the time, like a trainer
// that offloads; small copies of the probes could wait for them.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/gpu/step_block.h"
#include "bench/gpu/step_graph.h"
#include "bench/gpu/step_observer.h"
#include "tests/support/gpu.h"

namespace plumbline::gpu {
namespace {

constexpr int kWarmUp = 20;

// Copies 256 MB to the GPU and back repeatedly, in both directions at once, if Next is called often
// enough.
class Copies {
 public:
  explicit Copies(bool wanted) : wanted_(wanted), memory_(wanted ? 2 * kBytes : 1) {
    if (!wanted) return;
    for (Way& way : ways_) {
      way.host = std::make_unique<PinnedMemory>(kBytes);
      Must(cudaStreamCreateWithFlags(&way.stream, cudaStreamNonBlocking), "stream");
    }
  }
  ~Copies() {
    for (const Way& way : ways_) {
      if (way.stream != nullptr) cudaStreamDestroy(way.stream);
    }
  }
  Copies(const Copies&) = delete;
  Copies& operator=(const Copies&) = delete;

  // Starts the next copy in each direction whose last copy is done.
  void Next() {
    if (!wanted_) return;
    Way &up = ways_[0], &down = ways_[1];
    if (cudaStreamQuery(up.stream) == cudaSuccess) {
      Must(cudaMemcpyAsync(memory_.data(), up.host->data(), kBytes, cudaMemcpyHostToDevice,
                           up.stream),
           "copy up");
      ++copied_;
    }
    if (cudaStreamQuery(down.stream) == cudaSuccess) {
      Must(cudaMemcpyAsync(down.host->data(), memory_.at(kBytes), kBytes, cudaMemcpyDeviceToHost,
                           down.stream),
           "copy down");
      ++copied_;
    }
  }
  int64_t copied() const { return copied_; }

 private:
  static constexpr size_t kBytes = 256'000'000;
  struct Way {
    std::unique_ptr<PinnedMemory> host;
    cudaStream_t stream = nullptr;
  };
  bool wanted_;
  DeviceMemory memory_;
  Way ways_[2];
  int64_t copied_ = 0;
};

// Returns the milliseconds of each of `steps` steps by the GPU's clock.
std::vector<float> RunBlock(const std::function<void()>& step, cudaStream_t stream, int steps,
                            Copies* adjacent = nullptr) {
  std::vector<cudaEvent_t> events(static_cast<size_t>(steps) + 1);
  for (cudaEvent_t& e : events) Must(cudaEventCreate(&e), "event");
  Must(cudaEventRecord(events[0], stream), "event");
  for (int i = 0; i < steps; ++i) {
    if (adjacent != nullptr) adjacent->Next();
    step();
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

// The two kinds of steps.
struct Steps {
  std::function<void()> plain, probed;
};

Steps CallByCall(StepBlock* block, Observer* observer) {
  const auto plain = [block] {
    block->Forward();
    block->Backward();
  };
  const auto probed = [block, observer] {
    block->Forward();
    observer->AfterForward();
    block->Backward();
    observer->AfterBackward();
  };
  return {plain, probed};
}

Steps ByGraph(StepGraph* plain, StepGraph* probed, Observer* observer, cudaStream_t stream) {
  return {[=] { plain->Replay(stream); },
          [=] {
            observer->BeginGraph();
            probed->Replay(stream);
            observer->EndGraph();
          }};
}

int Run(int blocks, int steps, bool by_graph, bool with_copies) {
  Blas blas;
  const std::string why = blas.Open();
  if (!why.empty()) {
    std::printf("skipped: %s\n", why.c_str());
    return test::kSkipped;
  }
  cudaStream_t stream = nullptr;
  Must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
  StepBlock block({}, blas, stream);
  Observer observer(block, stream);
  Copies copies(with_copies);
  Steps kinds = CallByCall(&block, &observer);
  RunBlock(kinds.plain, stream, kWarmUp);
  StepGraph plain, probed;
  if (by_graph) {
    RunBlock(kinds.probed, stream, 1);  // prepares the device before the capture
    observer.CatchUp();
    plain.Capture(stream, kinds.plain);
    probed.Capture(stream, [&] {
      block.Forward();
      observer.CaptureForward();
      block.Backward();
      observer.CaptureBackward();
    });
    kinds = ByGraph(&plain, &probed, &observer, stream);
    RunBlock(kinds.plain, stream, kWarmUp);
  }
  // Each of the first steps is sampled, which exceeds the ring if all steps are enqueued at once. A
  // trainer would read its loss now and then, which waits.
  for (int i = 0; i < kWarmUp; ++i) {
    RunBlock(kinds.probed, stream, 1);
    observer.CatchUp();
  }
  std::printf("{\"flops\": %.0f, \"blocks\": [", block.flops());
  for (int i = 0; i < blocks; ++i) {
    const bool probes = i % 2 == 0;
    PrintBlock(i == 0, probes,
               RunBlock(probes ? kinds.probed : kinds.plain, stream, steps, &copies));
  }
  observer.Finish();
  const auto number = [](int64_t n) { return static_cast<long long>(n); };
  std::printf(
      "], \"observed_steps\": %lld, \"taken\": %lld, \"lost\": %lld, \"sampled\": %lld, "
      "\"measured\": %lld, \"copies\": %lld}\n",
      number(observer.steps()), number(observer.taken()), number(observer.lost()),
      number(observer.sampled()), number(observer.measured()), number(copies.copied()));
  return observer.measured() == observer.taken() ? 0 : 1;
}

}  // namespace
}  // namespace plumbline::gpu

int main(int argc, char** argv) {
  int blocks = 80, steps = 20, graph = 0, copies = 0;
  const struct {
    const char* name;
    int* value;
  } options[] = {
      {"--blocks", &blocks}, {"--steps", &steps}, {"--graph", &graph}, {"--copies", &copies}};
  for (int i = 1; i < argc; i += 2) {
    const int value = i + 1 < argc ? std::atoi(argv[i + 1]) : 0;
    bool known = false;
    for (const auto& option : options) {
      if (std::strcmp(argv[i], option.name) != 0) continue;
      *option.value = value;
      known = value >= 1;
    }
    if (known) continue;
    std::fprintf(
        stderr,
        "usage: gpu_step [--blocks N] [--steps N] [--graph 1] [--copies 1], N at least 1\n");
    return 2;
  }
  const std::string why = plumbline::test::WhyNoGpu();
  if (!why.empty()) {
    std::printf("skipped: %s\n", why.c_str());
    return plumbline::test::kSkipped;
  }
  return plumbline::gpu::Run(blocks, steps, graph == 1, copies == 1);
}
