#include "server/backup/copy_check.h"

#include <algorithm>
#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/framed_log.h"
#include "plumbline/v1/journal.pb.h"
#include "server/journal/checkpoint_file.h"
#include "server/journal/journal_reader.h"
#include "server/journal/lost_end.h"

namespace plumbline::server {
namespace {

using Ranges = std::map<uint64_t, uint64_t>;  // first -> last entry

// Returns the entries that the server lists as lost. If there is no list, returns none.
absl::StatusOr<Ranges> ReadGaps(const std::string& path) {
  Ranges gaps;
  auto log = FramedLogReader::Open(path);
  if (absl::IsNotFound(log.status())) return gaps;
  if (!log.ok()) return log.status();
  FrameType type;
  std::string payload;
  for (;;) {
    const FramedLogReader::Result result = (*log)->Next(&type, &payload);
    if (result == FramedLogReader::Result::kDamaged)
      return absl::DataLossError(absl::StrCat(path, ": ", (*log)->error()));
    if (result != FramedLogReader::Result::kFrame) return gaps;
    v1::JournalGaps listed;
    if (type != FrameType::kJournalGaps || !listed.ParseFromString(payload)) continue;
    uint64_t& last = gaps[listed.first_entry()];
    last = std::max<uint64_t>(last, listed.last_entry());
  }
}

// Returns the first entry from `from` to `to` that no gap covers; 0 if all are covered.
uint64_t NotListed(const Ranges& gaps, uint64_t from, uint64_t to) {
  for (const auto& [first, last] : gaps) {
    if (first > from) break;
    if (last >= from) from = last + 1;
  }
  return from <= to ? from : 0;
}

class Check {
 public:
  explicit Check(const std::string& directory)
      : journal_(directory + "/journal"),
        checkpoint_(directory + "/checkpoint"),
        gaps_path_(directory + "/gaps.plg") {}

  absl::StatusOr<CopyState> Run() {
    auto gaps = ReadGaps(gaps_path_);
    if (!gaps.ok()) return gaps.status();
    gaps_ = std::move(*gaps);
    if (auto s = ReadCheckpoints(); !s.ok()) return s;
    if (auto s = ReadJournal(); !s.ok()) return s;
    return state_;
  }

 private:
  absl::Status ReadCheckpoints() {
    auto names = ListCheckpoints(checkpoint_);
    if (!names.ok()) return names.status();
    for (const CheckpointName& name : *names) {
      if (auto read = ReadCheckpoint(name.path); !read.ok()) return read.status();
    }
    state_.checkpoints = names->size();
    state_.checkpoint_entry = names->empty() ? 0 : names->front().entry;
    newest_ = NewestEntryOf(*names);
    return absl::OkStatus();
  }

  absl::Status ReadJournal() {
    auto reader = JournalReader::Open(journal_, 1);
    if (!reader.ok()) return reader.status();
    const uint64_t first = (*reader)->next();
    if (auto s = Lost(1, first - 1, journal_ + ": its beginning is missing"); !s.ok()) return s;
    StoredEntry entry;
    for (;;) {
      const JournalReader::Result result = (*reader)->Next(&entry);
      if (result == JournalReader::Result::kEnd) break;
      if (result != JournalReader::Result::kLost) continue;
      const LostEntries& lost = (*reader)->lost();
      if (auto s = Lost(lost.first, lost.last, lost.where); !s.ok()) return s;
    }
    if (!(*reader)->damaged_end().empty()) return absl::DataLossError((*reader)->damaged_end());
    const uint64_t last = (*reader)->next() - 1;
    const std::string where =
        absl::StrCat(journal_, ": it ends at entry ", last, ", a checkpoint knows entry ", newest_);
    if (auto s = Lost(last + 1, newest_, where); !s.ok()) return s;
    state_.first_entry = last < first ? 0 : first;
    state_.last_entry = last < first ? 0 : last;
    state_.last_segment = (*reader)->path();
    state_.whole_bytes = (*reader)->whole_bytes();
    return absl::OkStatus();
  }

  absl::Status Lost(uint64_t first, uint64_t last, const std::string& where) {
    if (first > last) return absl::OkStatus();
    const uint64_t unknown = NotListed(gaps_, first, last);
    if (unknown == 0) {
      state_.known_lost += last - first + 1;
      return absl::OkStatus();
    }
    return absl::DataLossError(
        absl::StrCat(where, "; expected entries ", first, " to ", last,
                     ", which the server does not list as lost (from ", unknown,
                     " on); the server lists its losses at each start (plumb runs)"));
  }

  const std::string journal_, checkpoint_, gaps_path_;
  Ranges gaps_;
  uint64_t newest_ = 0;  // last entry that a checkpoint knows
  CopyState state_;
};

}  // namespace

absl::StatusOr<CopyState> CheckCopy(const std::string& directory) { return Check(directory).Run(); }

}  // namespace plumbline::server
