#include "audit/session/unknown_series.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "analysis/frame/frame.h"

namespace plumbline::audit {
namespace {

constexpr size_t kMostUnknown = 64;      // series watched per run
constexpr size_t kMostUnknownNamed = 4;  // series named in the note
constexpr uint64_t kFewestFinite = 3;    // values: a column that is empty by design has none
constexpr uint64_t kFewestLasting = 3;   // NaN values of a metric up to the end
constexpr std::string_view kMachine = "system/";  // W&B's own metrics

bool AllFinite(const v1::SeriesRows& rows) {
  double sum[4] = {0, 0, 0, 0};  // sum of 0 for each finite value, NaN for any other
  const double* value = rows.value().data();
  const int count = rows.value_size();
  int i = 0;
  for (; i + 4 <= count; i += 4) {
    for (int k = 0; k < 4; ++k) sum[k] += value[i + k] * 0;
  }
  for (; i < count; ++i) sum[0] += value[i] * 0;
  return sum[0] + sum[1] + sum[2] + sum[3] == 0;
}

// A metric that is finite in a healthy run, and whose NaN no rule judges.
bool IsMetric(SeriesRole role) {
  return role == SeriesRole::kClipShare || role == SeriesRole::kAccuracy ||
         role == SeriesRole::kUpdateRatio;
}

bool IsAbsent(const v1::SeriesRows& rows, size_t at) {
  const std::string& bits = rows.absent();
  if (at / 8 >= bits.size()) return false;
  return ((static_cast<unsigned char>(bits[at / 8]) >> (at % 8)) & 1) != 0;
}

// The series of a run that are reported together.
using Seen = UnknownSeries::Seen;
using Lost = std::vector<std::pair<const std::string*, const Seen*>>;

// "accuracy is NaN in step 60, and in 40 rows up to step 99; so are clip_ratio (step 60)"
std::string SentenceOn(const Lost& lost) {
  const auto& [name, seen] = lost.front();
  std::string text = absl::StrCat(*name, " is NaN in step ", seen->first);
  if (seen->values > 1)
    absl::StrAppend(&text, ", and in ", seen->values, " rows up to step ", seen->last);
  for (size_t i = 1; i < lost.size() && i < kMostUnknownNamed; ++i)
    absl::StrAppend(&text, i == 1 ? "; so are " : ", ", *lost[i].first, " (step ",
                    lost[i].second->first, ")");
  if (lost.size() > kMostUnknownNamed)
    absl::StrAppend(&text, " and ", lost.size() - kMostUnknownNamed, " more");
  return text + ".";
}

// `metrics`: they have a role, and are NaN up to the end.
v1::Verdict VerdictOn(Lost lost, bool metrics) {
  std::stable_sort(lost.begin(), lost.end(),
                   [](const auto& a, const auto& b) { return a.second->first < b.second->first; });
  const auto& [name, seen] = lost.front();
  const bool one = lost.size() == 1;
  const char* const kind = metrics ? "metric" : "unknown-series";
  analysis::FindingBuilder found(metrics ? v1::LEVEL_WARNING : v1::LEVEL_NOTE, v1::STRENGTH_PROVED);
  found.Title(metrics ? "a metric is NaN up to the end" : "a series without a role is NaN")
      .Explain(absl::StrCat(
          SentenceOn(lost),
          metrics
              ? " No value after that is finite."
              : absl::StrCat(one ? " The role of this series is" : " The roles of these series are",
                             " unknown, so no rule judges the other values.")))
      .Cause(kind, 0.9)
      .Measured("values that are NaN", static_cast<double>(seen->values), "values")
      .Threshold(
          0, metrics ? "a metric is finite" : "a series without a role is reported if it is NaN")
      .Samples(seen->values + seen->finite_before + seen->finite_after)
      .Witness("step", static_cast<double>(seen->first))
      .Witness("value", "nan")
      .Fix(metrics ? "Check what the metric is computed from: it is empty or NaN from that step on."
                   : "If it is a loss, state its role in a map (docs/scalars.md), so that it is "
                     "judged.")
      .At("", *name, seen->first, seen->last, std::vector<uint32_t>{});
  google::protobuf::Struct& details = *found.verdict().mutable_details();
  analysis::Put(details, "series", *name);
  analysis::Put(details, "step", static_cast<double>(seen->first));
  analysis::Put(details, "kind", kind);
  return found.Take();
}

}  // namespace

bool UnknownSeries::IsJudged(SeriesRole role) {
  return role == SeriesRole::kLoss || role == SeriesRole::kEvaluationLoss ||
         role == SeriesRole::kAuxiliaryLoss || role == SeriesRole::kGradientNorm ||
         role == SeriesRole::kRate || role == SeriesRole::kLossScale;
}

void UnknownSeries::Take(const v1::Batch& batch) {
  for (const v1::SeriesSet& set : batch.series_sets()) {
    Set& known = sets_[{batch.stream_id(), set.id()}];
    std::vector<std::string>& names = known.names;
    names.clear();
    for (const v1::Site& site : set.sites()) {
      names.push_back(site.layer().empty() ? site.op()
                                           : absl::StrCat(site.layer(), "/", site.op()));
      holds_judged_ = holds_judged_ || IsJudged(roles_->Of(names.back()));
    }
    known.before.clear();
    for (const std::string& name : names) known.before.push_back(&rows_[name]);
  }
  for (const v1::SeriesRows& rows : batch.series()) {
    const auto set = sets_.find({batch.stream_id(), rows.set()});
    if (set == sets_.end()) continue;
    const bool watched = !runs_.empty();
    if (watched || !AllFinite(rows)) TakeRows(batch, rows, set->second);
    for (uint64_t* before : set->second.before) *before += static_cast<uint64_t>(rows.step_size());
  }
}

void UnknownSeries::TakeRows(const v1::Batch& batch, const v1::SeriesRows& rows, const Set& set) {
  const int source = rows.source().empty() ? -1 : static_cast<int>(rows.source(0));
  if (source < 0 || source >= batch.sources_size()) return;
  const std::vector<std::string>& names = set.names;
  const size_t width = names.size();
  std::map<std::string, Seen>& series = runs_[batch.sources(source).run()];
  for (size_t column = 0; column < width; ++column) {
    if (names[column].starts_with(kMachine)) continue;
    const SeriesRole role = roles_->Of(names[column]);
    if (role != SeriesRole::kNone && !IsMetric(role)) continue;
    auto seen = series.find(names[column]);
    uint64_t finite = *set.before[column];
    for (size_t row = 0; row < static_cast<size_t>(rows.step_size()); ++row) {
      const size_t at = row * width + column;
      if (at >= static_cast<size_t>(rows.value_size()) || IsAbsent(rows, at)) continue;
      const double value = rows.value(static_cast<int>(at));
      if (!std::isnan(value)) {
        ++(seen == series.end() ? finite : seen->second.finite_after);
        continue;
      }
      const int64_t step = rows.step(static_cast<int>(row));
      if (seen == series.end()) {
        if (series.size() >= kMostUnknown) break;
        seen = series.emplace(names[column], Seen{step, step, 0, finite, 0}).first;
      }
      seen->second.last = step;
      ++seen->second.values;
    }
  }
}

std::vector<std::pair<std::string, v1::Verdict>> UnknownSeries::Verdicts() const {
  std::vector<std::pair<std::string, v1::Verdict>> verdicts;
  for (const auto& [run, series] : runs_) {
    Lost unknown, metrics;
    for (const auto& [name, seen] : series) {
      if (seen.finite_before + seen.finite_after < kFewestFinite) continue;
      if (roles_->Of(name) == SeriesRole::kNone) {
        unknown.emplace_back(&name, &seen);
      } else if (seen.finite_after == 0 && seen.values >= kFewestLasting) {
        metrics.emplace_back(&name, &seen);
      }
    }
    if (!unknown.empty()) verdicts.emplace_back(run, VerdictOn(std::move(unknown), false));
    if (!metrics.empty()) verdicts.emplace_back(run, VerdictOn(std::move(metrics), true));
  }
  return verdicts;
}

}  // namespace plumbline::audit
