// How many runs there are, and how many names of series and sites each has: what a sender could
// fill memory with, batch after batch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "absl/hash/hash.h"
#include "absl/status/status.h"
#include "base/mutex.h"
#include "plumbline/v1/batch.pb.h"
#include "server/stream/shares.h"

namespace plumbline::server {

// Thread-safe. Counts by 64-bit hashes of names, which nobody outside can foresee, since the start
// of this process. What a message costs is linear in its size: sets count once for each run, and a
// batch names few.
class NameBook {
 public:
  NameBook(size_t max_runs, size_t max_names, Shares shares = {})
      : max_runs_(max_runs), max_names_(max_names), shares_(std::move(shares)) {}

  // `owner`, who says so, counts a run that nobody has named before. ResourceExhausted: one run too
  // many, of all or of the owner's.
  absl::Status AddRun(const std::string& run, const std::string& owner = "");
  // The sites of the evidence, the series sets, the declarations and the losses (with their causes)
  // that `batch`, which passed CheckBatch, brings. ResourceExhausted names the run; then nothing of
  // the batch is to be taken.
  absl::Status Add(const v1::Batch& batch, const std::string& owner = "");
  absl::Status Add(const std::string& run, const v1::SeriesSet& set);
  // Who named the run first; empty: nobody is known.
  std::string OwnerOf(const std::string& run) const;

 private:
  struct Run {
    explicit Run(std::string owner_name) : owner(std::move(owner_name)) {}
    const std::string owner;
    SharedMutex mutex;
    std::unordered_set<uint64_t> names PLUMB_GUARDED_BY(mutex);
  };
  std::shared_ptr<Run> Find(const std::string& run, const std::string& owner, absl::Status* full);
  absl::Status Add(const std::string& name, Run* run, uint64_t hash);
  // Each of them, for the run that its source names.
  template <typename Entries>
  absl::Status AddEach(const v1::Batch& batch, const Entries& entries);

  const size_t max_runs_, max_names_;
  const Shares shares_;
  mutable SharedMutex mutex_;
  std::unordered_map<std::string, std::shared_ptr<Run>, absl::Hash<std::string>> runs_
      PLUMB_GUARDED_BY(mutex_);
  std::map<std::string, size_t> runs_of_ PLUMB_GUARDED_BY(mutex_);  // by owner
};

}  // namespace plumbline::server
