// Captures what is launched on a stream once, and replays it.
#pragma once

#include <cuda_runtime.h>

#include <functional>

#include "bench/gpu/device_memory.h"

namespace plumbline::gpu {

class StepGraph {
 public:
  StepGraph() = default;
  ~StepGraph() {
    if (made_ != nullptr) cudaGraphExecDestroy(made_);
    if (graph_ != nullptr) cudaGraphDestroy(graph_);
  }
  StepGraph(const StepGraph&) = delete;
  StepGraph& operator=(const StepGraph&) = delete;

  // Captures once. If it cannot be captured, ends the program.
  void Capture(cudaStream_t on, const std::function<void()>& body) {
    Must(cudaStreamBeginCapture(on, cudaStreamCaptureModeThreadLocal), "capture");
    body();
    Must(cudaStreamEndCapture(on, &graph_), "capture");
    Must(cudaGraphInstantiate(&made_, graph_, 0), "graph");
  }
  void Replay(cudaStream_t on) const { Must(cudaGraphLaunch(made_, on), "graph launch"); }

 private:
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t made_ = nullptr;
};

}  // namespace plumbline::gpu
