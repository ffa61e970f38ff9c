#include "analysis/processes/end_counts.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <tuple>
#include <utility>

namespace plumbline::analysis {
namespace {

constexpr int kTerm = 15, kInt = 2, kHup = 1;      // Linux's numbers of signals
constexpr int64_t kClearlyBefore = 1'000'000'000;  // ns; clocks of hosts differ by less than this

// Returns the signal that ended the process. A trainer that catches a signal and saves ends with
// the status 128 + n, as a shell states it. 0: none.
int SignalOf(const v1::Ending& e) {
  if (e.how() == v1::Ending::HOW_SIGNAL) return static_cast<int>(e.code());
  return e.how() == v1::Ending::HOW_EXIT && e.type().empty() && e.code() > 128
             ? static_cast<int>(e.code()) - 128
             : 0;
}

bool Requested(const v1::Ending& e) {
  if (e.how() == v1::Ending::HOW_INTERRUPTED) return true;
  if (const int signal = SignalOf(e); signal != 0)
    return signal == kTerm || signal == kInt || signal == kHup;
  // Some frameworks convert the signal to an exception.
  return e.type().find("SIGTERM") != std::string::npos ||
         e.type().find("SignalException") != std::string::npos ||
         e.type().find("KeyboardInterrupt") != std::string::npos;
}

// Compares two ends of one kind. Returns true if a reported its end first. If neither reported,
// returns true if a stopped first.
bool Earlier(const ProcessEnd* a, const ProcessEnd* b) {
  if (b == nullptr) return true;
  const bool gone = a->way == EndKind::kGone && b->way == EndKind::kGone;
  return std::make_tuple(gone ? a->newest_step : a->stated.unix_ns(), a->role, a->rank) <
         std::make_tuple(gone ? b->newest_step : b->stated.unix_ns(), b->role, b->rank);
}

// An incomplete record alone shows nothing. If another process of its role reported its end, or is
// a window of steps ahead, its process has ended.
void Conclude(RunEnds* run) {
  std::map<v1::Role, std::pair<bool, int64_t>>
      of;  // whether a process reported its end; the furthest step
  for (const ProcessEnd& end : run->ends) {
    auto& [stated, furthest] = of.try_emplace(end.role, false, ProcessEnd::kNever).first->second;
    stated |= end.way == EndKind::kWell || end.way == EndKind::kStated;
    furthest = std::max(furthest, end.complete_through);
  }
  for (ProcessEnd& end : run->ends) {
    const auto& [stated, furthest] = of.at(end.role);
    const bool after = end.newest_step != ProcessEnd::kNever && end.newest_step < furthest &&
                       static_cast<uint64_t>(furthest) - static_cast<uint64_t>(end.newest_step) >=
                           static_cast<uint64_t>(run->window_steps);
    if (end.way == EndKind::kOpen && (stated || after)) end.way = EndKind::kGone;
  }
}

// Rollout workers are often killed when training is done, so that is not a failure.
void ForgiveRollouts(RunEnds* run) {
  bool any = false, all_well = true;
  for (const ProcessEnd& end : run->ends) {
    if (end.role == v1::ROLE_ROLLOUT) continue;
    any = true;
    all_well &= end.way == EndKind::kWell;
  }
  if (!any || !all_well) return;
  for (ProcessEnd& end : run->ends) {
    if (end.role == v1::ROLE_ROLLOUT && end.way == EndKind::kGone) end.way = EndKind::kWell;
  }
}

}  // namespace

Kind KindOf(const ProcessEnd& end) {
  if (end.way == EndKind::kGone) return kGoneKind;
  if (end.stated.how() == v1::Ending::HOW_UNSPECIFIED) return kThread;
  if (Requested(end.stated)) return kRequested;
  return end.followed ? kFollower : kOwn;
}

const ProcessEnd* FirstOf(const Firsts& of) {
  const ProcessEnd* own = of[kOwn];
  const ProcessEnd* gone = of[kGoneKind];
  const ProcessEnd* requested = of[kRequested];
  // The stop request came first, so later failures are its consequence.
  if (own != nullptr && requested != nullptr &&
      requested->stated.unix_ns() < own->stated.unix_ns() - kClearlyBefore) {
    own = nullptr;
  }
  if (own != nullptr && gone != nullptr && own->newest_step != ProcessEnd::kNever &&
      gone->newest_step < own->newest_step - 1) {
    return gone;  // this process was stopped while the other continued
  }
  if (own != nullptr) return own;
  if (gone != nullptr) return gone;
  const ProcessEnd* follower = of[kFollower];
  if (follower != nullptr && requested != nullptr)
    return requested->stated.unix_ns() <= follower->stated.unix_ns() + kClearlyBefore ? requested
                                                                                      : follower;
  if (follower != nullptr) return follower;
  return requested != nullptr ? requested : of[kThread];
}

Cause CauseOf(const ProcessEnd& first, bool together, bool alone) {
  static constexpr Cause kGoneCause = {
      "gone", v1::LEVEL_ERROR,
      "Find the cause of the end of the first named process: its exit status, its last log lines, "
      "the kernel's log on its host (out of memory, a segmentation fault)."};
  static constexpr Cause kTogether = {
      "gone-together", v1::LEVEL_ERROR,
      "Find the common cause of the end of all processes: the scheduler's log (cancelled, out of "
      "time, out of memory), the same fault on every rank, their hosts."};
  static constexpr Cause kException = {"exception", v1::LEVEL_ERROR,
                                       "Fix the cause of the exception on the rank that is named "
                                       "first. The errors of the other ranks follow from it."};
  static constexpr Cause kUnwinding = {"unwinding", v1::LEVEL_WARNING,
                                       "Look at the exception. If this trainer always ends with "
                                       "it, leave the block of the run first."};
  static constexpr Cause kExit = {"exit-status", v1::LEVEL_WARNING,
                                  "Find out why the trainer ended with this status."};
  static constexpr Cause kSignal = {"signal", v1::LEVEL_ERROR,
                                    "Find out what sent the signal, and check the host's log."};
  static constexpr Cause kTerminated = {"terminated", v1::LEVEL_WARNING,
                                        "If the job was preempted or cancelled, do nothing. "
                                        "Otherwise find out what sent the signal."};
  static constexpr Cause kInterrupted = {"interrupted", v1::LEVEL_NOTE,
                                         "Do nothing: a user stopped it."};
  static constexpr Cause kThreadEnded = {
      "thread-exception", v1::LEVEL_NOTE,
      "Check whether the run needed that thread, and catch its exceptions."};
  if (first.way == EndKind::kGone) return together ? kTogether : kGoneCause;
  const v1::Ending& e = first.stated;
  Cause cause = kException;
  if (e.how() == v1::Ending::HOW_UNSPECIFIED) cause = kThreadEnded;
  if (e.how() == v1::Ending::HOW_SIGNAL) cause = kSignal;
  if (e.how() == v1::Ending::HOW_UNWINDING) cause = kUnwinding;
  if (e.how() == v1::Ending::HOW_EXIT && e.type().empty()) cause = kExit;
  const bool by_hand = e.how() == v1::Ending::HOW_INTERRUPTED ||
                       e.type().find("KeyboardInterrupt") != std::string::npos ||
                       SignalOf(e) == kInt;
  if (Requested(e)) cause = by_hand ? kInterrupted : kTerminated;
  if (!alone && (cause.id == kUnwinding.id || cause.id == kExit.id)) cause.level = v1::LEVEL_ERROR;
  return cause;
}

void ConcludeEnds(RunEnds* run) {
  if (!run->reported && !run->superseded) Conclude(run);
  ForgiveRollouts(run);
}

EndCounts CountEnds(const RunEnds& run) {
  EndCounts tally;
  for (const ProcessEnd& end : run.ends) {
    if (end.way == EndKind::kOpen) ++tally.open;
    if (end.way == EndKind::kWell) ++tally.well;
    if (end.way == EndKind::kUnreachable) ++tally.unreachable;
    if (end.way != EndKind::kGone && end.way != EndKind::kStated) continue;
    const Kind kind = KindOf(end);
    ++tally.bad[kind];
    if (Earlier(&end, tally.first[kind])) tally.first[kind] = &end;
  }
  return tally;
}

bool ReadsLikeFollower(const v1::Ending& ending) {
  static constexpr std::string_view kWords[] = {"NCCL",
                                                "nccl",
                                                "gloo",
                                                "Gloo",
                                                "DistBackend",
                                                "DistNetwork",
                                                "DistStore",
                                                "ProcessGroup",
                                                "TCPStore",
                                                "Watchdog",
                                                "Broken pipe",
                                                "BrokenPipe",
                                                "ConnectionReset",
                                                "ConnectionAborted",
                                                "ConnectionRefused",
                                                "Connection reset",
                                                "Connection closed",
                                                "Connection refused",
                                                "closed by peer",
                                                "Socket closed",
                                                "Socket Timeout",
                                                "MPI_ERR",
                                                "ucx",
                                                "UCX",
                                                "EOFError",
                                                "RayActor",
                                                "ActorDied",
                                                "store timeout"};
  return std::any_of(std::begin(kWords), std::end(kWords), [&](std::string_view word) {
    return ending.type().find(word) != std::string::npos ||
           ending.text().find(word) != std::string::npos;
  });
}

}  // namespace plumbline::analysis
