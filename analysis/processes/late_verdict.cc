#include "analysis/processes/late_verdict.h"

#include <algorithm>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "analysis/frame/frame.h"

namespace plumbline::rules {
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
     "their rank had fallen behind the others by the step window, with nothing waiting to be sent",
     "Find out why these ranks are slower than the others; where that is as it should be, raise "
     "ingest.window_steps."},
    {"late-stream-broken", "their stream broke",
     "their rank's connection had broken, and it did not come back within the grace",
     "Look at these ranks' processes and at the network between them and the server; a longer "
     "grace "
     "(plumbd --grace) waits for longer breaks."},
    {"late-server-away", "the server was away",
     "the server had been away, and their rank did not come back to it within the grace",
     "Find out why the server was away, and why these ranks came back so late; a longer grace "
     "(plumbd --grace) waits for them."},
    {"late-rank-silent", "their rank was silent",
     "their rank was connected and said nothing for longer than the grace",
     "Look at these ranks' hosts: a process that was stopped or a network that was lost; a longer "
     "grace (plumbd --grace) waits for them."},
    {"late-never-came", "their rank came late",
     "their rank had not said hello within the grace after the first one",
     "Start the ranks closer together, or give the server a longer grace (plumbd --grace)."},
    {"late-next-attempt", "the next attempt had begun",
     "they are the last steps of a process that ended, and arrived after the next attempt of the "
     "run "
     "had begun at a later step",
     "Nothing: they are stored, and judged one rank at a time."},
};
constexpr Why kUnknown = {"late", "their steps had closed", "their steps had been closed before",
                          "Find out which input lacked the end of these steps."};

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
      .Title(absl::StrCat("evidence came after its steps had closed: ", why.brief))
      .Explain(
          absl::StrCat("Of ", run.evidence, " items so far ", late.count,
                       " came after their steps had been closed: ", why.words, " (", cause,
                       "). They are stored and shown, and were judged by the rules that look at "
                       "each item by itself; verdicts over several ranks rest on the others."))
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

}  // namespace plumbline::rules
