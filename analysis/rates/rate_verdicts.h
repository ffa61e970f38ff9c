// Texts of the findings on a rate's course. The rule adds the layer and the ranks.
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

namespace plumbline::analysis {

// `op` is the series' name. Sets the place's steps.
FindingBuilder RestartFinding(const std::string& op, const RateRestart& restart);
// `ranks` is a text that names the ranks. `declared` is true if the run's length is known.
FindingBuilder ZeroFinding(const std::string& op, const RankRate& rate, const std::string& ranks,
                           bool declared);
// The rate is shown as 0, but may be too small for the printed digits.
FindingBuilder PrintedZeroFinding(const std::string& op, const RankRate& rate,
                                  const std::string& ranks);
// The same for a rate that is 0 from the first row to the last, with the evidence of the other
// scalars. It is an error if they have all digits and the loss does not fall, and a warning if the
// loss is flat.
FindingBuilder AlwaysZeroFinding(const std::string& op, const RankRate& rate,
                                 const std::string& ranks, const RateNeighbours& neighbours);
FindingBuilder AnewFinding(const std::string& op, const RateAnew& anew);
FindingBuilder RewarmedFinding(const std::string& op, const RateRewarmed& rewarmed);
FindingBuilder LeapFinding(const std::string& op, const RateLeap& leap);
// The finding that the rate is NaN or negative in a few steps. If it is not, or if that was already
// reported, returns nullopt.
std::optional<FindingBuilder> OddFinding(const std::string& layer, const std::string& op,
                                         OddRate* odd);
// Returns a pass or inconclusive verdict for a rate without a finding over this number of points.
v1::Verdict RateRest(const RateStem& rate, uint64_t points);
FindingBuilder ApartFinding(int64_t step, const ApartRates& apart);
FindingBuilder FasterFinding(const std::string& op, const RateFaster& faster, uint32_t world_size);

// A schedule's declared and observed length. The declared one is an integer multiple, at least 2,
// of the observed one.
struct DeclaredSchedule {
  const char* what;  // "warms up", "decays"
  const char* option;
  int64_t declared = 0;  // steps
  int64_t seen = 0;
  uint64_t multiple = 0;
};
// Returns 0 if there is no integer multiple, or if fewer than ten steps were seen. A tolerance of
// one step is allowed.
uint64_t WholeMultiple(int64_t declared, int64_t seen);
FindingBuilder DeclaredFinding(const std::string& op, const DeclaredSchedule& schedule);

}  // namespace plumbline::analysis
