#include "analysis/collective/narrow_verdict.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/frame/frame.h"
#include "analysis/statistics/statistics.h"

namespace plumbline::analysis {
namespace {

// Sets the bias of the last simulated group and the allowed bias, in one unit.
void MeasureGrowth(const ReductionStatistics& tally, v1::Finding& f) {
  const std::vector<GrownBias>& tried = tally.growth->tried;
  const int ranks = tried.empty() ? tally.narrow->c.ranks : tried.back().ranks;
  const double mean = tried.empty() ? tally.stream.mean() : tried.back().mean;
  const double half = tried.empty() ? tally.stream.half_width() : tried.back().half_width;
  f.mutable_measured()->set_name(
      absl::StrCat(tried.empty() ? "" : "simulated ", "bias over ", ranks, " ranks, at least"));
  f.mutable_measured()->set_value(std::max(std::fabs(mean) - half, 0.0));
  f.mutable_measured()->set_unit(tally.unit());
  f.mutable_threshold()->set_value(kBiasBudgetUlp);
  f.mutable_threshold()->set_source(absl::StrCat("limit of the bias test, in ", tally.unit()));
}

}  // namespace

v1::Verdict NarrowVerdict(const ReductionStatistics& tally, const char* fix) {
  const ReductionReplay& replay = tally.narrow->replay;
  const int breaks = tally.growth->breaks_at();
  FindingBuilder found(v1::LEVEL_NOTE, v1::STRENGTH_PROVED);
  found.Title("a collective keeps its partial sums in 16 bits");
  std::string grown = "A simulation with similar addends shows no bias up to 2,048 ranks";
  if (tally.growth->tried.empty()) grown = "More ranks were not simulated";
  if (breaks > 0) {
    const GrownBias& g = tally.growth->tried.back();
    grown = absl::StrFormat(
        "In a simulation with similar addends, the sum over %d ranks has a bias of %+.2g %s "
        "(%+.2g %%)",
        breaks, g.mean, tally.unit(), 100 * g.relative);
  }
  const BiasStream& stream = tally.stream;
  std::string now = absl::StrFormat("%d ranks show no bias so far", tally.narrow->c.ranks);
  if (stream.interval_side() != BiasSide::kNone) {
    now = absl::StrFormat("%d ranks have a bias of %+.3g %s, on too few samples for a finding",
                          tally.narrow->c.ranks, stream.mean(), tally.unit());
  }
  found
      .Explain(absl::StrFormat("%s. %s. %s.%s", Capitalised(ReductionStatistics::ModelText(replay)),
                               now, grown, tally.SinceText()))
      .Cause("16-bit-partial-sums", 1);
  MeasureGrowth(tally, found.finding());
  found.Samples(static_cast<uint64_t>(replay.matches))
      .Assume(
          "the model is proved; the forecast is a simulation of normal addends with the mean and "
          "the standard deviation over ranks of the sampled elements")
      .Fix(fix);
  return found.Take();
}

}  // namespace plumbline::analysis
