// How many runs there are, and what names of series and sites each has, in number and in bytes:
// what a sender could fill memory with, batch after batch.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "absl/hash/hash.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "plumbline/v1/batch.pb.h"
#include "server/ingest/run_shares.h"
#include "server/stream/known_name.h"
#include "server/stream/sender.h"
#include "server/stream/shared_bytes.h"
#include "server/stream/shares.h"

namespace plumbline::server {

// Thread-safe. Counts by 64-bit hashes of names, which nobody outside can foresee. A run has a
// place while a connection names it, and from its first evidence until it is over; then its names
// are forgotten. What a message costs is linear in its size: sets count once for each run, and a
// batch names few.
class NameTable {
 public:
  // `bytes`: of all runs; null: nobody counts them. One run may have a quarter of them, and gets
  // more while it has less than is left.
  NameTable(size_t max_runs, size_t max_names, Shares shares = {},
            std::shared_ptr<SharedBytes> bytes = nullptr)
      : max_names_(max_names), bytes_(std::move(bytes)), run_shares_(max_runs, std::move(shares)) {}

  // A run that was not named before counts as the sender's, until it is over. ResourceExhausted:
  // one run too many, of all or of the sender's.
  absl::Status AddRun(const std::string& run, const Sender& sender = {});
  // What a connection has of the runs that its hello names. The table must outlive it.
  class Hold {
   public:
    Hold(NameTable* table, std::set<std::string> runs) : table_(table), runs_(std::move(runs)) {}
    ~Hold() { Release(); }
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;
    // The connection is gone. The second call does nothing.
    void Release();

   private:
    NameTable* const table_;
    const std::set<std::string> runs_;
    std::atomic<bool> released_{false};
  };
  enum class Take { kAny, kKnown };  // kKnown: only runs that have a place already
  // All of them, or none. ResourceExhausted: as AddRun.
  absl::StatusOr<std::shared_ptr<Hold>> Connect(const std::set<std::string>& runs,
                                                const Sender& sender, Take take = Take::kAny);
  // Sets a callback that runs when a place may have become free, with no lock held. It must be
  // quick.
  void SetOnFree(std::function<void()> on_free);
  size_t runs() const;  // that have a place
  // The sites of the evidence, the series sets, the declarations and the losses (with their causes)
  // that `batch`, which passed CheckReceived, brings. ResourceExhausted names the run; then nothing
  // of the batch is to be taken.
  absl::Status Add(const v1::Batch& batch, const std::string& owner = "");
  absl::Status Add(const std::string& run, const v1::SeriesSet& set);
  // Names that a former process let in, as the judge found them again: they are there, whether
  // there is room or not.
  void Note(const std::vector<KnownName>& names);
  // The run is over: what was kept of its names is not any more, nor its place, unless a connection
  // names it.
  void Forget(const std::string& run);
  // Who named the run first; empty: nobody is known.
  std::string OwnerOf(const std::string& run) const;

 private:
  struct Run {
    // These are guarded by the table's mutex, as the map of runs is.
    std::string owner;
    bool noted = false;  // known from a former process alone
    RunShares::Place place;
    size_t connections = 0;  // that name it
    // Evidence came, and it is not over since. Set without the lock.
    std::atomic<bool> going_on{false};
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
  using Runs = std::unordered_map<std::string, std::shared_ptr<Run>, absl::Hash<std::string>>;
  std::shared_ptr<Run> Find(const std::string& run, const Sender& sender, absl::Status* full);
  std::shared_ptr<Run> FindLocked(const std::string& run, const Sender& sender, absl::Status* full,
                                  Take take = Take::kAny) PLUMB_REQUIRES(mutex_);
  void Disconnect(const std::string& run) PLUMB_REQUIRES(mutex_);
  void EraseIfUnused(Runs::iterator run) PLUMB_REQUIRES(mutex_);
  absl::Status Add(const std::string& name, Run* run, const Cost& cost);
  static absl::Status AddCause(const std::string& name, Run* run, const Cost& cost);
  // Each of them, for the run that its source names.
  template <typename Entries, typename CostOf>
  absl::Status AddEach(const v1::Batch& batch, const Entries& entries, const CostOf& cost_of);

  const size_t max_names_;
  const std::shared_ptr<SharedBytes> bytes_;
  mutable SharedMutex mutex_;
  Runs runs_ PLUMB_GUARDED_BY(mutex_);
  RunShares run_shares_ PLUMB_GUARDED_BY(mutex_);
  std::function<void()> on_free_ PLUMB_GUARDED_BY(mutex_);
};

}  // namespace plumbline::server
