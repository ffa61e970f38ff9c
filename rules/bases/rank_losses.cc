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
const double kRankAbove = std::log(1.5), kRankBelow = std::log(2.0), kRankBegins = std::log(1.2);
constexpr double kOverOthers = 2;  // times the largest distance of the first steps, of other ranks

}  // namespace

bool RankLosses::Take(const SiteStep& step) {
  std::map<uint32_t, double> values;  // the last call of each rank
  for (const Item& item : step.items) {
    if (!item.evidence->has_scalar()) continue;
    const double value = item.evidence->scalar().value();
    if (!(value > 0) || !std::isfinite(value)) return false;  // health/loss-non-finite reports it
    values[item.source->rank()] = value;
  }
  if (left_ != Kind::kNone || values.size() < kFewestLossRanks || values.size() > kMostLossRanks)
    return false;
  std::vector<double> sorted;
  for (const auto& [rank, value] : values) sorted.push_back(value);
  const double median = MedianOf(sorted);
  ++steps_;
  last_ = step.step;
  for (const auto& [number, value] : values) {
    if (ranks_.size() >= kMostLossRanks && !ranks_.contains(number)) continue;
    Add(step.step, value, std::log(value / median), &ranks_[number]);
  }
  for (const auto& [number, value] : values) {
    const auto rank = ranks_.find(number);
    if (rank == ranks_.end() || (left_ = KindOf(rank->second)) == Kind::kNone) continue;
    rank_ = number;
    value_ = value;
    others_ = median;
    onset_ = left_ == Kind::kStands ? rank->second.same_from : rank->second.away_from;
    return true;
  }
  return false;
}

void RankLosses::Add(int64_t step, double value, double far, Rank* rank) const {
  if (steps_ <= kFirstLossSteps) rank->early = std::max(rank->early, std::fabs(far));
  const int side = far >= kRankBegins ? 1 : far <= -kRankBegins ? -1 : 0;
  if (std::exchange(rank->away, side) != side) rank->away_from = step;
  if (std::exchange(rank->value, value) != value) {
    rank->same = 0;
    rank->same_from = step;
  }
  ++rank->same;
  rank->newest.push_back(far);
  if (rank->newest.size() > kNewestLossSteps) rank->newest.pop_front();
  if (rank->newest.size() < kNewestLossSteps) return;
  std::vector<double> newest(rank->newest.begin(), rank->newest.end());
  rank->median = MedianOf(newest);
  rank->most = std::max(rank->most, std::fabs(rank->median));
}

RankLosses::Kind RankLosses::KindOf(const Rank& rank) const {
  if (steps_ < kFewestLossSteps || rank.newest.size() < kNewestLossSteps) return Kind::kNone;
  if (LeavesTo(rank, 1)) return Kind::kAbove;
  if (LeavesTo(rank, -1)) return Kind::kBelow;
  // The others move: none of them repeats its value.
  const bool alone = std::all_of(ranks_.begin(), ranks_.end(), [&](const auto& other) {
    return &other.second == &rank || other.second.same <= 2;
  });
  const bool stands = alone && rank.same >= kFewestConstant && rank.same < steps_ &&
                      SignificantDigits(rank.value) >= kConstantDigits;
  return stands ? Kind::kStands : Kind::kNone;
}

// Returns true if the rank is the farthest one on that side in each of the newest steps, and
// farther than noise of ranks is: twice as far as it was in the first steps, as any other rank is
// now, and as the median of 8 steps of any other rank ever was.
bool RankLosses::LeavesTo(const Rank& rank, int side) const {
  const double far = side * rank.median;
  if (far < (side > 0 ? kRankAbove : kRankBelow) || far < kOverOthers * rank.early) return false;
  return std::all_of(ranks_.begin(), ranks_.end(), [&](const auto& other) {
    if (&other.second == &rank) return true;
    if (far < kOverOthers * other.second.most) return false;
    const std::deque<double>& newest = other.second.newest;
    for (size_t i = 0; i < newest.size(); ++i) {
      const bool farther = i < rank.newest.size() && side * newest[i] >= side * rank.newest[i];
      if (farther || far < kOverOthers * std::fabs(newest[i])) return false;
    }
    return true;
  });
}

v1::Verdict RankLossFinding(const std::string& layer, const std::string& op,
                            const RankLosses& losses) {
  const bool stands = losses.left() == RankLosses::Kind::kStands;
  const bool above = losses.left() == RankLosses::Kind::kAbove;
  FindingBuilder found(v1::LEVEL_WARNING, v1::STRENGTH_HEURISTIC);
  found
      .Title(stands ? "one rank logs the same loss again and again"
                    : "one rank's loss leaves those of the others")
      .Explain(
          absl::StrFormat("%s is %.4g on rank %d and %.4g on the median rank in step %d. ", op,
                          losses.value(), losses.rank(), losses.others(), losses.last()) +
          (stands ? absl::StrFormat("It has had this value since step %d, while the others move.",
                                    losses.onset())
                  : absl::StrFormat("It was near the others in the first steps, and has been a %s "
                                    "them since step %d.",
                                    above ? "fifth above" : "sixth below", losses.onset())))
      .Cause(stands ? "rank-stands" : "rank-loss", 0.7)
      .Measured(stands ? "newest steps with one value" : "loss / median of the ranks",
                stands ? static_cast<double>(losses.same()) : losses.value() / losses.others(),
                stands ? "steps" : "times")
      .Threshold(stands  ? static_cast<double>(kFewestConstant)
                 : above ? 1.5
                         : 0.5,
                 stands ? "in a row, while no other rank has one value in 3 steps"
                        : "median of the newest 8 steps, in each of which it is the farthest")
      .Samples(losses.steps())
      .Witness("step", static_cast<double>(losses.onset()))
      .Witness("value", losses.value())
      .Witness("others", losses.others())
      .Fix(
          "Compare the checksums of the weights over ranks: a replica that misses the all-reduce "
          "drifts away. If they are equal, look at this rank's shard of the data: one that is read "
          "again and again is learnt by heart.")
      .At(layer, op, losses.onset(), losses.last(), std::vector<uint32_t>{losses.rank()});
  google::protobuf::Struct& details = *found.verdict().mutable_details();
  Put(details, "series", op);
  Put(details, "step", static_cast<double>(losses.onset()));
  return found.Take();
}

}  // namespace plumbline::rules
