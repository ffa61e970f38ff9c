// Batches for the transport's tests, and a full disk.
#pragma once

#include <sys/resource.h>

#include <csignal>
#include <random>
#include <string>

#include "plumbline/v1/batch.pb.h"
#include "tests/support/batches.h"
#include "transport/batch_edit.h"

namespace plumbline::transport::testing {

inline v1::Source SourceOf() { return test::SourceOf("test", 3, 8); }

// Returns `items` pieces of evidence of one step: alternately routers with samples and a series.
inline v1::Batch StepBatch(int64_t step, int items, size_t sample_bytes = 0) {
  v1::Batch batch = test::BatchOf(SourceOf());
  for (int i = 0; i < items; ++i) {
    v1::Evidence& e = *batch.add_evidence();
    e.set_step(step);
    if (i % 2 == 1) {
      e.mutable_site()->set_op("loss");
      e.mutable_scalar()->set_value(static_cast<double>(step));
      continue;
    }
    e.mutable_site()->set_layer("layers." + std::to_string(i));
    e.mutable_site()->set_op("routing");
    e.mutable_routing()->mutable_summary()->set_tokens(7);
    if (sample_bytes != 0) {
      std::mt19937 random(static_cast<uint32_t>(step));  // incompressible
      std::string bytes(sample_bytes, 0);
      for (char& c : bytes) c = static_cast<char>(random());
      e.mutable_routing()->mutable_sample()->mutable_scores()->set_data(bytes);
    }
  }
  v1::Progress* p = batch.add_progress();
  p->set_any_step(true);
  p->set_complete_through(step);
  return batch;
}

// While it exists, no file may grow beyond `bytes`: writes fail as on a full disk.
class FullDisk {
 public:
  explicit FullDisk(uint64_t bytes) {
    std::signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before_);
    rlimit full = before_;
    full.rlim_cur = bytes;
    setrlimit(RLIMIT_FSIZE, &full);
  }
  ~FullDisk() { setrlimit(RLIMIT_FSIZE, &before_); }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;

 private:
  rlimit before_{};
};

}  // namespace plumbline::transport::testing
