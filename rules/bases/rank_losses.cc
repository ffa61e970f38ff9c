#include "rules/bases/rank_losses.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "analysis/series/series.h"

namespace plumbline::rules {
namespace {

constexpr size_t kFewestLossRanks = 3, kMostLossRanks = 1024;
constexpr uint64_t kFirstLossSteps = 8, kFewestLossSteps = 24;
constexpr uint64_t kLastingLoss = kFewestConstant, kMovedBefore = 5, kTimesLossBefore = 3;
constexpr size_t kNewestLossSteps = 8;
const double kRankAbove = std::log(1.5), kRankBelow = std::log(2.0), kRankBegins = std::log(1.2);
constexpr double kOverOthers = 2;  // times the largest distance of the first steps, of other ranks

// Returns the median of the values above 0 of ranks that are not in `group`.
double MedianOfOthers(const std::map<uint32_t, double>& values,
                      const std::vector<uint32_t>& group) {
  std::vector<double> others;
  for (const auto& [rank, value] : values) {
    if (value > 0 && std::find(group.begin(), group.end(), rank) == group.end())
      others.push_back(value);
  }
  return others.empty() ? 0 : MedianOf(others);
}

}  // namespace

void RankLosses::Streak::Count(bool goes_on, int64_t step) {
  if (!goes_on) before = std::max(before, std::exchange(now, 0));
  if (now++ == 0) from = step;
}

bool RankLosses::Streak::lasts() const {
  return now >= kLastingLoss && now >= kTimesLossBefore * before;
}

bool RankLosses::Take(const SiteStep& step) {
  Values values;  // the last call of each rank
  for (const Item& item : step.items) {
    if (!item.evidence->has_scalar()) continue;
    const double value = item.evidence->scalar().value();
    if (!(value >= 0) || !std::isfinite(value)) return false;  // health/loss-non-finite reports it
    values[item.source->rank()] = value;
  }
  if (left_ != Kind::kNone || values.size() < 2 || values.size() > kMostLossRanks) return false;
  bool zero = false;
  for (const auto& [number, value] : values) {
    if (ranks_.size() >= kMostLossRanks && !ranks_.contains(number)) continue;
    Rank& rank = ranks_[number];
    if (value == 0) rank.zero.Count(rank.zero.now > 0, step.step);
    if (value > 0 && rank.zero.now > 0)
      rank.zero.before = std::max(rank.zero.before, std::exchange(rank.zero.now, 0));
    rank.above += value > 0 ? 1 : 0;
    zero |= value == 0;
  }
  last_ = step.step;
  if (zero) return Left(values, Kind::kZero, Zero());
  const double median = MedianOfOthers(values, {});
  ++steps_;
  for (const auto& [number, value] : values) {
    if (const auto rank = ranks_.find(number); rank != ranks_.end())
      Add(step.step, value, std::log(value / median), &rank->second);
  }
  return Left(values, Kind::kAbove, Leaving(1)) || Left(values, Kind::kBelow, Leaving(-1)) ||
         Left(values, Kind::kStands, Standing());
}

bool RankLosses::Left(const Values& values, Kind kind, std::vector<uint32_t> ranks) {
  std::erase_if(ranks, [&](uint32_t rank) { return !values.contains(rank); });
  if (ranks.empty()) return false;
  const Rank& first = ranks_.at(ranks.front());
  left_ = kind;
  value_ = values.at(ranks.front());
  others_ = MedianOfOthers(values, ranks);
  onset_ = kind == Kind::kStands ? first.same.from
           : kind == Kind::kZero ? first.zero.from
                                 : first.away_from;
  left_ranks_ = std::move(ranks);
  return true;
}

void RankLosses::Add(int64_t step, double value, double far, Rank* rank) const {
  if (steps_ <= kFirstLossSteps) rank->early = std::max(rank->early, std::fabs(far));
  const int side = far >= kRankBegins ? 1 : far <= -kRankBegins ? -1 : 0;
  if (std::exchange(rank->away, side) != side) rank->away_from = step;
  rank->same.Count(std::exchange(rank->value, value) == value, step);
  rank->newest.push_back(far);
  if (rank->newest.size() > kNewestLossSteps) rank->newest.pop_front();
  if (rank->newest.size() < kNewestLossSteps) return;
  std::vector<double> newest(rank->newest.begin(), rank->newest.end());
  rank->median = MedianOf(newest);
  rank->most = std::max(rank->most, std::fabs(rank->median));
}

// Returns the ranks, at most half of all, whose loss was above 0 and is 0 in each of the newest
// steps. A stage of a pipeline without a loss is 0 from the first step on.
std::vector<uint32_t> RankLosses::Zero() const {
  std::vector<uint32_t> zero;
  for (const auto& [number, rank] : ranks_) {
    if (rank.zero.lasts() && rank.above >= kMovedBefore) zero.push_back(number);
  }
  return 2 * zero.size() <= ranks_.size() ? zero : std::vector<uint32_t>();
}

// Returns the ranks, at most half of all, whose loss is one value in the newest steps, while each
// other rank's moves.
std::vector<uint32_t> RankLosses::Standing() const {
  std::vector<uint32_t> standing;
  for (const auto& [number, rank] : ranks_) {
    const bool stands = rank.same.lasts() && rank.same.now + kMovedBefore <= steps_ &&
                        SignificantDigits(rank.value) >= kConstantDigits;
    if (!stands && rank.same.now > 2) return {};
    if (stands) standing.push_back(number);
  }
  return 2 * standing.size() <= ranks_.size() ? standing : std::vector<uint32_t>();
}

// Returns the ranks that are away from all others on that side: one, or up to a quarter of all (the
// ranks of a node).
std::vector<uint32_t> RankLosses::Leaving(int side) const {
  if (steps_ < kFewestLossSteps || ranks_.size() < kFewestLossRanks) return {};
  std::vector<std::pair<double, uint32_t>> far;
  for (const auto& [number, rank] : ranks_) {
    const double away = side * rank.median;
    const bool full = rank.newest.size() == kNewestLossSteps;
    if (full && away >= (side > 0 ? kRankAbove : kRankBelow) && away >= kOverOthers * rank.early)
      far.emplace_back(away, number);
  }
  std::sort(far.rbegin(), far.rend());
  std::vector<uint32_t> group;
  for (const auto& [away, number] : far) {
    if (!group.empty() && 4 * (group.size() + 1) > ranks_.size()) break;
    group.push_back(number);
    std::sort(group.begin(), group.end());
    if (Leaves(group, side)) return group;
  }
  return {};
}

// Returns true if the group is farther than any other rank on that side in each of the newest
// steps, and farther than noise of ranks is: twice as far as any other rank is now, and as the
// median of 8 steps of any other rank ever was.
bool RankLosses::Leaves(const std::vector<uint32_t>& group, int side) const {
  double far = HUGE_VAL;
  std::vector<double> nearest(kNewestLossSteps, HUGE_VAL);
  for (const uint32_t number : group) {
    const Rank& rank = ranks_.at(number);
    far = std::min(far, side * rank.median);
    for (size_t i = 0; i < kNewestLossSteps; ++i)
      nearest[i] = std::min(nearest[i], side * rank.newest[i]);
  }
  return std::all_of(ranks_.begin(), ranks_.end(), [&](const auto& other) {
    if (std::binary_search(group.begin(), group.end(), other.first)) return true;
    if (far < kOverOthers * other.second.most) return false;
    const std::deque<double>& newest = other.second.newest;
    for (size_t i = 0; i < newest.size(); ++i) {
      if (side * newest[i] >= nearest[i] || far < kOverOthers * std::fabs(newest[i])) return false;
    }
    return true;
  });
}

namespace {

// Returns "rank 3", or "ranks 2, 3".
std::string NamesOfRanks(const std::vector<uint32_t>& ranks) {
  constexpr size_t kMostNamed = 8;
  const size_t named = std::min(ranks.size(), kMostNamed);
  return absl::StrCat(
      ranks.size() == 1 ? "rank " : "ranks ",
      absl::StrJoin(ranks.begin(), ranks.begin() + static_cast<ptrdiff_t>(named), ", "),
      ranks.size() > named ? ", ..." : "");
}

struct RankLossWords {
  const char* title;  // "the loss of one rank" precedes it
  const char* since;  // precedes the onset
  const char* cause;
  const char* measured;
  double threshold;
  const char* bound;
};

RankLossWords WordsOf(RankLosses::Kind kind) {
  constexpr double kRow = static_cast<double>(kLastingLoss);
  static constexpr char kLeaves[] = " leaves those of the others";
  static constexpr char kFarthest[] =
      "median of the newest 8 steps, in each of which it is the farthest";
  switch (kind) {
    case RankLosses::Kind::kZero:
      return {" is exactly 0",
              "It was above 0 before, and is 0",
              "rank-zero",
              "newest steps with a loss of 0",
              kRow,
              "in a row, and 3 times as many as ever before"};
    case RankLosses::Kind::kStands:
      return {" is the same again and again",
              "It has this value, while the others move,",
              "rank-stands",
              "newest steps with one value",
              kRow,
              "in a row, and 3 times as many as ever before, while no other rank has 3"};
    case RankLosses::Kind::kAbove:
      return {kLeaves,     "It was near the others in the first steps, and is a fifth above them",
              "rank-loss", "loss / median of the other ranks",
              1.5,         kFarthest};
    default:
      return {kLeaves,     "It was near the others in the first steps, and is a sixth below them",
              "rank-loss", "loss / median of the other ranks",
              0.5,         kFarthest};
  }
}

}  // namespace

v1::Verdict RankLossFinding(const std::string& layer, const std::string& op,
                            const RankLosses& losses) {
  const RankLosses::Kind kind = losses.left();
  const RankLossWords words = WordsOf(kind);
  const bool in_a_row = kind == RankLosses::Kind::kStands || kind == RankLosses::Kind::kZero;
  FindingBuilder found(v1::LEVEL_WARNING, v1::STRENGTH_HEURISTIC);
  const char* const of = losses.ranks().size() == 1 ? "one rank" : "some ranks";
  found.Title(absl::StrCat("the loss of ", of, words.title))
      .Explain(absl::StrFormat("%s is %.4g on %s and %.4g on the median of the other ranks in step "
                               "%d. %s since step %d.",
                               op, losses.value(), NamesOfRanks(losses.ranks()), losses.others(),
                               losses.last(), words.since, losses.onset()))
      .Cause(words.cause, 0.7)
      .Measured(
          words.measured,
          in_a_row ? static_cast<double>(losses.in_a_row()) : losses.value() / losses.others(),
          in_a_row ? "steps" : "times")
      .Threshold(words.threshold, words.bound)
      .Samples(losses.steps())
      .Witness("step", static_cast<double>(losses.onset()))
      .Witness("value", losses.value())
      .Witness("others", losses.others())
      .Fix(
          kind == RankLosses::Kind::kZero
              ? "Look at this rank's shard of the data and its labels: all masked, or at its end. "
                "A trainer may also log a NaN as 0: log the loss before it is filtered."
              : "Compare the checksums of the weights over ranks: a replica that misses the "
                "all-reduce drifts away. If they are equal, look at this rank's shard of the data: "
                "one that is read again and again is learnt by heart.")
      .At(layer, op, losses.onset(), losses.last(), losses.ranks());
  google::protobuf::Struct& details = *found.verdict().mutable_details();
  Put(details, "series", op);
  Put(details, "step", static_cast<double>(losses.onset()));
  return found.Take();
}

}  // namespace plumbline::rules
