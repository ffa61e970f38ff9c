#include "server/web/lost_time.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace plumbline::server {
namespace {

int ListSize(const v1::Finding& finding, const char* key) {
  const auto found = finding.details().fields().find(key);
  return found == finding.details().fields().end() ? 0 : found->second.list_value().values_size();
}

// Returns the seconds of a hang. If the run continued, an incident of one hang ends when the server
// resolved it. Otherwise the seconds are the longest pause that the run recovered from. 0: that is
// not known.
double HangSeconds(const v1::Incident& incident, const RunTimes& times) {
  const double before = incident.finding().measured().value();  // when it was reported
  const int64_t resolved = incident.updated_unix_ns() - incident.opened_unix_ns();
  if (times.info->newest_step() > incident.finding().site().step_last() + 1) {
    const bool once = incident.state() == v1::Incident::STATE_RESOLVED && incident.count() == 1;
    if (once && resolved >= 0) return before + 1e-9 * static_cast<double>(resolved);
    return times.longest_pause >= before ? times.longest_pause : 0;
  }
  const int64_t until =
      times.info->ranks_connected() > 0 ? times.now_unix_ns : times.info->last_seen_unix_ns();
  return before + std::max(0.0, 1e-9 * static_cast<double>(until - incident.opened_unix_ns()));
}

std::optional<LostTime> OfHang(const v1::Incident& incident, const RunTimes& times) {
  const int ranks = ListSize(incident.finding(), "ranks") + ListSize(incident.finding(), "waiting");
  const double seconds = HangSeconds(incident, times);
  if (ranks == 0 || !(seconds > 0)) return std::nullopt;
  return LostTime{ranks * seconds, absl::StrFormat("%d %s made no step for %.3g s", ranks,
                                                   ranks == 1 ? "rank" : "ranks", seconds)};
}

// Sums the steps of each attempt that the next one repeated.
std::optional<LostTime> OfCrash(const RunTimes& times) {
  const v1::RunInfo& run = *times.info;
  const uint32_t ranks = std::max(run.world_size(), run.ranks_seen());
  LostTime lost;
  int64_t steps = 0;
  for (int i = 0; i + 1 < run.attempts_size(); ++i) {
    const int64_t repeated = run.attempts(i).step_last() - run.attempts(i + 1).step_first() + 1;
    if (repeated <= 0) continue;
    const double each = times.step_seconds[static_cast<size_t>(i)];
    if (!(each > 0)) return std::nullopt;
    steps += repeated;
    lost.rank_seconds += static_cast<double>(repeated) * each * ranks;
  }
  if (steps == 0) return std::nullopt;
  lost.of = absl::StrCat(steps, steps == 1 ? " step was" : " steps were", " repeated on ", ranks,
                         ranks == 1 ? " rank" : " ranks");
  return lost;
}

}  // namespace

std::optional<LostTime> LostBy(const v1::Incident& incident, const v1::IncidentStatus& status,
                               const RunTimes& times) {
  if (status.lost_rank_seconds() > 0)
    return LostTime{status.lost_rank_seconds(), "measured in the steps of the finding",
                    status.lost_on_gpus()};
  if (times.info == nullptr) return std::nullopt;
  if (incident.finding().rule() == "performance/hang") return OfHang(incident, times);
  if (incident.finding().rule() == "health/run-died") return OfCrash(times);
  return std::nullopt;
}

std::optional<LostTime> LostBy(const IncidentTable::Change& own,
                               const std::vector<const IncidentTable::Change*>& symptoms,
                               const RunTimes& times) {
  std::optional<LostTime> lost = LostBy(own.incident, own.status, times);
  if (lost) return lost;
  for (const IncidentTable::Change* symptom : symptoms) {
    auto of = LostBy(symptom->incident, symptom->status, times);
    if (!of || (lost && !(of->rank_seconds > lost->rank_seconds))) continue;
    absl::StrAppend(&of->of, " (", symptom->incident.finding().rule(), ")");
    lost = std::move(of);
  }
  return lost;
}

}  // namespace plumbline::server
