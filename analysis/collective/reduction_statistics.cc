#include "analysis/collective/reduction_statistics.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/frame/frame.h"

namespace plumbline::analysis {
namespace {

std::string IdOf(const std::string& reason) { return reason.substr(0, reason.find(':')); }

}  // namespace

void ReductionStatistics::Note(const SiteStep& step) {
  step_first = any_ ? std::min(step_first, step.step) : step.step;
  step_last = any_ ? std::max(step_last, step.step) : step.step;
  any_ = true;
  for (const Item& item : step.items) {
    if (item.evidence->has_reduction()) ranks.insert(item.source->rank());
  }
}

// Uses two streams of errors: calls that a candidate arithmetic explains, and other calls. Results
// of the latter may not be sums at all (clipped, dropped, compressed), so `likeness` tests that.
void ReductionStatistics::Take(const SiteStep& step,
                               const std::vector<std::shared_ptr<const ReductionAnalysis>>& all) {
  Note(step);
  // Calls of one step share their sampled indices, and often their values (groups that hold
  // copies), so only the first is used. A step that a restart repeats was already taken.
  bool taken = bias_step_ && step.step <= *bias_step_;
  for (const auto& a : all) {
    if (!a->blocked.empty()) {
      Block(a->blocked);
      continue;
    }
    ++calls;
    // Adds information for a verdict: other arithmetics on the same inputs, and, if partial sums
    // are narrow, the growth of the error with the number of ranks.
    if (a->replayed) {
      if (what_if.empty()) what_if = WhatIfTable(a->c, a->replay.columns);
      last = WithoutValues(*a);
      if (a->replay.explained) explained = last;
      NoteWidth(step.step, a->replay);
      if (!growth && a->replay.narrow_partials && a->replay.proved) {
        growth = GrowReduction(a->c, a->replay);
        narrow = last;
      }
    }
    // Results that are not sums show nothing about the rounding of sums.
    if (taken || a->bound.not_sums()) continue;
    taken = true;
    std::optional<uint64_t> population;
    if (a->c.count > 0) population = a->c.count;
    const bool known = a->replayed && a->replay.explained;
    (known ? stream : unknown).Add(ErrorsOfOutputs(a->c), population);
    bias_step_ = step.step;
    const bool biased = unknown.interval_side() != BiasSide::kNone;
    if (biased && a->replayed && !known) likeness.Take(a->c, a->replay.columns);
  }
}

void ReductionStatistics::NoteWidth(int64_t step, const ReductionReplay& replay) {
  if (replay.narrow_partials && replay.proved) {
    narrow_first = std::min(step, narrow_first.value_or(step));
    if (wide_last >= narrow_first) wide_last.reset();
  } else if (replay.explained && !replay.narrow_partials && replay.name != "indistinguishable") {
    if (!narrow_first) wide_last = std::max(step, wide_last.value_or(step));
  }
}

void ReductionStatistics::Block(const std::string& reason) {
  blocked.try_emplace(IdOf(reason), reason);
}

// Returns true if the reason for not reporting a bias was already reported as an inconclusive
// verdict.
bool ReductionStatistics::excused() const {
  return reported_blocked.contains(IdOf(likeness.Explanation()));
}

bool ReductionStatistics::unlike_sums() const {
  return !likeness.Explains(unknown.mean(), unknown.half_width());
}

// Returns the stream whose bias a finding may report, or nullptr. The stream of unexplained calls
// counts only if the newest call is one of them, and if they look like sums.
const BiasStream* ReductionStatistics::accused() const {
  const BiasSide known = stream.interval_side(), other = unknown.interval_side();
  const bool of_unknown = &of_last() == &unknown && other != BiasSide::kNone && !unlike_sums();
  if (known == BiasSide::kNone) return of_unknown ? &unknown : nullptr;
  return of_unknown && unknown.level() > stream.level() ? &unknown : &stream;
}

const BiasStream& ReductionStatistics::of_last() const {
  return last != nullptr && !last->replay.explained ? unknown : stream;
}

// Returns the mixture of the bets of both streams. It is a valid e-value, whichever stream is
// biased.
double ReductionStatistics::log_wealth() const {
  const double a = std::log(kOfKnown) + stream.log_wealth();
  const double b = std::log(1 - kOfKnown) + unknown.log_wealth();
  return std::max(a, b) + std::log1p(std::exp(-std::fabs(a - b)));
}

// Takes calls without sampled values, whose width and size are still known.
void ReductionStatistics::TakeCalls(const std::vector<JoinedReduction>& all) {
  for (const JoinedReduction& joined : all) {
    if (joined.has_sample()) continue;
    ++sampleless_calls;
    const v1::ReductionCall& call = joined.call_of(0);
    const bool sums =
        call.op() == v1::ReductionCall::OP_SUM || call.op() == v1::ReductionCall::OP_AVG;
    if (!sums || !IsFloating(static_cast<DType>(call.wire_dtype()))) continue;
    wire = static_cast<DType>(call.wire_dtype());
    group_size = std::max({group_size, joined.size, static_cast<uint32_t>(joined.items.size())});
  }
}

const char* ReductionStatistics::unit() const {
  return BiasUnit(last != nullptr ? last->c.result_dtype() : DType::kF32);
}

std::string ReductionStatistics::ModelText() const {
  const std::string text = ModelText(last->replay);
  const std::string like =
      last->replay.explained ? "" : likeness.Words(unknown.mean(), unknown.half_width());
  return like.empty() ? text : absl::StrCat(text, "; ", like, " ", unit());
}

std::string ReductionStatistics::ModelText(const ReductionReplay& r) {
  // No candidate was accepted, but one of the known models fits every sample.
  if (!r.explained && !r.runner_up.empty() &&
      r.runner_up_matches == static_cast<int32_t>(r.columns.size())) {
    return absl::StrFormat("among the known models only a %s gives these sums on all %d samples",
                           r.runner_up, r.columns.size());
  }
  if (!r.explained) {
    return absl::StrFormat("none of the candidates explains the sums (the best, %s: %d of %d)",
                           r.runner_up, r.runner_up_matches, r.columns.size());
  }
  const std::string rival =
      r.runner_up.empty()
          ? ""
          : absl::StrFormat("; %s: %d of %d", r.runner_up, r.runner_up_matches, r.columns.size());
  if (r.name == "indistinguishable") {
    return absl::StrFormat("several candidates give these sums on all %d samples%s",
                           r.columns.size(), rival);
  }
  return absl::StrFormat("%s: %d of %d samples, the only match among the candidates%s", r.Words(),
                         r.matches, r.columns.size(), rival);
}

std::string ReductionStatistics::SinceText() const {
  if (!narrow_first || !wide_last) return "";
  std::string text = absl::StrFormat(
      " This began in step %d; in step %d partial sums were still wide", *narrow_first, *wide_last);
  if (*narrow_first - *wide_last > 1)
    absl::StrAppend(&text, ", and the steps between were not observed, or did not decide");
  return absl::StrCat(text, ".");
}

void ReductionStatistics::DescribeSince(google::protobuf::Struct& details) const {
  if (!narrow_first || !wide_last) return;
  Put(details, "first_narrow_step", static_cast<double>(*narrow_first));
  Put(details, "last_wide_step", static_cast<double>(*wide_last));
}

std::vector<std::string> ReductionStatistics::Assumptions() const {
  std::vector<std::string> out;
  if (last == nullptr) return out;
  out = last->c.assumptions;
  if (!last->c.wire_declared)
    out.push_back("values were sent and summed in the dtype of the inputs (no dtype was declared)");
  return out;
}

void ReductionStatistics::Describe(google::protobuf::Struct& details,
                                   const ReductionReplay* replay) const {
  if (last == nullptr) return;
  const ReductionFrame& c = last->c;
  (replay != nullptr ? *replay : last->replay).AddDetails(details);
  Put(details, "ranks", c.ranks);
  Put(details, "wire_dtype", DTypeName(c.wire_dtype));
  Put(details, "calls", static_cast<double>(calls));
  const BiasStream& errors = replay == nullptr ? of_last() : replay->explained ? stream : unknown;
  Put(details, "bias_samples", static_cast<double>(errors.count()));
  if (errors.count() > 0) Put(details, "bias", errors.mean());
  if (errors.count() > 1) {
    Put(details, "bias_low", errors.low());
    Put(details, "bias_high", errors.high());
  }
  Put(details, "rms", errors.rms());
  Put(details, "misround_rate", errors.misround_rate());
  Put(details, "unit", unit());
  if (last->replay.aside > 0) Put(details, "non_finite_samples", last->replay.aside);
  if (!c.differing_ranks.empty()) {
    Put(details, "ranks_with_other_output", static_cast<double>(c.differing_ranks.size()));
    Put(details, "first_rank_with_other_output", c.differing_ranks.front());
  }
  google::protobuf::Struct& table = PutStruct(details, "what_if");
  for (const WhatIf& w : what_if) {
    google::protobuf::Struct& row = PutStruct(table, w.model);
    Put(row, "bias", w.mean);
    Put(row, "rms", w.rms);
    Put(row, "misround_rate", w.misrounded);
    if (!std::isnan(w.lost_mass)) Put(row, "lost_mass", w.lost_mass);
  }
  if (growth && !growth->tried.empty()) {
    google::protobuf::Struct& more = PutStruct(details, "growth");
    for (const GrownBias& g : growth->tried) Put(more, absl::StrCat(g.ranks, " ranks"), g.mean);
    if (growth->breaks_at() > 0) Put(details, "breaks_at_ranks", growth->breaks_at());
  }
}

}  // namespace plumbline::analysis
