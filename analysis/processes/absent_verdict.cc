#include "analysis/processes/absent_verdict.h"

#include "absl/strings/str_cat.h"
#include "analysis/frame/frame.h"

namespace plumbline::analysis {
namespace {

constexpr uint64_t kMostRanks = 16'384;  // in the finding's site

std::string RangesText(const RunSummary::AbsentRanks& absent) {
  std::string out;
  uint64_t named = 0;
  for (const auto& [first, last] : absent.ranges) {
    absl::StrAppend(&out, out.empty() ? "" : ", ", first);
    if (last > first) absl::StrAppend(&out, "-", last);
    named += uint64_t{last} - first + 1;
  }
  if (named < absent.count) absl::StrAppend(&out, " and ", absent.count - named, " more");
  return out;
}

std::vector<uint32_t> FirstRanks(const RunSummary::AbsentRanks& absent) {
  std::vector<uint32_t> ranks;
  for (const auto& [first, last] : absent.ranges) {
    for (uint64_t rank = first; rank <= last && ranks.size() < kMostRanks; ++rank)
      ranks.push_back(static_cast<uint32_t>(rank));
  }
  return ranks;
}

}  // namespace

v1::Verdict AbsentVerdict(const RunSummary& run, const RunSummary::AbsentRanks& absent) {
  const std::string ranges = RangesText(absent);
  const auto count = static_cast<double>(absent.count), world = static_cast<double>(absent.world);
  FindingBuilder found(v1::LEVEL_WARNING, v1::STRENGTH_PROVED);
  found.Title(absl::StrCat(absent.count, " of ", absent.world, " ranks did not report"))
      .Explain(absl::StrCat(absent.count, " of ", absent.world,
                            " ranks sent nothing: ", absent.count == 1 ? "rank " : "ranks ", ranges,
                            ". No rule looks at them, and steps were closed without them."))
      .Cause("ranks-absent", 1)
      .Measured("ranks that sent nothing", count, "ranks")
      .Threshold(0, "the number of ranks that the other ranks state")
      .Fix(
          "Check that these processes run, call plumbline.init on every rank, and reach the "
          "server. "
          "On their hosts, `plumb doctor` checks the connection.")
      .Witness("absent", ranges)
      .Witness("world_size", world)
      .At(absent.rollout ? "rollout" : "", "ranks", run.step_first, run.step_last,
          FirstRanks(absent));
  // A part of the ranks would read as all of them.
  if (static_cast<uint64_t>(found.verdict().site().ranks_size()) < absent.count)
    Put(*found.verdict().mutable_details(), "place", absl::StrCat(absent.count, " ranks"));
  Put(*found.verdict().mutable_details(), "absent", count);
  Put(*found.verdict().mutable_details(), "world_size", world);
  return found.Take();
}

}  // namespace plumbline::analysis
