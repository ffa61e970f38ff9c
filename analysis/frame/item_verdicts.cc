#include "analysis/frame/item_verdicts.h"

#include <algorithm>
#include <cctype>
#include <set>
#include <string_view>
#include <utility>

namespace plumbline::analysis {
namespace {

// Orders findings first, by level and strength; then passes, then inconclusive verdicts.
int Weight(const v1::Verdict& verdict) {
  if (verdict.kind() == v1::Verdict::KIND_FINDING)
    return 100 * verdict.finding().level() + verdict.finding().strength();
  return verdict.kind() == v1::Verdict::KIND_PASS ? 1 : 0;
}

}  // namespace

void JudgeItems(const SiteStep& step, const ItemJudge& judge, VerdictSink& out) {
  std::optional<v1::Verdict> best;
  std::set<uint32_t> ranks;
  for (const Item& item : step.items) {
    std::optional<v1::Verdict> verdict = judge(item);
    if (!verdict) continue;
    const int weight = Weight(*verdict);
    const int before = best ? Weight(*best) : -1;
    const bool same_level = best && weight / 100 == before / 100;
    if (!same_level && weight > before) ranks.clear();
    if (same_level || weight > before) ranks.insert(item.source->rank());
    if (weight > before) best = std::move(verdict);
  }
  if (!best) return;
  if (best->kind() == v1::Verdict::KIND_FINDING && best->site().ranks().empty()) {
    for (const uint32_t rank : ranks) best->mutable_site()->add_ranks(rank);
  }
  out.Add(*std::move(best));
}

bool IsAverage(const v1::UpdateConfig& config) {
  static constexpr std::string_view kNames[] = {"ema", "average", "polyak", "swa"};
  if (config.optimizer().empty()) return config.decay() >= 0.5 && config.decay() < 1;
  return std::any_of(std::begin(kNames), std::end(kNames),
                     [&](std::string_view name) { return IsOptimizer(config, name); });
}

bool IsAccumulation(const v1::UpdateConfig& config) { return config.optimizer() == "accumulation"; }

bool IsOptimizer(const v1::UpdateConfig& config, std::string_view name) {
  return std::equal(
      name.begin(), name.end(), config.optimizer().begin(), config.optimizer().end(),
      [](char a, char b) { return a == std::tolower(static_cast<unsigned char>(b)); });
}

}  // namespace plumbline::analysis
