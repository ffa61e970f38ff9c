// A run that records, and functions that read the record: for the tests of observations.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "plumbline/agent.h"
#include "tests/agent/core/support.h"

namespace plumbline::agent::testing {

// A run that records, with one site of each kind.
class Recorded {
 public:
  explicit Recorded(const std::string& dir, uint32_t rank = 0, uint64_t ring_bytes = 0) {
    AgentOptions options = RecordOptions(dir);
    options.rank = rank;
    options.world_size = 8;
    options.traffic_bytes = 1ull << 30;  // every step keeps elements
    if (ring_bytes != 0) options.ring_bytes = ring_bytes;
    auto opened = Run::Open(std::move(options));
    EXPECT_TRUE(opened.ok()) << opened.status();
    run = *std::move(opened);
    tensor = Declare(PLUMBLINE_KIND_TENSOR, "w", "weight");
    reduction = Declare(PLUMBLINE_KIND_REDUCTION, "grads", "sum");
    update = Declare(PLUMBLINE_KIND_UPDATE, "w", "update");
    matmul = Declare(PLUMBLINE_KIND_MATMUL, "up", "matmul");
    logits = Declare(PLUMBLINE_KIND_LOGITS, "policy", "logits");
  }

  Site* Declare(int32_t kind, const char* layer, const char* op) {
    plumbline_agent_site_t site{sizeof(site), kind, layer, op, 0, &due_, nullptr, 0};
    void* made = nullptr;
    EXPECT_EQ(run->DeclareSite(site, &made, &error), PLUMBLINE_OK) << error.text;
    return static_cast<Site*>(made);
  }

  // Ends the run and returns its evidence after checking the batches.
  std::vector<v1::Evidence> Close(const std::string& dir, uint32_t rank = 0) {
    EXPECT_EQ(run->Close(20000, &error), PLUMBLINE_OK) << error.text;
    const auto batches = ReadRecord(RecordPath(dir, v1::ROLE_TRAINER, rank, 0));
    account = AccountOf(batches);
    std::vector<v1::Evidence> all;
    for (const v1::Batch& b : batches) {
      all.insert(all.end(), b.evidence().begin(), b.evidence().end());
    }
    return all;
  }

  std::unique_ptr<Run> run;
  Site *tensor, *reduction, *update, *matmul, *logits;
  plumbline_error_t error{};
  Account account;

 private:
  uint64_t due_ = 0;
};

// A run with one site and a budget so small that few steps keep elements.
class SparseRun {
 public:
  SparseRun(const std::string& dir, int32_t kind, const char* layer, const char* op,
            uint64_t due_at_first = 0)
      : due(due_at_first) {
    AgentOptions options = RecordOptions(dir);
    options.traffic_bytes = 1;
    run = *Run::Open(std::move(options));
    plumbline_agent_site_t declared{sizeof(declared), kind, layer, op, 0, &due, nullptr, 0};
    void* made = nullptr;
    EXPECT_EQ(run->DeclareSite(declared, &made, &error), PLUMBLINE_OK) << error.text;
    site = static_cast<Site*>(made);
  }

  std::unique_ptr<Run> run;
  Site* site = nullptr;
  uint64_t due;
  plumbline_error_t error{};
};

inline std::vector<float> Ramp(size_t n, float scale = 1) {
  std::vector<float> v(n);
  for (size_t i = 0; i < n; ++i) v[i] = scale * static_cast<float>(i);
  return v;
}

inline plumbline_reduction_t ReductionOf(const Tensor& input, const Tensor& output) {
  plumbline_reduction_t r = PLUMBLINE_REDUCTION_INIT;
  r.op = PLUMBLINE_REDUCE_SUM;
  r.input = input.get();
  r.output = output.get();
  return r;
}

template <typename T>
std::vector<T> Data(const v1::Tensor& t) {
  std::vector<T> out(t.data().size() / sizeof(T));
  std::memcpy(out.data(), t.data().data(), t.data().size());
  return out;
}

}  // namespace plumbline::agent::testing
