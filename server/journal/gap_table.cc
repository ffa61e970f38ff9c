#include "server/journal/gap_table.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/process/log.h"

namespace plumbline::server {
namespace {

constexpr char kDamaged[] = "journal-damaged: ";

bool IsLoss(const v1::Gap& gap) { return gap.reason().rfind(kDamaged, 0) == 0; }

std::vector<v1::JournalGaps> ReadAll(const std::string& path, bool* damaged) {
  std::vector<v1::JournalGaps> all;
  auto log = FramedLogReader::Open(path);
  *damaged = !log.ok() && !absl::IsNotFound(log.status());
  if (!log.ok()) return all;
  for (;;) {
    FrameType type;
    std::string payload;
    const FramedLogReader::Result result = (*log)->Next(&type, &payload);
    if (result == FramedLogReader::Result::kFrame) {
      v1::JournalGaps gaps;
      if (type == FrameType::kJournalGaps && gaps.ParseFromString(payload)) all.push_back(gaps);
      continue;
    }
    if (result != FramedLogReader::Result::kDamaged) return all;
    *damaged = true;
    if (!(*log)->Resume()) return all;
  }
}

void Merge(const v1::Gap& gap, v1::Gap* into) {
  into->set_step_first(std::min(into->step_first(), gap.step_first()));
  into->set_step_last(std::max(into->step_last(), gap.step_last()));
  into->set_items(into->items() + gap.items());
}

}  // namespace

absl::StatusOr<std::unique_ptr<GapTable>> GapTable::Open(const std::string& path) {
  bool damaged = false;
  const std::vector<v1::JournalGaps> known = ReadAll(path, &damaged);
  if (damaged) {
    LogError(
        "{}: damaged; reports may lack gaps that it listed, unless the journal shows them; it is "
        "renamed to {}.damaged",
        path, path);
    std::rename(path.c_str(), (path + ".damaged").c_str());
  }
  auto log = FramedLogWriter::Open(path);
  if (!log.ok()) return log.status();
  auto table = std::make_unique<GapTable>();
  table->path_ = path;
  {
    const MutexLock lock(table->mutex_);
    table->log_ = std::move(*log);
    if (!damaged) {
      for (const v1::JournalGaps& gaps : known) table->Take(gaps);
      return table;
    }
  }
  for (const v1::JournalGaps& gaps : known) {
    if (auto s = table->Add(gaps); !s.ok()) return s;
  }
  return table;
}

std::unique_ptr<GapTable> GapTable::InMemory() { return std::make_unique<GapTable>(); }

absl::Status GapTable::Add(const v1::JournalGaps& gaps, bool* known) {
  const MutexLock lock(mutex_);
  const bool before = known_.contains({gaps.first_entry(), gaps.last_entry()});
  if (known != nullptr) *known = before;
  if (before) return absl::OkStatus();
  if (log_ != nullptr) {
    if (auto s = log_->Append(FrameType::kJournalGaps, gaps.SerializeAsString()); !s.ok()) return s;
    if (auto s = log_->Sync(); !s.ok()) return s;
  }
  Take(gaps);
  return absl::OkStatus();
}

absl::Status GapTable::AddLost(const LostEntries& lost, bool* known) {
  const bool fresh = [&] {
    const MutexLock lock(mutex_);
    return reported_.emplace(lost.first, lost.last).second;
  }();
  if (fresh && on_lost_) on_lost_(lost);
  v1::JournalGaps gaps;
  gaps.set_first_entry(lost.first);
  gaps.set_last_entry(lost.last);
  gaps.add_gaps()->set_reason(absl::StrCat(kDamaged, "entries ", lost.first, " to ", lost.last,
                                           " cannot be read (", lost.where, ")"));
  return Add(gaps, known);
}

std::vector<LostEntries> GapTable::NotTaken(uint64_t last) const {
  const MutexLock lock(mutex_);
  std::vector<LostEntries> out;
  uint64_t next = 1;
  for (const auto& [range, taken] : known_) {
    const auto [from, to] = range;
    if (from > last) break;
    if (!taken) continue;
    if (from > next) out.push_back({next, from - 1, ""});
    next = std::max(next, to + 1);
  }
  if (next <= last) out.push_back({next, last, ""});
  return out;
}

void GapTable::Take(const v1::JournalGaps& gaps) {
  const bool taken = std::none_of(gaps.gaps().begin(), gaps.gaps().end(), IsLoss);
  if (!known_.emplace(std::pair(gaps.first_entry(), gaps.last_entry()), taken).second) return;
  for (const v1::Gap& gap : gaps.gaps()) {
    const auto same = std::find_if(merged_.begin(), merged_.end(), [&](const v1::Gap& other) {
      return other.run() == gap.run() && other.attempt() == gap.attempt() &&
             other.reason() == gap.reason();
    });
    if (same == merged_.end()) {
      merged_.push_back(gap);
      continue;
    }
    Merge(gap, &*same);
  }
}

std::vector<v1::Gap> GapTable::TakenAfter(uint64_t entry) const {
  std::map<std::pair<std::string, uint32_t>, v1::Gap> merged;
  bool damaged = false;
  for (const v1::JournalGaps& gaps : ReadAll(path_, &damaged)) {
    if (gaps.last_entry() <= entry) continue;
    for (const v1::Gap& gap : gaps.gaps()) {
      if (IsLoss(gap)) continue;
      const auto [at, fresh] = merged.try_emplace({gap.run(), gap.attempt()}, gap);
      if (!fresh) Merge(gap, &at->second);
    }
  }
  std::vector<v1::Gap> out;
  for (auto& [key, gap] : merged) out.push_back(std::move(gap));
  return out;
}

std::vector<v1::Gap> GapTable::Of(const std::string& run) const {
  const MutexLock lock(mutex_);
  std::vector<v1::Gap> gaps;
  for (const v1::Gap& gap : merged_) {
    if (run.empty() || gap.run().empty() || gap.run() == run) gaps.push_back(gap);
  }
  return gaps;
}

}  // namespace plumbline::server
