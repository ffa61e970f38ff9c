#include "analysis/rollout/sequence_times.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace plumbline::analysis {

void TimeHistogram::Add(double value) {
  if (!(value > 0)) value = 0x1p-20;
  const double bin = std::floor(4 * std::log2(value)) - kLowest;
  ++bins_[static_cast<size_t>(std::clamp(bin, 0.0, static_cast<double>(kBins - 1)))];
  ++count_;
}

double TimeHistogram::Quantile(double share) const {
  if (count_ == 0) return std::numeric_limits<double>::quiet_NaN();
  uint64_t seen = 0;
  size_t i = 0;
  while (i + 1 < kBins &&
         static_cast<double>(seen += bins_[i]) < share * static_cast<double>(count_))
    ++i;
  return std::exp2((static_cast<double>(i) + 1 + kLowest) / 4);
}

SequenceTimes::Worker& SequenceTimes::WorkerOf(const std::string& name) {
  const auto found = workers_.find(name);
  if (found != workers_.end()) return found->second;
  return workers_[workers_.size() < kWorkers ? name : "..."];
}

void SequenceTimes::Take(const RolloutSequence& sequence) {
  ++sequences_;
  if (!std::isfinite(sequence.t_start) || !std::isfinite(sequence.t_end)) return;
  if (sequence.t_end < sequence.t_start) {
    ++reversed_;
    return;
  }
  ++with_times_;
  const double length = static_cast<double>(sequence.tokens.size());
  const double seconds = sequence.t_end - sequence.t_start;
  tokens_.Add(length);
  seconds_.Add(seconds);
  Worker& worker = WorkerOf(sequence.worker);
  worker.tokens.Add(length);
  worker.seconds.Add(seconds);
  open_.push_back(
      {sequence.t_start, sequence.t_end, length, sequence.id, sequence.worker, sequence.step});
}

void SequenceTimes::EndStep() {
  if (open_.empty()) return;
  if (open_.size() < kFewest) {
    ++small_;
    return;
  }
  double start = open_[0].start;
  for (const Span& span : open_) start = std::min(start, span.start);
  // If ends are equal, sorts by id, so that the order of arrival does not matter.
  std::sort(open_.begin(), open_.end(), [](const Span& a, const Span& b) {
    return std::tie(a.end, b.id) < std::tie(b.end, a.id);
  });
  const Span& last = open_.back();
  const double generation = last.end - start;
  if (!(generation > 0)) return;
  const size_t n = open_.size();
  const size_t longest = (n + 19) / 20;  // 5 %, at least one
  const double others_end = open_[n - longest - 1].end;
  const double wait = last.end - others_end;
  ++steps_;
  generation_ += generation;
  waiting_ += wait;
  ++WorkerOf(last.worker).last;
  for (size_t i = 0; i < n; ++i) {
    const Span& span = open_[i];
    tokens_judged_ += span.tokens;
    if (i + longest < n || !(span.end > others_end)) continue;
    const double after = span.end - std::max(span.start, others_end);
    late_ += span.tokens * after / (span.end - span.start);
  }
  if (wait > longest_wait_) {
    longest_wait_ = wait;
    longest_step_ = last.step;
    longest_id_ = last.id;
  }
}

}  // namespace plumbline::analysis
