// How many runs there are, and what names of series and sites each has, in number and in bytes:
// what a sender could fill memory with, batch after batch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "absl/hash/hash.h"
#include "absl/status/status.h"
#include "base/mutex.h"
#include "plumbline/v1/batch.pb.h"
#include "server/ingest/run_shares.h"
#include "server/stream/known_name.h"
#include "server/stream/sender.h"
#include "server/stream/shared_bytes.h"
#include "server/stream/shares.h"

namespace plumbline::server {

// Thread-safe. Counts by 64-bit hashes of names, which nobody outside can foresee: runs since the
// start of this process, names of each run until it is over. What a message costs is linear in its
// size: sets count once for each run, and a batch names few.
class NameTable {
 public:
  // `bytes`: of all runs; null: nobody counts them. One run may have a quarter of them.
  NameTable(size_t max_runs, size_t max_names, Shares shares = {},
            std::shared_ptr<SharedBytes> bytes = nullptr)
      : max_names_(max_names), bytes_(std::move(bytes)), run_shares_(max_runs, std::move(shares)) {}

  // A run that was not named before counts as the sender's. ResourceExhausted: one run too many, of
  // all or of the sender's.
  absl::Status AddRun(const std::string& run, const Sender& sender = {});
  // The sites of the evidence, the series sets, the declarations and the losses (with their causes)
  // that `batch`, which passed CheckReceived, brings. ResourceExhausted names the run; then nothing
  // of the batch is to be taken.
  absl::Status Add(const v1::Batch& batch, const std::string& owner = "");
  absl::Status Add(const std::string& run, const v1::SeriesSet& set);
  // Names that a former process let in, as the judge found them again: they are there, whether
  // there is room or not.
  void Note(const std::vector<KnownName>& names);
  // The run is over: what was kept of its names is not any more.
  void Forget(const std::string& run);
  // Who named the run first; empty: nobody is known.
  std::string OwnerOf(const std::string& run) const;

 private:
  struct Run {
    // These two are behind the incident table's mutex, as the map of runs is.
    std::string owner;
    bool noted = false;  // known from a former process alone
    SharedMutex mutex;
    std::unordered_set<uint64_t> names PLUMB_GUARDED_BY(mutex);
    std::unordered_set<uint64_t> lists PLUMB_GUARDED_BY(mutex);
    std::unordered_set<uint64_t> causes PLUMB_GUARDED_BY(mutex);  // of losses without a site
    SharedBytes::Held bytes PLUMB_GUARDED_BY(mutex);
  };
  // A name, a list of some, or a cause of losses without one, as it is counted.
  enum class Kind { kName, kList, kCause };
  struct Cost {
    uint64_t hash = 0;
    uint64_t bytes = 0;
    Kind kind = Kind::kName;
  };
  static Cost CostOfName(const v1::Site& site);
  static Cost CostOfLoss(const v1::Loss& loss);
  static Cost CostOfList(const v1::SeriesSet& set);
  std::shared_ptr<Run> Find(const std::string& run, const Sender& sender, absl::Status* full);
  absl::Status Add(const std::string& name, Run* run, const Cost& cost);
  static absl::Status AddCause(const std::string& name, Run* run, const Cost& cost);
  // Each of them, for the run that its source names.
  template <typename Entries, typename CostOf>
  absl::Status AddEach(const v1::Batch& batch, const Entries& entries, const CostOf& cost_of);

  const size_t max_names_;
  const std::shared_ptr<SharedBytes> bytes_;
  mutable SharedMutex mutex_;
  std::unordered_map<std::string, std::shared_ptr<Run>, absl::Hash<std::string>> runs_
      PLUMB_GUARDED_BY(mutex_);
  RunShares run_shares_ PLUMB_GUARDED_BY(mutex_);
};

}  // namespace plumbline::server
