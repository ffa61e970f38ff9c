#include "analysis/processes/quarantine_verdict.h"

#include "absl/strings/str_cat.h"
#include "analysis/frame/frame.h"

namespace plumbline::analysis {
namespace {

constexpr char kCause[] = "quarantined", kNamed[] = "quarantine:";

v1::FindingSite SiteOf(const std::string& run) {
  v1::FindingSite site;
  site.set_run(run);
  site.set_op(kCause);  // one finding per cause, as for late evidence
  return site;
}

}  // namespace

v1::Verdict QuarantineVerdict(const std::string& run, const std::string& reason, uint64_t entry) {
  FindingBuilder found(v1::LEVEL_ERROR, v1::STRENGTH_PROVED);
  found.Title("the run is in quarantine: its evidence is stored but not judged")
      .Explain(absl::StrCat("The server does not judge this run: ", reason,
                            ". Its evidence is acknowledged and stored in the journal. Other runs "
                            "are judged as before."))
      .Cause(kCause, 1)
      .Fix(
          "Fix the cause (more memory, a newer plumbd, or exclude a rule with rules.run). Then "
          "plumb runs --retry RUN judges the run again from the oldest stored entry. Or plumb runs "
          "--drop RUN never judges it, and the server refuses its evidence.")
      .Witness("entry", static_cast<double>(entry));
  v1::Verdict verdict = found.Take();
  // The engine does not set these fields for this finding.
  verdict.set_rule(kQuarantineRule);
  *verdict.mutable_site() = SiteOf(run);
  v1::Finding& finding = *verdict.mutable_finding();
  finding.set_rule(kQuarantineRule);
  *finding.mutable_site() = verdict.site();
  finding.set_fingerprint(Fingerprint(kQuarantineRule, verdict.site()));
  return verdict;
}

// The entry is stored in the field for the end of a silence.
v1::IncidentUpdate QuarantineUpdate(const std::string& run, const std::string& reason,
                                    uint64_t entry) {
  v1::IncidentUpdate update;
  update.set_fingerprint(absl::StrCat(kNamed, run));
  update.set_who("plumbd");
  update.set_reason(reason);
  update.set_until_step(static_cast<int64_t>(entry));
  return update;
}

std::optional<v1::Verdict> QuarantineOpened(const v1::JudgeEvent& event) {
  const v1::IncidentUpdate& update = event.incident();
  if (!event.has_incident() || update.action() != v1::IncidentUpdate::ACTION_UNSPECIFIED ||
      update.fingerprint().rfind(kNamed, 0) != 0)
    return std::nullopt;
  return QuarantineVerdict(update.fingerprint().substr(sizeof(kNamed) - 1), update.reason(),
                           static_cast<uint64_t>(update.until_step()));
}

}  // namespace plumbline::analysis
