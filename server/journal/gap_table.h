// Records permanently the entries that the journal no longer holds: removed by retention, or lost
// to damage.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/framed_log.h"
#include "base/mutex.h"
#include "plumbline/v1/journal.pb.h"
#include "plumbline/v1/query.pb.h"
#include "server/journal/journal_reader.h"

namespace plumbline::server {

// Thread-safe, except construction. The file is a framed log of v1::JournalGaps.
class GapTable {
 public:
  // Opens the file, and creates it if it is missing. A damaged file is renamed to PATH.damaged, and
  // its readable part is kept.
  static absl::StatusOr<std::unique_ptr<GapTable>> Open(const std::string& path);
  static std::unique_ptr<GapTable> InMemory();

  // Adds gaps durably. If an equal entry exists, it is not added again.
  absl::Status Add(const v1::JournalGaps& gaps, bool* known = nullptr);
  // Adds entries that were lost to damage, of unknown runs. `known` is set to whether they were
  // recorded before, by this process or an earlier one.
  absl::Status AddLost(const LostEntries& lost, bool* known = nullptr);
  // Sets a callback for each loss that is passed to AddLost, called once per process, on the
  // caller's thread. Call before the first.
  void SetOnLost(std::function<void(const LostEntries&)> on_lost) { on_lost_ = std::move(on_lost); }
  // Returns the parts of entries 1 to `last` that retention did not remove.
  std::vector<LostEntries> NotTaken(uint64_t last) const;

  // Returns the gaps of entries after this one that retention removed, by run and attempt, without
  // a reason.
  std::vector<v1::Gap> TakenAfter(uint64_t entry) const;
  // Returns the gaps of one run and of unknown runs; if empty, all. Merged by run, attempt and
  // reason.
  std::vector<v1::Gap> Of(const std::string& run) const;

 private:
  void Take(const v1::JournalGaps& gaps) PLUMB_REQUIRES(mutex_);

  std::string path_;
  std::function<void(const LostEntries&)> on_lost_;
  mutable Mutex mutex_;
  std::unique_ptr<FramedLogWriter> log_ PLUMB_GUARDED_BY(mutex_);  // null: in memory
  // First and last entry; true if retention removed them, false if they were lost.
  std::map<std::pair<uint64_t, uint64_t>, bool> known_ PLUMB_GUARDED_BY(mutex_);
  std::set<std::pair<uint64_t, uint64_t>> reported_
      PLUMB_GUARDED_BY(mutex_);  // reported to on_lost_
  std::vector<v1::Gap> merged_ PLUMB_GUARDED_BY(mutex_);
};

}  // namespace plumbline::server
