// Findings of a rate's course, in words. What lacks here (layer, ranks) is the rule's.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "analysis/frame/frame.h"
#include "analysis/rates/apart.h"
#include "analysis/rates/odd_rate.h"
#include "analysis/rates/rank_rate.h"
#include "analysis/rates/rate_course.h"
#include "analysis/rates/rate_neighbours.h"
#include "analysis/rates/rate_stem.h"

namespace plumbline::rules {

// `op`: the series' name. The place's steps are filled.
FindingBuilder RestartFinding(const std::string& op, const RateRestart& restart);
// `who`: the ranks, in words. `declared`: how long the run is to be is known.
FindingBuilder ZeroFinding(const std::string& op, const RankRate& rate, const std::string& who,
                           bool declared);
// It reads 0, and may be a rate that is too small for the digits it was printed with.
FindingBuilder PrintedZeroFinding(const std::string& op, const RankRate& rate,
                                  const std::string& who);
// The same, by what the other scalars tell of one that reads 0 from the first row to the last: an
// error where they have whole digits and the loss does not fall, a warning where the loss is flat.
FindingBuilder AlwaysZeroFinding(const std::string& op, const RankRate& rate,
                                 const std::string& who, const RateNeighbours& neighbours);
FindingBuilder AnewFinding(const std::string& op, const RateAnew& anew);
FindingBuilder RewarmedFinding(const std::string& op, const RateRewarmed& rewarmed);
FindingBuilder LeapFinding(const std::string& op, const RateLeap& leap);
// The rate is NaN or negative in a few steps; nullopt: it was not, or that was told.
std::optional<FindingBuilder> OddFinding(const std::string& layer, const std::string& op,
                                         OddRate* odd);
// Pass or inconclusive, of a rate without a finding over so many points.
v1::Verdict RateRest(const RateStem& rate, uint64_t points);
FindingBuilder ApartFinding(int64_t step, const ApartRates& apart);
FindingBuilder FasterFinding(const std::string& op, const RateFaster& faster, uint32_t world_size);

// What was declared of a schedule, and what was seen: the first is a whole multiple, at least
// twice, of the second.
struct DeclaredSchedule {
  const char* what;  // "warms up", "decays"
  const char* option;
  int64_t declared = 0;  // steps
  int64_t seen = 0;
  uint64_t multiple = 0;
};
// 0: no whole multiple, or fewer than ten steps were seen. A step is one either way.
uint64_t WholeMultiple(int64_t declared, int64_t seen);
FindingBuilder DeclaredFinding(const std::string& op, const DeclaredSchedule& schedule);

}  // namespace plumbline::rules
