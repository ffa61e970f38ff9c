// Counts the runs, and the names of series and sites of each run, in number and in bytes. Without
// this limit, a sender could fill the memory with new names.
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

// Thread-safe. Counts 64-bit hashes of names, which are salted, so that a sender cannot predict
// them. A run has a place while a connection names it, and from its first evidence until it is
// over; then its names are forgotten. The work on a message is linear in its size: a set counts
// once for each run, and a batch names few runs.
class NameTable {
 public:
  // `bytes`: the limit for the names of all runs; null: none. A run may use a quarter of it, and
  // gets more while it has less than the remaining bytes.
  NameTable(size_t max_runs, size_t max_names, Shares shares = {},
            std::shared_ptr<SharedBytes> bytes = nullptr)
      : max_names_(max_names), bytes_(std::move(bytes)), run_shares_(max_runs, std::move(shares)) {}

  // Counts a run that was not named before as the sender's, until the run is over. Returns
  // ResourceExhausted if there are too many runs in all, or too many of the sender.
  absl::Status AddRun(const std::string& run, const Sender& sender = {});
  // The places that a connection holds for the runs in its hello. The table must outlive it.
  class Hold {
   public:
    Hold(NameTable* table, std::set<std::string> runs) : table_(table), runs_(std::move(runs)) {}
    ~Hold() { Release(); }
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;
    // Frees the places when the connection is gone. A second call does nothing.
    void Release();

   private:
    NameTable* const table_;
    const std::set<std::string> runs_;
    std::atomic<bool> released_{false};
  };
  enum class Take { kAny, kKnown };  // kKnown: only runs that have a place already
  // Takes places for all of `runs`, or for none. Returns ResourceExhausted as AddRun does.
  absl::StatusOr<std::shared_ptr<Hold>> Connect(const std::set<std::string>& runs,
                                                const Sender& sender, Take take = Take::kAny);
  // Sets a callback that runs when a place may have become free, with no lock held. It must be
  // quick.
  void SetOnFree(std::function<void()> on_free);
  size_t runs() const;  // that have a place
  // Counts the names in `batch`: sites of evidence, series sets, declarations, and losses with
  // their causes. The batch must have passed CheckReceived. Returns ResourceExhausted, which names
  // the run; then the caller must not take the batch.
  absl::Status Add(const v1::Batch& batch, const std::string& owner = "");
  absl::Status Add(const std::string& run, const v1::SeriesSet& set);
  // Counts the names that a former process accepted and that the judge restored, even beyond the
  // limits.
  void Note(const std::vector<KnownName>& names);
  // Forgets the names of a run that is over, and frees its place unless a connection names it.
  void Forget(const std::string& run);
  // Returns the sender that named the run first; empty: not known.
  std::string OwnerOf(const std::string& run) const;

 private:
  struct Run {
    // The table's mutex guards these, and the map of runs.
    std::string owner;
    bool noted = false;  // known from a former process alone
    RunShares::Place place;
    size_t connections = 0;  // that name it
    // Evidence arrived, and the run is not over since. Set without the lock.
    std::atomic<bool> going_on{false};
    SharedMutex mutex;
    std::unordered_set<uint64_t> names PLUMB_GUARDED_BY(mutex);
    std::unordered_set<uint64_t> lists PLUMB_GUARDED_BY(mutex);
    std::unordered_set<uint64_t> causes PLUMB_GUARDED_BY(mutex);  // of losses without a site
    SharedBytes::Held bytes PLUMB_GUARDED_BY(mutex);
  };
  // A counted item: a name, a list of names, or a cause of losses without a name.
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
