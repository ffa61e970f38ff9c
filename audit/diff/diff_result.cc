#include "audit/diff/diff_result.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "audit/render/finding_json.h"
#include "audit/render/finding_text.h"

namespace plumbline::audit {
namespace {

using Texts = std::map<std::string, std::string>;
using FindingKey = std::tuple<std::string, std::string, std::string>;

// Returns the settings that all runs of a side share.
Texts AgreedSettings(const DiffSide& side) {
  Texts agreed;
  if (side.runs.empty()) return agreed;
  for (const auto& [name, value] : side.runs[0].settings) {
    bool all = true;
    for (const RecordedRun& run : side.runs) {
      const auto found = run.settings.find(name);
      all &= found != run.settings.end() && found->second == value;
    }
    if (all) agreed.emplace(name, value);
  }
  return agreed;
}

// Returns the entries that differ between both sides. If `lone`, also returns those that only one
// side has.
std::vector<TextDifference> Differences(const Texts& a, const Texts& b, bool lone) {
  std::vector<TextDifference> out;
  for (const auto& [name, value] : a) {
    const auto other = b.find(name);
    if (other == b.end() ? lone : other->second != value)
      out.push_back({name, value, other == b.end() ? "" : other->second});
  }
  for (const auto& [name, value] : b) {
    if (lone && !a.contains(name)) out.push_back({name, "", value});
  }
  return out;
}

// Returns the models that explain results, and the measured biases, by rule and site.
Texts Numerics(const DiffSide& side) {
  Texts out;
  const auto name = [](const std::string& rule, const v1::FindingSite& site) {
    v1::FindingSite place;
    place.set_layer(site.layer());
    place.set_op(site.op());
    return rule + " " + (place.layer().empty() ? place.op() : place.layer() + " " + place.op());
  };
  for (const v1::Verdict* verdict : side.audit.report.verdicts()) {
    const auto model = verdict->details().fields().find("model");
    if (model == verdict->details().fields().end()) continue;
    out.emplace(name(verdict->rule(), verdict->site()),
                VerdictValue(*verdict)["details"]["model"].dump());
  }
  for (const v1::Finding* finding : side.audit.report.findings()) {
    std::string text;
    const auto model = finding->details().fields().find("model");
    if (model != finding->details().fields().end())
      text = FindingValue(*finding)["details"]["model"].dump();
    if (finding->has_bias())
      absl::StrAppend(&text, text.empty() ? "" : ", ", "bias ", ShortNumber(finding->bias().mean()),
                      " ", finding->bias().unit());
    if (!text.empty()) out[name(finding->rule(), finding->site())] = text;
  }
  return out;
}

std::map<FindingKey, const v1::Finding*> FindingsOf(const DiffSide& side) {
  std::map<FindingKey, const v1::Finding*> out;
  for (const v1::Finding* f : side.audit.report.findings()) {
    if (!f->suppressed()) out.emplace(FindingKey(f->rule(), f->site().layer(), f->site().op()), f);
  }
  return out;
}

void CompareFindings(DiffResult* result) {
  const auto a = FindingsOf(result->a), b = FindingsOf(result->b);
  for (const auto& [key, finding] : a) {
    if (b.contains(key)) {
      ++result->findings_in_both;
    } else {
      result->only_a.push_back(finding);
    }
  }
  for (const auto& [key, finding] : b) {
    if (!a.contains(key)) result->only_b.push_back(finding);
  }
}

// Returns series that the runs of one side have and not all runs of the other.
std::vector<std::string> OnlyIn(const DiffSide& side, const std::vector<SeriesDiff>& common) {
  std::set<std::string> names;
  for (const RecordedRun& run : side.runs) {
    for (const auto& [name, points] : run.series) names.insert(name);
  }
  for (const SeriesDiff& series : common) names.erase(series.name);
  return {names.begin(), names.end()};
}

std::map<std::string, double> SecondsAStep(const DiffSide& side) {
  std::map<std::string, double> out;
  double runs = 0;
  for (const RecordedRun& run : side.runs) runs += run.steps > 0 ? 1 : 0;
  for (const RecordedRun& run : side.runs) {
    for (const auto& [kind, seconds] : run.seconds)
      out[kind] += seconds / static_cast<double>(run.steps) / runs;
  }
  return out;
}

void CompareTimes(DiffResult* result) {
  const auto a = SecondsAStep(result->a), b = SecondsAStep(result->b);
  std::set<std::string> kinds;
  for (const auto& [kind, seconds] : a) kinds.insert(kind);
  for (const auto& [kind, seconds] : b) kinds.insert(kind);
  for (const std::string& kind : kinds) {
    const auto in_a = a.find(kind), in_b = b.find(kind);
    result->times.push_back(
        {kind, in_a == a.end() ? 0 : in_a->second, in_b == b.end() ? 0 : in_b->second});
  }
}

// Returns true if both sides have series with common steps. If neither recorded series, returns
// true if rules judged both.
bool AnythingCompared(const DiffResult& result) {
  const auto has_series = [](const DiffSide& side) {
    return std::any_of(side.runs.begin(), side.runs.end(),
                       [](const RecordedRun& run) { return !run.series.empty(); });
  };
  const auto judged = [](const DiffSide& side) {
    return side.audit.coverage.judged + side.audit.coverage.inconclusive > 0;
  };
  if (has_series(result.a) || has_series(result.b)) {
    return std::any_of(result.series.begin(), result.series.end(),
                       [](const SeriesDiff& series) { return series.common > 0; });
  }
  return judged(result.a) && judged(result.b);
}

}  // namespace

namespace {

// Returns false if there is no departure, there are too few points for blocks but at least 8, and
// the sign test does not show one side above. Otherwise returns true: with fewer points the noise
// is unknown.
bool BeyondNoise(const AlongAxis& axis) {
  if (axis.comparison.departure) return true;
  return !axis.few || axis.few->points < 8 || axis.few->apart;
}

// Returns true if a tenth of the common values or more have no logarithm: a loss around zero, as of
// a policy, is not higher by a share.
bool HasSigns(const SeriesDiff& series) {
  return 10 * series.by_step->comparison.points < 9 * series.common;
}

}  // namespace

std::vector<EndAbove> EndsAbove(const DiffResult& result, double margin) {
  std::vector<EndAbove> above;
  for (const SeriesDiff& series : result.series) {
    if (!series.by_step || series.by_step->end.points == 0 || HasSigns(series) ||
        !BeyondNoise(*series.by_step))
      continue;
    const double share = std::expm1(series.by_step->end.size);
    if (share > margin) above.push_back({series.name, share, series.by_step->end.points});
  }
  return above;
}

std::unique_ptr<const DiffResult> CompareSides(DiffSide a, DiffSide b) {
  auto result = std::make_unique<DiffResult>();
  result->a = std::move(a);
  result->b = std::move(b);
  result->settings =
      Differences(AgreedSettings(result->a), AgreedSettings(result->b), /*lone=*/true);
  result->series = CompareSeries(result->a, result->b);
  result->rewards = CompareRewards(result->a, result->b);
  result->series_only_a = OnlyIn(result->a, result->series);
  result->series_only_b = OnlyIn(result->b, result->series);
  result->numerics = Differences(Numerics(result->a), Numerics(result->b), /*lone=*/false);
  CompareFindings(result.get());
  CompareTimes(result.get());
  result->compared = AnythingCompared(*result);
  return result;
}

}  // namespace plumbline::audit
