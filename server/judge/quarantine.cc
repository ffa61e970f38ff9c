#include "server/judge/quarantine.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/judge/quarantine_file.h"
#include "server/process/log.h"

namespace plumbline::server {
namespace {

std::string FileOf(const std::string& directory) { return directory + "/quarantine"; }

// The current work of a judging thread.
struct Turn {
  uint64_t entry = 0;
  bool replaying = false;
  const std::string* only = nullptr;
  size_t place = JudgingMarkPage::kPlaces;  // of its mark
};
thread_local Turn turn;

}  // namespace

Quarantine::Quarantine(const std::string& directory, std::function<int64_t()> unix_ns)
    : directory_(directory), unix_ns_(std::move(unix_ns)) {
  if (directory_.empty()) return;
  Load();
  std::vector<JudgingMark::Found> died;
  std::string error;
  mark_ = JudgingMark::Open(directory_ + "/judging", &died, &error);
  if (mark_ == nullptr)
    LogWarning(
        "{}: if this process crashes while it judges a run, the next one cannot know which run",
        error);
  TakeDeath(died);
}

void Quarantine::Load() {
  const std::string path = FileOf(directory_);
  auto state = ReadQuarantine(path);
  if (!state.ok()) {
    if (absl::IsNotFound(state.status())) return;
    LogError("{}; no run is in quarantine, and none is dropped: it is renamed to {}.damaged",
             std::string(state.status().message()), path);
    std::rename(path.c_str(), (path + ".damaged").c_str());
    return;
  }
  death_ = state->death();
  for (v1::QuarantinedRun& run : *state->mutable_runs()) {
    LogWarning("run {:?}: {}", run.run(),
               run.dropped() ? "was dropped, and is not judged" : "is in quarantine, not judged");
    Entry& entry = runs_[run.run()];
    entry.run = std::move(run);
  }
  CountLocked();
}

// Counts the runs that the earlier process judged when it died. The process may have been killed
// there by chance.
void Quarantine::TakeDeath(const std::vector<JudgingMark::Found>& died) {
  const v1::QuarantineState::Death before = std::exchange(death_, {});
  for (const JudgingMark::Found& found : died) {
    LogWarning("the last process {} while it judged run {:?}, entry {}",
               found.crashed ? "crashed" : "ended", found.run, found.entry);
    // A run in quarantine was being retried.
    if (runs_.contains(found.run)) continue;
    if (died.size() == 1) {
      CountDeath(before, found);
    } else {
      death_.add_runs(found.run);
      death_.set_count(1);
    }
  }
  if (died.empty() && before.runs().empty()) return;
  const MutexLock lock(mutex_);
  if (auto s = SaveLocked(); !s.ok()) LogError("{}", std::string(s.message()));
}

void Quarantine::CountDeath(const v1::QuarantineState::Death& before,
                            const JudgingMark::Found& died) {
  const bool again =
      std::find(before.runs().begin(), before.runs().end(), died.run) != before.runs().end();
  const bool same_place = again && before.runs_size() == 1 && before.entry() == died.entry;
  uint32_t count = 1;
  if (same_place) {
    count += before.count() + (died.crashed ? kSameCrash : kSamePlace) - 1;
  } else if (again && died.replaying) {
    // This death was at a later entry than all earlier deaths, so it has another cause.
    count = before.count() + (died.entry <= before.furthest() ? 1 : 0);
  }
  if (count >= kTooMany) {
    const std::string reason =
        same_place
            ? absl::StrCat("plumbd ", died.crashed ? "crashed" : "died",
                           " repeatedly while it judged entry ", died.entry, " of it")
            : absl::StrCat(
                  "plumbd crashed repeatedly while it judged this run, the last time at entry ",
                  died.entry);
    return Hold(died.run, died.entry, reason);
  }
  death_.add_runs(died.run);
  death_.set_entry(died.entry);
  death_.set_count(count);
  death_.set_furthest(std::max(died.entry, again ? before.furthest() : 0));
}

// ---- for judging threads -----------------------------------------------------------------------

void Quarantine::At(uint64_t entry, bool replaying) {
  turn.entry = entry;
  turn.replaying = replaying;
}

void Quarantine::Only(const std::string* run) { turn.only = run; }

bool Quarantine::Begin(const std::string& run) {
  if (turn.only != nullptr ? run != *turn.only : Holds(run)) return false;
  if (mark_ != nullptr) turn.place = mark_->Enter(run, turn.entry, turn.replaying);
  return true;
}

void Quarantine::End() {
  if (mark_ != nullptr) mark_->Leave(turn.place);
}

void Quarantine::Failed(const std::string& run, const std::string& what) {
  Hold(run, turn.entry, absl::StrCat("it could not be judged at entry ", turn.entry, ": ", what));
}

// Holds the run from now on, even if the quarantine file cannot be written.
void Quarantine::Hold(const std::string& run, uint64_t entry, const std::string& reason) {
  v1::QuarantinedRun held;
  held.set_run(run);
  held.set_reason(reason);
  held.set_entry(entry);
  held.set_unix_ns(unix_ns_());
  LogError(
      "run {:?}: in quarantine: {}; it is stored but not judged until plumb runs --retry or --drop",
      run, reason);
  {
    const MutexLock lock(mutex_);
    runs_[run] = {held, false};
    CountLocked();
    if (auto s = SaveLocked(); !s.ok()) LogError("{}", std::string(s.message()));
  }
  if (on_held_) on_held_(held);
}

// ---- for any thread ---------------------------------------------------------------------------

bool Quarantine::Holds(const std::string& run) const {
  if (held_ == 0) return false;
  const MutexLock lock(mutex_);
  const auto found = runs_.find(run);
  return found != runs_.end() && !found->second.rejoined;
}

absl::Status Quarantine::MayWrite(const std::string& run) const {
  if (held_ == 0) return absl::OkStatus();
  const MutexLock lock(mutex_);
  const auto found = runs_.find(run);
  if (found == runs_.end() || !found->second.run.dropped()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("run \"", run,
                   "\" was dropped by an operator of this server (plumb runs --drop), and its "
                   "evidence is refused: give the run another name"));
}

std::optional<v1::QuarantinedRun> Quarantine::Find(const std::string& run) const {
  const MutexLock lock(mutex_);
  const auto found = runs_.find(run);
  if (found == runs_.end() || found->second.rejoined) return std::nullopt;
  return found->second.run;
}

std::vector<v1::QuarantinedRun> Quarantine::List() const {
  const MutexLock lock(mutex_);
  std::vector<v1::QuarantinedRun> list;
  for (const auto& [name, entry] : runs_) {
    if (!entry.rejoined) list.push_back(entry.run);
  }
  return list;
}

size_t Quarantine::waiting() const {
  const MutexLock lock(mutex_);
  return static_cast<size_t>(std::count_if(runs_.begin(), runs_.end(), [](const auto& entry) {
    return !entry.second.rejoined && !entry.second.run.dropped();
  }));
}

absl::Status Quarantine::NotHere(const std::string& run) {
  return absl::NotFoundError(absl::StrCat("run \"", run, "\" is not in quarantine"));
}

absl::Status Quarantine::Drop(const std::string& run) {
  const MutexLock lock(mutex_);
  const auto found = runs_.find(run);
  if (found == runs_.end() || found->second.rejoined) return NotHere(run);
  found->second.run.set_dropped(true);
  const absl::Status saved = SaveLocked();
  if (!saved.ok()) found->second.run.set_dropped(false);
  return saved;
}

void Quarantine::Rejoin(const std::string& run) {
  const MutexLock lock(mutex_);
  const auto found = runs_.find(run);
  if (found != runs_.end()) found->second.rejoined = true;
  CountLocked();
}

absl::Status Quarantine::Release(const std::string& run) {
  const MutexLock lock(mutex_);
  const auto found = runs_.find(run);
  if (found == runs_.end() || !found->second.rejoined) return NotHere(run);
  auto entry = runs_.extract(found);
  const absl::Status saved = SaveLocked();
  if (!saved.ok()) runs_.insert(std::move(entry));
  return saved;
}

void Quarantine::CountLocked() {
  held_ = static_cast<size_t>(std::count_if(
      runs_.begin(), runs_.end(), [](const auto& entry) { return !entry.second.rejoined; }));
}

absl::Status Quarantine::SaveLocked() const {
  if (directory_.empty()) return absl::OkStatus();
  v1::QuarantineState state;
  for (const auto& [name, entry] : runs_) *state.add_runs() = entry.run;
  if (!death_.runs().empty()) *state.mutable_death() = death_;
  return WriteQuarantine(FileOf(directory_), state);
}

}  // namespace plumbline::server
