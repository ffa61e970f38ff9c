#include "analysis/processes/late_verdict.h"

#include <algorithm>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "analysis/frame/frame.h"

namespace plumbline::analysis {
namespace {

constexpr size_t kNamedSites = 16;

struct Why {
  std::string_view id;
  const char* brief;  // part of the title
  const char* words;  // "they came late because ..."
  const char* fix;
};
constexpr Why kWhys[] = {
    {"late-rank-slow", "their rank is slow",
     "their rank was later than the others by the step window, and had no evidence in its queue",
     "Find out why these ranks are slower than the others. If this is expected, raise "
     "ingest.window_steps."},
    {"late-stream-broken", "their stream broke",
     "the connection of their rank had broken, and was not restored within the grace period",
     "Check the processes of these ranks and the network between them and the server. A longer "
     "grace period (plumbd --grace) allows longer interruptions."},
    {"late-server-away", "the server was not running",
     "the server had not been running, and their rank did not reconnect within the grace period",
     "Find out why the server was not running, and why these ranks reconnected so late. A longer "
     "grace period (plumbd --grace) waits for them."},
    {"late-rank-silent", "their rank sent nothing",
     "their rank was connected and sent nothing for longer than the grace period",
     "Check the hosts of these ranks: a stopped process, or a lost network. A longer grace period "
     "(plumbd --grace) waits for them."},
    {"late-never-came", "their rank connected late",
     "their rank had not connected within the grace period after the first rank",
     "Start the ranks closer together, or set a longer grace period (plumbd --grace)."},
    {"late-next-attempt", "the next attempt had begun",
     "they are the last steps of an ended process, and arrived after the next attempt of the run "
     "had started at a later step",
     "Do nothing: they are stored, and judged one rank at a time."},
};
constexpr Why kUnknown = {"late", "their steps had closed", "their steps had been closed before",
                          "Find the input that lacks the end of these steps."};

const Why& Find(std::string_view cause) {
  const auto* found = std::find_if(std::begin(kWhys), std::end(kWhys),
                                   [&](const Why& why) { return why.id == cause; });
  return found == std::end(kWhys) ? kUnknown : *found;
}

std::string SiteName(const std::pair<std::string, std::string>& site) {
  return site.first.empty() ? site.second : absl::StrCat(site.first, "/", site.second);
}

}  // namespace

v1::Verdict LateVerdict(const RunSummary& run, const std::string& cause,
                        const RunSummary::LateCount& late, double error_share) {
  const Why& why = Find(cause);
  const double share =
      static_cast<double>(late.count) / static_cast<double>(std::max<uint64_t>(run.evidence, 1));
  FindingBuilder found;
  // One finding per cause: the site's op distinguishes it from those of other causes.
  SetPlace(found.verdict(), "", cause, late.step_first, late.step_last, late.ranks);
  found.Level(share <= error_share ? v1::LEVEL_WARNING : v1::LEVEL_ERROR)
      .Strength(v1::STRENGTH_PROVED)
      .Title(absl::StrCat("evidence arrived after its steps closed: ", why.brief))
      .Explain(absl::StrCat("Of ", run.evidence, " items so far ", late.count,
                            " arrived after their steps were closed: ", why.words, " (", cause,
                            "). They are stored and shown. Rules that judge single items have "
                            "judged them; verdicts over several ranks use only the other items."))
      .Cause(cause, 1)
      .Measured("late share", share, "share")
      .Threshold(error_share, "option error-share")
      .Samples(run.evidence);
  google::protobuf::Struct& sites = PutStruct(*found.finding().mutable_witness(), "sites");
  size_t named = 0;
  for (const auto& [site, items] : late.sites) {
    if (++named > kNamedSites) break;
    Put(sites, SiteName(site), static_cast<double>(items));
  }
  found.Fix(why.fix);
  Put(*found.verdict().mutable_details(), "late", static_cast<double>(late.count));
  Put(*found.verdict().mutable_details(), "sites", static_cast<double>(late.sites.size()));
  return found.Take();
}

}  // namespace plumbline::analysis
