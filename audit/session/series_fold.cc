#include "audit/session/series_fold.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "analysis/frame/frame.h"
#include "audit/session/series_collector.h"

namespace plumbline::audit {
namespace {

constexpr double kSameOnset = 0.05;  // share of the run's steps
constexpr size_t kMostFolded = 4;    // series named in the text; details list all

bool IsOnLosses(const v1::Finding& finding) {
  constexpr std::array<std::string_view, 6> kRules = {
      "health/loss-divergence", "health/loss-spike", "health/loss-stall",
      "health/loss-non-finite", "health/overfit",    "health/not-learning"};
  return std::find(kRules.begin(), kRules.end(), finding.rule()) != kRules.end();
}

std::string SeriesOf(const v1::Finding& finding) {
  const v1::FindingSite& site = finding.site();
  return site.layer().empty() ? site.op() : site.layer() + "/" + site.op();
}

bool IsEvaluation(const std::string& name, SeriesRole role) {
  return role == SeriesRole::kEvaluationLoss || IsOfEvaluation(name);
}

bool IsLossLike(SeriesRole role) {
  return role == SeriesRole::kLoss || role == SeriesRole::kEvaluationLoss ||
         role == SeriesRole::kAuxiliaryLoss || role == SeriesRole::kPerplexity ||
         role == SeriesRole::kLikelihood;
}

// Returns a sort key: the smallest leads. The whole loss comes before its parts, a short name
// before a long one.
auto RankAsLead(const v1::Finding& finding, const SeriesRoles& roles) {
  const std::string name = SeriesOf(finding);
  const SeriesRole role = roles.Of(name);
  const bool total = name.find("total") != std::string::npos;
  const bool whole = role == SeriesRole::kLoss || role == SeriesRole::kEvaluationLoss;
  return std::tuple(-static_cast<int>(finding.level()), !whole, MayBePart(name), !total,
                    name.size(), name, -static_cast<int>(finding.strength()), finding.rule());
}

bool BeginsAnywhere(const std::string& cause) {
  return cause == "overfit" || cause == "uniform-guess" || cause == "flat-from-the-beginning" ||
         cause == "never-fell" || cause == "plateau";
}

// The steps of a run, as far as its findings show.
struct Span {
  int64_t first = INT64_MAX, last = INT64_MIN;
  double steps() const { return static_cast<double>(last) - static_cast<double>(first); }
};

bool IsOneFault(const v1::Finding& lead, const v1::Finding& other, const Span& run) {
  const bool same_series = SeriesOf(lead) == SeriesOf(other);
  const bool same_cause = lead.cause().id() == other.cause().id();
  const bool note = other.level() == v1::LEVEL_NOTE && lead.level() > v1::LEVEL_NOTE &&
                    lead.rule() == other.rule() && !same_series;
  if (!same_cause && !note) return false;
  // Findings of two rules on one series are one only if one rule defers to the other.
  const bool left = other.rule() == "health/loss-spike" &&
                    (lead.rule() == "health/loss-divergence" || lead.rule() == "health/overfit");
  if (same_series && !left) return false;
  if (!same_series && lead.rule() != other.rule() && !left) return false;
  if (same_cause && BeginsAnywhere(lead.cause().id())) return true;
  const double apart =
      std::fabs(static_cast<double>(OnsetOf(lead)) - static_cast<double>(OnsetOf(other)));
  return apart <= kSameOnset * run.steps();
}

}  // namespace

SeriesFold FoldSeries(const std::vector<const v1::Finding*>& findings,
                      const std::set<std::string>& left_out, const SeriesRoles& roles) {
  using Group = std::tuple<std::string, bool, std::vector<uint32_t>>;  // run, evaluation, ranks
  std::map<Group, std::vector<const v1::Finding*>> groups;
  std::map<std::string, Span> spans;
  for (const v1::Finding* finding : findings) {
    if (!IsOnLosses(*finding) || finding->suppressed()) continue;
    if (left_out.contains(finding->fingerprint())) continue;
    const std::string name = SeriesOf(*finding);
    const SeriesRole role = roles.Of(name);
    if (!IsLossLike(role)) continue;
    Span& span = spans[finding->site().run()];
    span.first = std::min(span.first, finding->site().step_first());
    span.last = std::max(span.last, finding->site().step_last());
    const std::vector<uint32_t> ranks(finding->site().ranks().begin(),
                                      finding->site().ranks().end());
    groups[{finding->site().run(), IsEvaluation(name, role), ranks}].push_back(finding);
  }
  SeriesFold fold;
  for (auto& [group, list] : groups) {
    std::sort(list.begin(), list.end(), [&](const auto* a, const auto* b) {
      return RankAsLead(*a, roles) < RankAsLead(*b, roles);
    });
    const Span& span = spans[std::get<0>(group)];
    for (size_t i = 0; i < list.size(); ++i) {
      if (fold.fingerprints.contains(list[i]->fingerprint())) continue;
      for (size_t j = i + 1; j < list.size(); ++j) {
        if (fold.fingerprints.contains(list[j]->fingerprint())) continue;
        if (!IsOneFault(*list[i], *list[j], span)) continue;
        fold.fingerprints.insert(list[j]->fingerprint());
        const std::string name = SeriesOf(*list[j]);
        std::vector<std::string>& named = fold.series[list[i]->fingerprint()];
        const bool known = name == SeriesOf(*list[i]) ||
                           std::find(named.begin(), named.end(), name) != named.end();
        if (!known) named.push_back(name);
      }
    }
  }
  return fold;
}

void SeriesFold::Amend(v1::Finding* finding) const {
  const auto of = series.find(finding->fingerprint());
  if (of == series.end() || of->second.empty()) return;
  std::vector<std::string> names = of->second;
  std::sort(names.begin(), names.end());
  auto* list = (*finding->mutable_details()->mutable_fields())["also"].mutable_list_value();
  for (const std::string& name : names) list->add_values()->set_string_value(name);
  const size_t more = names.size() > kMostFolded ? names.size() - kMostFolded : 0;
  names.resize(names.size() - more);
  // After the first sentence, so that the short form has it.
  const std::string& text = finding->explanation();
  const size_t end = std::min(text.find(". "), text.size() - std::min<size_t>(1, text.size()));
  finding->set_explanation(absl::StrCat(
      text.substr(0, end + 1), " The same is visible in ", absl::StrJoin(names, ", "),
      more > 0 ? absl::StrCat(" and ", more, " more") : "", ".", text.substr(end + 1)));
}

}  // namespace plumbline::audit
