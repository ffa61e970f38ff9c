#include "analysis/routing/kept_by_score.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "analysis/statistics/statistics.h"

namespace plumbline::analysis {
namespace {

constexpr size_t kMostScored = 1 << 18;  // choices

}  // namespace

double KeptByScoreDeviations(const RoutingCase& c, const Saturation& s) {
  std::map<std::pair<size_t, int16_t>, std::vector<std::pair<double, bool>>> groups;
  // A hash draws the tokens of a large call, because a stride could pick one sequence.
  const uint64_t share = c.choices.size() / kMostScored + 1;
  for (const Choice& choice : c.choices) {
    if (choice.rank < 0 || !c.judged(choice.token)) continue;
    if (ContextKeyOf(static_cast<uint64_t>(choice.token) + 1) / 2 % share != 0) continue;
    const size_t cell = CellOfToken(c, choice.token, choice.expert);
    const double score = c.scores.At(choice.token, choice.expert);
    if (s.cells[cell].refused == 0 || !std::isfinite(score)) continue;
    groups[{cell, choice.rank}].emplace_back(score, choice.kept);
  }
  double excess = 0, variance = 0;
  for (auto& [cell, choices] : groups) {
    std::sort(choices.begin(), choices.end());
    double kept = 0, places = 0;
    for (size_t i = 0; i < choices.size();) {
      size_t end = i;
      while (end < choices.size() && choices[end].first == choices[i].first) ++end;
      const double place = static_cast<double>(i + end + 1) / 2;  // equal scores share their places
      for (; i < end; ++i) {
        kept += choices[i].second;
        places += choices[i].second ? place : 0;
      }
    }
    const auto n = static_cast<double>(choices.size());
    excess += places - kept * (n + 1) / 2;
    variance += kept * (n - kept) * (n + 1) / 12;
  }
  return variance > 0 ? excess / std::sqrt(variance) : 0;
}

}  // namespace plumbline::analysis
