// Tensors and an update that a run observes in each step.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "tests/agent/core/on_device.h"

namespace plumbline::agent::testing {

// A tensor, rows of probabilities, and an update, observed in each step of a run.
class Observed {
 public:
  Observed(TestRun* run, DLDevice device, void* stream = nullptr) : run_(run) {
    weight_site_ = Declare(PLUMBLINE_KIND_TENSOR, "w", "weight");
    rows_site_ = Declare(PLUMBLINE_KIND_TENSOR, "router", "probabilities");
    update_site_ = Declare(PLUMBLINE_KIND_UPDATE, "w", "update");
    for (size_t i = 0; i < kTensors; ++i) {
      values_[i].resize(kRows * kColumns);
      for (size_t j = 0; j < values_[i].size(); ++j) {
        values_[i][j] = static_cast<float>((i + 3) * j * 7919 % 1009) / 1009;
      }
      tensors_[i] = {};
      tensors_[i].data = values_[i].data();
      tensors_[i].device = device;
      tensors_[i].dtype = {PLUMBLINE_DL_FLOAT, 32, 1};
      tensors_[i].ndim = 2;
      tensors_[i].shape = shape_;
    }
    weight_.values = &tensors_[0];
    weight_.role = "weight";
    weight_.target_format = PLUMBLINE_DTYPE_E4M3;
    rows_.values = &tensors_[1];
    rows_.role = "probabilities";
    update_.before = &tensors_[2];
    update_.after = &tensors_[3];
    update_.intended = &tensors_[4];
    update_.moment_after = &tensors_[5];
    update_.optimizer = "adamw";
    weight_.cuda_stream = rows_.cuda_stream = update_.cuda_stream = stream;
  }

  // The three statuses.
  std::vector<plumbline_status_t> At(int64_t step) {
    if (step >= 0) Change(step);
    Run& run = run_->run();
    return {run.ObserveTensor(weight_site_, step, weight_, &error),
            run.ObserveTensor(rows_site_, step, rows_, &error),
            run.ObserveUpdate(update_site_, step, update_, &error)};
  }
  DLTensor& tensor(size_t i) { return tensors_[i]; }
  bool due(int64_t step) const { return static_cast<uint64_t>(step) >= due_; }
  // The same change as in At, without the calls.
  void Change(int64_t step) { values_[0][static_cast<size_t>(step) % values_[0].size()] += 1; }
  plumbline_error_t error{};

 private:
  static constexpr size_t kTensors = 6;
  static constexpr int64_t kRows = 37, kColumns = 50;

  Site* Declare(int32_t kind, const char* layer, const char* op) {
    plumbline_agent_site_t site{sizeof(site), kind, layer, op, 0, &due_, nullptr, 0};
    void* made = nullptr;
    EXPECT_EQ(run_->run().DeclareSite(site, &made, &error), PLUMBLINE_OK) << error.text;
    return static_cast<Site*>(made);
  }

  TestRun* run_;
  uint64_t due_ = 0;
  Site *weight_site_, *rows_site_, *update_site_;
  std::vector<float> values_[kTensors];
  int64_t shape_[2] = {kRows, kColumns};
  DLTensor tensors_[kTensors];
  plumbline_tensor_t weight_ = PLUMBLINE_TENSOR_INIT;
  plumbline_tensor_t rows_ = PLUMBLINE_TENSOR_INIT;
  plumbline_update_t update_ = PLUMBLINE_UPDATE_INIT;
};

}  // namespace plumbline::agent::testing
