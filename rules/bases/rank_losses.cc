#include "rules/bases/rank_losses.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "analysis/series/series.h"

namespace plumbline::rules {
namespace {

constexpr size_t kFewestLossRanks = 3, kMostLossRanks = 1024;
constexpr uint64_t kFirstLossSteps = 8, kFewestLossSteps = 24;
constexpr size_t kNewestLossSteps = 8;
const double kRankAway = std::log(1.5), kRankBegins = std::log(1.2);
constexpr double kOverFirst = 2;  // times the largest distance in the first steps

}  // namespace

bool RankLosses::Take(const SiteStep& step) {
  std::map<uint32_t, double> values;  // the last call of each rank
  for (const Item& item : step.items) {
    if (!item.evidence->has_scalar()) continue;
    const double value = item.evidence->scalar().value();
    if (!(value > 0) || !std::isfinite(value)) return false;  // health/loss-non-finite reports it
    values[item.source->rank()] = value;
  }
  if (left_ || values.size() < kFewestLossRanks || values.size() > kMostLossRanks) return false;
  std::vector<double> sorted;
  for (const auto& [rank, value] : values) sorted.push_back(value);
  const double highest = *std::max_element(sorted.begin(), sorted.end());
  const double median = MedianOf(sorted);
  ++steps_;
  last_ = step.step;
  for (const auto& [number, value] : values) {
    if (ranks_.size() >= kMostLossRanks && !ranks_.contains(number)) continue;
    Rank& rank = ranks_[number];
    const double far = std::log(value / median);
    if (steps_ <= kFirstLossSteps) rank.early = std::max(rank.early, std::fabs(far));
    if (far >= kRankBegins && !std::exchange(rank.away, true)) rank.away_from = step.step;
    if (!(far >= kRankBegins)) rank.away = false;
    rank.newest.push_back(value == highest ? far : NAN);
    if (rank.newest.size() > kNewestLossSteps) rank.newest.pop_front();
    if (!Leaves(rank)) continue;
    left_ = true;
    rank_ = number;
    value_ = value;
    others_ = median;
    onset_ = rank.away_from;
    return true;
  }
  return false;
}

bool RankLosses::Leaves(const Rank& rank) const {
  if (steps_ < kFewestLossSteps || rank.newest.size() < kNewestLossSteps) return false;
  std::vector<double> newest(rank.newest.begin(), rank.newest.end());
  if (std::any_of(newest.begin(), newest.end(), [](double far) { return std::isnan(far); }))
    return false;
  const double far = MedianOf(newest);
  return far >= kRankAway && far >= kOverFirst * rank.early;
}

v1::Verdict RankLossFinding(const std::string& layer, const std::string& op,
                            const RankLosses& losses) {
  FindingBuilder found(v1::LEVEL_WARNING, v1::STRENGTH_HEURISTIC);
  found.Title("one rank's loss leaves those of the others")
      .Explain(absl::StrFormat(
          "%s is %.4g on rank %d and %.4g on the median rank in step %d. It was near the others in "
          "the first steps, and has been a fifth above them since step %d.",
          op, losses.value(), losses.rank(), losses.others(), losses.last(), losses.onset()))
      .Cause("rank-loss", 0.7)
      .Measured("loss / median of the ranks", losses.value() / losses.others(), "times")
      .Threshold(1.5, "median of the newest 8 steps, in each of which it is the highest")
      .Samples(losses.steps())
      .Witness("step", static_cast<double>(losses.onset()))
      .Witness("value", losses.value())
      .Witness("others", losses.others())
      .Fix(
          "Compare the checksums of the weights over ranks: a replica that misses the all-reduce "
          "drifts away. If they are equal, look at this rank's shard of the data.")
      .At(layer, op, losses.onset(), losses.last(), std::vector<uint32_t>{losses.rank()});
  google::protobuf::Struct& details = *found.verdict().mutable_details();
  Put(details, "series", op);
  Put(details, "step", static_cast<double>(losses.onset()));
  return found.Take();
}

}  // namespace plumbline::rules
