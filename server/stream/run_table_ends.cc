// Endings of a run's processes that must be reported, and the end of hangs and deaths.

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "analysis/processes/processes.h"
#include "server/stream/run_table.h"

namespace plumbline::server {

void RunTable::DescribeContinued(const Run& run, const char* rule, const std::string& why) {
  continued_.push_back({run.info.run(), rule, why});
}

// Records how a process ends, and the end of hangs and deaths. Uses only journalled facts.
void RunTable::NoteProgress(Run& run, const v1::Source& source, const v1::Progress& progress,
                            int64_t unix_ns) {
  const v1::Ending& ending = progress.ending();
  const bool bad = ending.how() != v1::Ending::HOW_UNSPECIFIED || !ending.thread().empty();
  run.bad_ends |= progress.finished() && bad;
  if (run.stopped_since != 0) NoteSteps(run, progress, unix_ns);
  // A process that sends a goodbye without an error is no longer blocked. If it ended otherwise,
  // the hang may be the cause.
  if (progress.finished() && !bad) {
    NoteNotStuck(run, source, "it has ended");
    NoteNotWaiting(run, source);
  }
  if (progress.finished() || !progress.any_step()) return;
  if (run.reborn) {
    run.died = run.reborn = false;
    DescribeContinued(run, analysis::kRunDiedRule,
                      absl::StrCat("the run continues: attempt ", run.attempt, ", step ",
                                   progress.newest_step()));
  }
  const std::string words = absl::StrCat("the run continues, in step ", progress.newest_step());
  const auto stuck = run.stuck.find({source.role(), source.rank()});
  if (run.unstuck || (stuck != run.stuck.end() && progress.newest_step() > stuck->second))
    NoteNotStuck(run, source, words);
}

// Closes the report that the run's steps have stopped, and states how long that lasted. Uses only
// journalled times, so that a restart computes the same.
void RunTable::NoteSteps(Run& run, const v1::Progress& progress, int64_t unix_ns) {
  const v1::Ending& ending = progress.ending();
  const bool bad = ending.how() != v1::Ending::HOW_UNSPECIFIED || !ending.thread().empty();
  const bool next = progress.any_step() && progress.newest_step() > run.stopped_step;
  if (!next && (!progress.finished() || bad)) return;
  const double lasted = static_cast<double>(unix_ns - std::exchange(run.stopped_since, 0)) * 1e-9;
  DescribeContinued(
      run, rules::kStepsStoppedRule,
      absl::StrCat(next ? absl::StrCat("step ", progress.newest_step(), " has begun")
                        : std::string("the run has ended"),
                   ", ", analysis::DurationText(std::max(lasted, 0.0)), " after the last step"));
}

// Records that a rank which was reported to hang does not hang. Once none does, the hang is over.
void RunTable::NoteNotStuck(Run& run, const v1::Source& source, const std::string& why) {
  if (run.stuck.erase({source.role(), source.rank()}) > 0) run.unstuck = run.stuck.empty();
  if (!run.unstuck) return;
  run.unstuck = false;
  run.waits.clear();
  DescribeContinued(run, rules::kHangRule, why);
}

// Records that a rank no longer waits. Once all that waited have ended well, the hang is over, for
// any cause.
void RunTable::NoteNotWaiting(Run& run, const v1::Source& source) {
  if (run.waits.erase({source.role(), source.rank()}) == 0 || !run.waits.empty()) return;
  run.stuck.clear();
  DescribeContinued(run, rules::kHangRule, "all waiting ranks have ended");
}

std::vector<RunTable::Continued> RunTable::TakeContinued(const std::vector<std::string>* runs) {
  const auto theirs = std::stable_partition(
      continued_.begin(), continued_.end(), [runs](const Continued& continued) {
        return runs != nullptr &&
               std::find(runs->begin(), runs->end(), continued.run) == runs->end();
      });
  std::vector<Continued> taken(std::make_move_iterator(theirs),
                               std::make_move_iterator(continued_.end()));
  continued_.erase(theirs, continued_.end());
  return taken;
}

void RunTable::NoteDied(const std::string& name, bool restarted) {
  const auto run = runs_.find(name);
  if (run == runs_.end()) return;
  run->second.died = true;
  run->second.reborn |= restarted;
}

void RunTable::NoteHung(const v1::RanksHung& hung) {
  const auto run = runs_.find(hung.run());
  if (run == runs_.end() || hung.attempt() != run->second.attempt) return;
  run->second.stuck.clear();
  for (const uint32_t rank : hung.ranks().empty() ? hung.waiting() : hung.ranks())
    run->second.stuck[{hung.role(), rank}] = hung.step();
  run->second.waits.clear();
  for (int i = 0; !hung.ranks().empty() && i < hung.waiting_size(); ++i)
    run->second.waits.emplace(hung.role(), hung.waiting(i));
}

void RunTable::NoteStopped(const v1::StepsStopped& stopped, int64_t unix_ns) {
  const auto run = runs_.find(stopped.run());
  if (run == runs_.end() || stopped.attempt() != run->second.attempt) return;
  run->second.stopped_since = std::max<int64_t>(
      1, unix_ns - static_cast<int64_t>(std::min<uint64_t>(stopped.still_ns(), INT64_MAX)));
  run->second.stopped_step = stopped.step();
}

std::vector<std::string> RunTable::TakeBadEnds(Time now, const Skip& skip) {
  std::vector<std::string> list;
  for (auto& [name, run] : runs_) {
    if (skip && skip(name)) continue;
    if (!run.bad_ends || run.ended) {
      run.bad_since = Time::max();
      continue;
    }
    run.bad_since = std::min(run.bad_since, now);
    if (now - run.bad_since < kMoment) continue;
    run.bad_ends = false;
    list.push_back(name);
  }
  return list;
}

void RunTable::SetEndsJudged(const std::string& run) {
  const auto found = runs_.find(run);
  if (found != runs_.end()) found->second.bad_ends = false;
}

}  // namespace plumbline::server
