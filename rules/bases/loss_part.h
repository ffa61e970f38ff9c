// One series of health/loss-parts: an auxiliary loss, or a training loss of a run with rewards or
// with a game. Not thread-safe.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "analysis/policy/policy.h"
#include "analysis/role/role.h"
#include "analysis/series/series.h"
#include "base/archive.h"
#include "rules/analysis_names.h"
#include "rules/bases/companions.h"

namespace plumbline::rules {

inline constexpr uint64_t kFirstOfPart = 10, kFewestOfPart = 15, kZeroRows = 10;
inline constexpr double kMillion = 1e6, kTenThousand = 1e4, kBackAgain = 1e3, kZeroShare = 1e-3,
                        kOpponentRose = 3, kUnbalanced = 2.5;

struct LossPart {
  SeriesRole role = SeriesRole::kNone;
  uint64_t points = 0, zeros = 0, low_rows = 0;  // low_rows: number of newest points near 0
  int64_t first = 0, last = 0, low_from = 0, away_from = 0;
  uint32_t rank = 0;
  bool negative = false, away = false, exploded = false;
  bool whole = false;      // the loss itself, of a run with rewards
  uint64_t high_rows = 0;  // newest points at kUnbalanced times the largest of the first
  int64_t high_from = 0;
  // Newest points of exactly 0.
  uint64_t zero_rows = 0;
  int64_t zero_from = 0;
  // Newest points at far() times the largest value before them; that value, the first of their
  // steps, and the largest of them.
  uint64_t beyond_rows = 0;
  int64_t beyond_from = 0;
  double before = 0, beyond_top = 0;
  // Newest point; sum of |ln| of the steps between the others, at first, and their number.
  double newest = 0, moves = 0;
  uint64_t moved = 0;
  std::vector<double> head;              // absolute values of the first points
  double top = 0, start = 1, early = 0;  // largest of them; the same, at least 1; their median
  LevelOfFive level;
  void Persist(Archive& a) {
    a(role, points, zeros, low_rows, first, last, low_from, away_from, rank, negative, away,
      exploded, whole, head, top, start, early, level, high_rows, high_from, zero_rows, zero_from,
      beyond_rows, beyond_from, before, beyond_top, newest, moved, moves);
  }

  static constexpr uint64_t kFewRows = 4, kFewestOfGame = 10;
  static constexpr double kBeyond = 1.5, kLeastBeyond = 1.3, kBeyondNoise = 4;
  static constexpr uint64_t kMostMoves = 64;

  // Returns true if this value is the start of an explosion.
  bool Take(int64_t step, double value) {
    if (points++ == 0) first = step;
    last = step;
    zeros += value == 0 ? 1 : 0;
    if (value == 0 && zero_rows == 0) zero_from = step;
    zero_rows = value == 0 ? zero_rows + 1 : 0;
    TakeBeyond(step, value);
    negative |= value < 0;
    const double size = std::fabs(value);
    level.Take(size);
    if (points <= kFirstOfPart) {
      head.push_back(size);
      top = std::max(top, size);
      start = std::max(start, size);
      std::vector<double> copy = head;
      early = MedianOf(copy);
    }
    const bool high = points > kFirstOfPart && size >= kUnbalanced * top;
    if (high && high_rows == 0) high_from = step;
    high_rows = high ? high_rows + 1 : 0;
    const bool low = size <= kZeroShare * early;
    if (low && low_rows == 0) low_from = step;
    low_rows = low ? low_rows + 1 : 0;
    if (size > 10 * start && !away) away_from = step;
    away = size > 10 * start;
    // After the first check, a median reaches the bound only with a value that does.
    if (exploded || points < kFewestOfPart ||
        (points > kFewestOfPart && !(size >= kMillion * start)) ||
        !(level.level() >= kMillion * start))
      return false;
    return exploded = true;
  }
  bool zero_for_good() const {
    return !negative && early > 0 && points >= kFewestOfPart && low_rows >= kZeroRows &&
           8 * low_rows >= points;
  }
  // The newest points are exactly 0, and none before.
  bool exactly_zero() const {
    constexpr double kFarFromZero = 0.02;  // 40 times the largest value that prints as 0.000
    return !negative && points >= kFewestOfGame && zero_rows == zeros && zero_rows >= kFewRows &&
           4 * zero_rows >= points && points - zero_rows >= kFewRows &&
           EarlyOf(points - zero_rows) >= kFarFromZero;
  }
  // Returns the median of the absolute values of the first `count` points, at most kFirstOfPart.
  double EarlyOf(uint64_t count) const {
    std::vector<double> first(
        head.begin(), head.begin() + static_cast<ptrdiff_t>(std::min<size_t>(head.size(), count)));
    return first.empty() ? NAN : MedianOf(first);
  }
  // The newest points are far above all before them.
  bool beyond() const {
    return !negative && points >= kFewestOfGame && before > 0 && beyond_rows >= kFewRows &&
           5 * beyond_rows >= points && points - beyond_rows >= kFewRows;
  }
  // A loss that is lowest if the experts are even, as at its beginning: the first points are about
  // equal, and the newest ones are far higher.
  bool unbalanced_for_good() const {
    constexpr double kAlike = 1.5;
    if (negative || points < kFewestOfPart || high_rows < kZeroRows || 8 * high_rows < points)
      return false;
    const auto [least, most] = std::minmax_element(head.begin(), head.end());
    return *most <= kAlike * *least;
  }
  // Returns the factor of a value far above those before: less for a series of little noise.
  double far() const {
    constexpr double kMeanOfDifference = 1.13;  // E|x - y| of two standard normals
    const double sigma =
        moved > 0 ? moves / static_cast<double>(moved) / kMeanOfDifference : kBeyond;
    return std::clamp(1 + kBeyondNoise * sigma, kLeastBeyond, kBeyond);
  }
  void TakeBeyond(int64_t step, double value) {
    const double last = std::exchange(newest, value);
    if (points > 1 && value >= far() * before) {
      if (beyond_rows++ == 0) beyond_from = step;
      beyond_top = std::max(beyond_top, value);
      return;
    }
    if (moved < kMostMoves && last > 0 && value > 0) {
      moves += std::fabs(std::log(value / last));
      ++moved;
    }
    before = std::max({before, beyond_top, value});
    beyond_rows = 0;
    beyond_top = 0;
  }
  // The bound that counts if the reward fell back.
  bool left() const {
    return points >= kFewestOfPart && away && level.level() >= kTenThousand * start;
  }
  bool rose() const { return level.known() && level.level() >= kOpponentRose * early; }
};

// True for the mean reward of an episode: "episode_reward", "test/return".
inline bool IsReturn(const std::string& op) {
  constexpr std::string_view kOther[] = {"epsilon", "std", "best", "max", "min"};
  return SideByName(op) == GameSide::kEpisodes && !HasAnyWord(PlainWordsOf(op), kOther);
}

inline bool IsSide(const std::string& op) {
  const GameSide side = SideByName(op);
  return side == GameSide::kGenerator || side == GameSide::kDiscriminator;
}

// True for a loss that compares what a generator makes with a target. A generator that learns
// lowers it, whatever the other side does.
inline bool IsCopy(const std::string& op) {
  constexpr std::string_view kWords[] = {
      "mel", "cycle", "cyc",   "idt",  "identity", "rec", "reconstruction",
      "l1",  "recon", "pixel", "stft", "pix"};
  return HasAnyWord(PlainWordsOf(op), kWords);
}

}  // namespace plumbline::rules
