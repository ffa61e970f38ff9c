// A model that a run observes: tensors of several sizes, and updates, one by one or together.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/agent/core/on_device.h"

namespace plumbline::agent::testing {

using Statuses = std::vector<plumbline_status_t>;

// A model: tensors of several sizes, one of them rows of probabilities, and updates of some of
// them.
class Model {
 public:
  Model(TestRun* run, DLDevice device, int tensors, int updates, int streams = 1)
      : run_(run), streams_(streams) {
    for (int i = 0; i < tensors; ++i) {
      const std::string name = "w" + std::to_string(i);
      weights_.push_back(Of(device, i == 5 ? 60 : 7 + 13 * i, i == 5));
      weight_sites_.push_back(DeclareSite(run, PLUMBLINE_KIND_TENSOR, name.c_str(), "", &due_));
    }
    for (int i = 0; i < updates; ++i) {
      const std::string name = "w" + std::to_string(i);
      for (int part = 0; part < 4; ++part) parts_.push_back(Of(device, 50 + i, false));
      update_sites_.push_back(DeclareSite(run, PLUMBLINE_KIND_UPDATE, name.c_str(), "", &due_));
    }
  }

  plumbline_status_t Tensor(int64_t step, size_t i) {
    plumbline_tensor_t call = PLUMBLINE_TENSOR_INIT;
    call.values = &weights_[i]->t;
    call.role = i == 5 ? "probabilities" : "weight";
    call.cuda_stream = StreamOf(i);
    return run_->run().ObserveTensor(weight_sites_[i], step, call, &error);
  }
  plumbline_status_t Update(int64_t step, size_t i) {
    plumbline_update_t call = PLUMBLINE_UPDATE_INIT;
    call.before = &parts_[4 * i]->t;
    call.after = &parts_[4 * i + 1]->t;
    call.intended = &parts_[4 * i + 2]->t;
    call.gradient = &parts_[4 * i + 3]->t;
    call.optimizer = "sgd";
    call.cuda_stream = StreamOf(i);
    return run_->run().ObserveUpdate(update_sites_[i], step, call, &error);
  }
  Statuses Tensors(int64_t step) {
    Statuses statuses;
    for (size_t i = 0; i < weights_.size(); ++i) statuses.push_back(Tensor(step, i));
    return statuses;
  }
  // All calls.
  Statuses At(int64_t step) {
    Statuses statuses = Tensors(step);
    for (size_t i = 0; i < update_sites_.size(); ++i) statuses.push_back(Update(step, i));
    return statuses;
  }
  PlacedTensor<float>& weight(size_t i) { return *weights_[i]; }
  plumbline_error_t error{};

 private:
  std::unique_ptr<PlacedTensor<float>> Of(DLDevice device, int64_t n, bool rows) {
    std::vector<float> values(static_cast<size_t>(n));
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<float>((i + ++drawn_) * 7919 % 1009) / 1009;
    const auto shape = rows ? std::vector<int64_t>{n / 10, 10} : std::vector<int64_t>{n};
    return std::make_unique<PlacedTensor<float>>(values, shape, kPlacedFloat, device);
  }
  void* StreamOf(size_t i) const { return Stream(3 + i % static_cast<size_t>(streams_)); }

  TestRun* run_;
  int streams_;
  size_t drawn_ = 0;
  uint64_t due_ = 0;
  std::vector<std::unique_ptr<PlacedTensor<float>>> weights_, parts_;
  std::vector<Site*> weight_sites_, update_sites_;
};

// Calls TogetherBegin and TogetherEnd around all calls of a step, or does not.
struct Around {
  Model* model;
  TestRun* run;
  bool together;
  plumbline_error_t& error = model->error;

  Statuses At(int64_t step) {
    if (together) {
      EXPECT_EQ(run->run().TogetherBegin(), PLUMBLINE_OK);
    }
    Statuses statuses = model->At(step);
    if (together) {
      EXPECT_EQ(run->run().TogetherEnd(), PLUMBLINE_OK);
    }
    return statuses;
  }
};

}  // namespace plumbline::agent::testing
