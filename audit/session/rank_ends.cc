#include "audit/session/rank_ends.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "analysis/collective/case/case.h"
#include "analysis/frame/frame.h"

namespace plumbline::audit {
namespace {

constexpr uint64_t kFewestOfRank = 20;  // minimum rows of a rank that reported regularly
constexpr uint64_t kFewestAfter = 10;   // minimum rows of another rank after its last one
constexpr double kRegular = 0.9;        // share of the other rank's rows up to its last step

}  // namespace

void RankEnds::Take(const v1::Batch& batch) {
  for (const v1::SeriesRows& rows : batch.series()) {
    const bool one_source = rows.source_size() == 1;
    for (int i = 0; i < rows.step_size(); ++i) {
      if (!one_source && i >= rows.source_size()) break;
      const int at = static_cast<int>(rows.source(one_source ? 0 : i));
      if (at >= batch.sources_size()) continue;
      const v1::Source& source = batch.sources(at);
      Course* course = &runs_[{source.run(), source.role()}][source.rank()];
      if (course->rows > 0 && source.attempt() < course->attempt) continue;
      const bool begins = course->rows == 0 || source.attempt() > course->attempt;
      if (begins) *course = {source.attempt(), 0, rows.step(i), rows.step(i) - 1};
      // Fast path for rows of one source: count them in place.
      for (; i < rows.step_size(); ++i) {
        if (rows.step(i) > course->newest) {
          ++course->rows;
          course->newest = rows.step(i);
        }
        if (!one_source) break;
      }
    }
  }
}

// Returns true if the rank reported as often as the longest rank did, and stopped well before it.
bool RankEnds::IsSilent(const Course& one, const Course& longest) {
  if (one.attempt != longest.attempt || one.rows < kFewestOfRank) return false;
  const double apart = static_cast<double>(longest.newest - longest.first) /
                       static_cast<double>(std::max<uint64_t>(1, longest.rows - 1));
  if (!(apart > 0)) return false;
  const double after = static_cast<double>(longest.newest - one.newest) / apart;
  const double expected = static_cast<double>(one.newest - longest.first) / apart + 1;
  return after >= static_cast<double>(kFewestAfter) &&
         static_cast<double>(one.rows) >= kRegular * expected;
}

std::vector<std::pair<std::string, v1::Verdict>> RankEnds::Verdicts(const May& may) const {
  std::vector<std::pair<std::string, v1::Verdict>> verdicts;
  for (const auto& [key, ranks] : runs_) {
    if (ranks.size() < 2) continue;
    const auto longest =
        std::max_element(ranks.begin(), ranks.end(), [](const auto& a, const auto& b) {
          return std::pair(a.second.attempt, a.second.newest) <
                 std::pair(b.second.attempt, b.second.newest);
        });
    std::vector<uint32_t> silent;
    int64_t first = INT64_MAX;
    for (const auto& [rank, course] : ranks) {
      if (!IsSilent(course, longest->second) || (may && !may(key.first, rank))) continue;
      silent.push_back(rank);
      first = std::min(first, course.newest);
    }
    if (silent.empty()) continue;
    const std::string who = analysis::RankWords(silent);
    const int64_t last = longest->second.newest;
    analysis::FindingBuilder found(v1::LEVEL_WARNING, v1::STRENGTH_BOUNDED);
    found.Title("a rank reports nothing while others continue")
        .Explain(absl::StrCat("The last row of ", who, " is step ", first,
                              "; it reported each step until "
                              "then, as other ranks did, and rank ",
                              longest->first, " continues to step ", last, "."))
        .Cause("rank-silent", 0.8)
        .Measured("steps without a row", static_cast<double>(last - first), "steps")
        .Threshold(static_cast<double>(kFewestAfter), "rows of another rank after its last one")
        .Samples(longest->second.rows)
        .Witness("step", static_cast<double>(first))
        .Witness("newest", static_cast<double>(last))
        .Assume("its log is complete, and was copied at the same time as the others")
        .Fix(
            "Check the end of that rank's own log and its host (dmesg). If the rank hangs in a "
            "collective, py-spy dump shows the line.");
    analysis::SetPlace(found.verdict(), "", "process", first, last, silent);
    google::protobuf::Struct& details = *found.verdict().mutable_details();
    analysis::Put(details, "kind", "rank-silent");
    analysis::Put(details, "step", static_cast<double>(first));
    analysis::Put(details, "last_step", static_cast<double>(first));
    verdicts.emplace_back(key.first, found.Take());
  }
  return verdicts;
}

}  // namespace plumbline::audit
