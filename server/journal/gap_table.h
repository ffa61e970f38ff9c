// What the journal no longer holds: taken by retention, or lost to damage. Never forgotten.
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

// Thread-safe but for construction. A framed log of v1::JournalGaps.
class GapTable {
 public:
  // Creates the file when it is not there. A damaged one is set aside as PATH.damaged: what it
  // still says is kept.
  static absl::StatusOr<std::unique_ptr<GapTable>> Open(const std::string& path);
  static std::unique_ptr<GapTable> InMemory();

  // Durable when it returns OK; an equal one that is there already is not added again.
  absl::Status Add(const v1::JournalGaps& gaps, bool* known = nullptr);
  // Entries that damage took: of which runs nobody knows. `known`: whether it was noted before, by
  // this process or a former one.
  absl::Status AddLost(const LostEntries& lost, bool* known = nullptr);
  // Of each loss that AddLost is given, once a process; on the caller's thread. Before the first.
  void SetOnLost(std::function<void(const LostEntries&)> on_lost) { on_lost_ = std::move(on_lost); }
  // What of entries 1 to `last` retention did not take.
  std::vector<LostEntries> NotTaken(uint64_t last) const;

  // What retention took of entries after this one, by run and attempt, without a reason.
  std::vector<v1::Gap> TakenAfter(uint64_t entry) const;
  // Of one run, and those of unknown runs; empty: all. Merged by run, attempt and reason.
  std::vector<v1::Gap> Of(const std::string& run) const;

 private:
  void Take(const v1::JournalGaps& gaps) PLUMB_REQUIRES(mutex_);

  std::string path_;
  std::function<void(const LostEntries&)> on_lost_;
  mutable Mutex mutex_;
  std::unique_ptr<FramedLogWriter> log_ PLUMB_GUARDED_BY(mutex_);  // null: in memory
  // First and last entry, and whether they were taken, not lost.
  std::map<std::pair<uint64_t, uint64_t>, bool> known_ PLUMB_GUARDED_BY(mutex_);
  std::set<std::pair<uint64_t, uint64_t>> told_ PLUMB_GUARDED_BY(mutex_);  // to on_lost_
  std::vector<v1::Gap> merged_ PLUMB_GUARDED_BY(mutex_);
};

}  // namespace plumbline::server
