// Reports a run whose processes are all alive and in no step, if this lasts longer than the time
// between steps should be.
#include <algorithm>
#include <chrono>

#include "server/stream/liveness.h"

namespace plumbline::server {
namespace {

constexpr double kMedianSteps = 20;  // pause without a step that is too long
// Factor of `between`: the time from the warning to the error, and the limit if the pace is
// unknown.
constexpr int kBetweenFactor = 5;
constexpr int64_t kPacedSteps = 3;  // fewer would be dominated by the first steps, which compile

uint64_t Count(Liveness::Nanos time) {
  return static_cast<uint64_t>(std::max<int64_t>(time.count(), 0));
}

Liveness::Nanos NanosOf(double seconds) {
  return Liveness::Nanos(static_cast<int64_t>(std::min(seconds, 1e8) * 1e9));
}

}  // namespace

void Liveness::LookBetween(const Key& key, const Members& members, Time now,
                           std::vector<v1::StepsStopped>* out) const {
  if (std::get<2>(key) == v1::ROLE_ROLLOUT) return;  // workers wait for their trainer
  Nanos still = Nanos::max();
  const Process* first = nullptr;  // of the lowest rank
  v1::StepsStopped stopped;
  for (const Process* p : members.all) {
    // A process without messages may have ended; a busy process sends no heartbeat.
    if (!p->connected || now - p->heard > kSilent || p->beat <= p->moved) return;
    if (!p->reports || p->ended == 0 || p->stage != v1::Span::KIND_OTHER) return;
    still = std::min<Nanos>(still, now - std::max(p->still_since, p->excused));
    for (const v1::Source& source : p->sources) stopped.add_ranks(source.rank());
    const auto rank = [](const Process* of) { return of->sources.front().rank(); };
    if (!p->sources.empty() && (first == nullptr || rank(p) < rank(first))) first = p;
    stopped.set_step(std::max(stopped.step(), p->newest));
  }
  if (first == nullptr) return;
  stopped.set_still_ns(Count(still));
  SetBetweenLimits(members, &stopped);
  const bool error = stopped.still_ns() >= stopped.error_ns();
  Group& group = *members.group;
  if (stopped.still_ns() < stopped.threshold_ns()) return;
  if (group.stop_ordered && (!error || group.stop_ordered_error)) return;
  group.stop_ordered = true;
  group.stop_ordered_error |= error;
  std::sort(stopped.mutable_ranks()->begin(), stopped.mutable_ranks()->end());
  stopped.set_run(std::get<0>(key));
  stopped.set_attempt(std::get<1>(key));
  stopped.set_role(static_cast<v1::Role>(std::get<2>(key)));
  stopped.set_in_step(first->in_step);
  stopped.set_last_stage(first->last_stage);
  if (first->sources.front().host().size() <= kMostHost)
    stopped.set_host(first->sources.front().host());
  stopped.set_pid(first->sources.front().pid());
  out->push_back(std::move(stopped));
}

// Sets the limits from the median step. If the loop is too fast for a median, uses the mean since
// each process joined.
void Liveness::SetBetweenLimits(const Members& members, v1::StepsStopped* out) const {
  const Nanos unknown = kBetweenFactor * between_;
  Nanos limit = unknown;
  const double median = MedianStep(*members.group);
  if (median > 0) {
    limit = NanosOf(kMedianSteps * median);
  } else {
    Nanos mean{0};
    for (const Process* p : members.all) {
      const int64_t steps = p->ended - std::max<int64_t>(p->ended_before, 0);
      mean = steps < kPacedSteps ? unknown
                                 : std::max<Nanos>(mean, (p->still_since - p->joined) / steps);
      if (steps < kPacedSteps) break;
    }
    limit = std::min<Nanos>(unknown, static_cast<int64_t>(kMedianSteps) * mean);
  }
  limit = std::max(limit, between_);
  out->set_threshold_ns(Count(limit));
  out->set_error_ns(Count(limit + kBetweenFactor * between_));
  out->set_step_ns(Count(NanosOf(median)));
}

// Sets the host and the process of the first rank that is named.
void Liveness::NamePlace(const Members& members, v1::RanksHung* out) {
  const auto& ranks = out->ranks().empty() ? out->waiting() : out->ranks();
  if (ranks.empty()) return;
  for (const Process* p : members.all) {
    for (const v1::Source& source : p->sources) {
      if (source.rank() != ranks.Get(0)) continue;
      if (source.host().size() <= kMostHost) out->set_host(source.host());
      out->set_pid(source.pid());
      return;
    }
  }
}

}  // namespace plumbline::server
