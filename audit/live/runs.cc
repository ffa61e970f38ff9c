// plumb runs and plumb run-edit.
#include <algorithm>
#include <map>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "audit/live/answers.h"
#include "audit/live/caught_up.h"
#include "audit/live/client.h"
#include "audit/live/known_run.h"
#include "audit/live/live.h"
#include "audit/live/output.h"
#include "audit/live/watch_printer.h"
#include "audit/render/finding_text.h"

namespace plumbline::audit {
namespace {

using Causes = std::map<std::string, uint64_t>;  // sorted

Causes CausesOf(const v1::RunInfo& run) {
  return {run.lost_by_cause().begin(), run.lost_by_cause().end()};
}

Causes LateOf(const v1::RunInfo& run) {
  return {run.late_by_cause().begin(), run.late_by_cause().end()};
}

std::string JsonCounts(const Causes& causes) {
  std::string json = "{";
  for (const auto& [name, count] : causes)
    absl::StrAppend(&json, json.size() > 1 ? "," : "", JsonString(name), ":", count);
  return json + "}";
}

Causes StatesOf(const v1::RunInfo& run) { return {run.liveness().begin(), run.liveness().end()}; }

std::string StateOf(const v1::RunInfo& run) {
  if (run.has_quarantined()) return run.quarantined().dropped() ? "dropped" : "quarantined";
  if (run.ranks_seen() > 0 && run.ranks_finished() == run.ranks_seen()) return "finished";
  return run.ranks_connected() > 0 ? "running" : "gone";
}

std::string GapText(const v1::Gap& gap) {
  const std::string items = gap.items() > 0 ? absl::StrCat(gap.items(), " items") : "not known";
  return absl::StrCat("  gap: attempt ", gap.attempt(), ", steps ", gap.step_first(), "-",
                      gap.step_last(), ", ", items, ": ", Printable(gap.reason()), "\n");
}

std::string QuarantineText(const v1::RunInfo& run) {
  const v1::QuarantinedRun& held = run.quarantined();
  std::string text = absl::StrCat("  ", held.dropped() ? "dropped" : "in quarantine", " since ",
                                  TimeText(held.unix_ns()), ": ", Printable(held.reason()), "\n");
  if (!held.dropped()) {
    absl::StrAppend(&text,
                    "  its evidence is stored but not judged: plumb runs --retry RUN judges it "
                    "again, --drop RUN never does\n");
  }
  return text;
}

std::string RunText(const v1::RunInfo& run) {
  const std::string name = Printable(run.run());
  const std::string world = run.world_size() > 0 ? absl::StrCat("/", run.world_size()) : "";
  std::string text =
      Padded(name.empty() ? "(unnamed)" : name, 24) +
      Padded(StateOf(run), run.has_quarantined() ? 11 : 8) +
      Padded(absl::StrCat(run.ranks_seen(), world, " ranks"), 12) +
      Padded(absl::StrCat("step ", run.newest_step(), " (judged ", run.closed_step(), ")"), 24) +
      Padded(absl::StrCat(run.evidence(), " items, ", run.lost(), " lost",
                          run.late() > 0 ? absl::StrCat(", ", run.late(), " late") : ""),
             28) +
      Padded(Plural(run.open_incidents(), "incident"), 13) +
      Padded(run.owner().empty() ? "-" : Printable(run.owner()), 10) + "since " +
      TimeText(run.first_seen_unix_ns()) + "\n";
  text += LabelsText(run.labels());
  if (run.has_quarantined()) absl::StrAppend(&text, QuarantineText(run));
  for (const auto& [cause, count] : CausesOf(run))
    absl::StrAppend(&text, "  lost: ", count, " by ", Printable(cause), "\n");
  for (const auto& [cause, count] : LateOf(run))
    absl::StrAppend(&text, "  late: ", count, " by ", Printable(cause), "\n");
  if (run.series_not_judged() > 0) {
    absl::StrAppend(&text, "  not judged: ", run.series_not_judged(),
                    " series after the first 20,000 of their role (they are stored)\n");
  }
  for (const auto& [state, ranks] : StatesOf(run)) {
    if (state == "awaited") {
      absl::StrAppend(&text, "  waiting for ", Plural(ranks, "rank"), " of ", run.world_size(),
                      " to connect: steps are judged with them, or without them after the grace "
                      "period (--grace, 30 s)\n");
    } else if (state != "running") {
      absl::StrAppend(&text, "  ", Plural(ranks, "rank"), " ", state, "\n");
    }
  }
  for (const v1::AttemptInfo& a : run.attempts()) {
    if (run.attempts_size() < 2) break;
    absl::StrAppend(&text, "  attempt ", a.attempt(), ": steps ", a.step_first(), "-",
                    a.step_last(), a.superseded() ? ", superseded" : "", "\n");
  }
  for (const v1::Gap& gap : run.gaps()) text += GapText(gap);
  return text;
}

}  // namespace

std::string RunJson(const v1::RunInfo& run) {
  std::string json = absl::StrCat(
      "{\"run\":", JsonString(run.run()), ",\"state\":\"", StateOf(run),
      "\",\"attempt\":", run.attempt(), ",\"world_size\":", run.world_size(),
      ",\"ranks_seen\":", run.ranks_seen(), ",\"ranks_connected\":", run.ranks_connected(),
      ",\"ranks_finished\":", run.ranks_finished(), ",\"newest_step\":", run.newest_step(),
      ",\"closed_step\":", run.closed_step(), ",\"evidence\":", run.evidence(),
      ",\"samples\":", run.samples(), ",\"lost\":", run.lost(),
      ",\"lost_by_cause\":", JsonCounts(CausesOf(run)), ",\"late\":", run.late(),
      ",\"late_by_cause\":", JsonCounts(LateOf(run)),
      ",\"series_not_judged\":", run.series_not_judged(),
      ",\"liveness\":", JsonCounts(StatesOf(run)));
  const char* comma = "";
  absl::StrAppend(&json, ",\"owner\":", JsonString(run.owner()),
                  ",\"labels\":", LabelsJson(run.labels()),
                  ",\"open_incidents\":", run.open_incidents(), ",\"first_seen\":\"",
                  Rfc3339(run.first_seen_unix_ns()), "\",\"attempts\":[");
  for (const v1::AttemptInfo& a : run.attempts()) {
    absl::StrAppend(&json, comma, "{\"attempt\":", a.attempt(), ",\"step_first\":", a.step_first(),
                    ",\"step_last\":", a.step_last(),
                    ",\"superseded\":", a.superseded() ? "true" : "false", "}");
    comma = ",";
  }
  json += "],";
  if (run.has_quarantined()) {
    const v1::QuarantinedRun& held = run.quarantined();
    absl::StrAppend(&json, "\"quarantined\":{\"reason\":", JsonString(held.reason()),
                    ",\"entry\":", held.entry(), ",\"since\":\"", Rfc3339(held.unix_ns()),
                    "\",\"dropped\":", held.dropped() ? "true" : "false", "},");
  }
  json += "\"gaps\":[";
  comma = "";
  for (const v1::Gap& gap : run.gaps()) {
    absl::StrAppend(&json, comma, "{\"attempt\":", gap.attempt(),
                    ",\"step_first\":", gap.step_first(), ",\"step_last\":", gap.step_last(),
                    ",\"items\":", gap.items(), ",\"reason\":", JsonString(gap.reason()), "}");
    comma = ",";
  }
  return json + "]}\n";
}

namespace {

constexpr double kRetrySeconds = 86400;  // the server reads all that it kept of the run

}  // namespace

int UpdateQuarantined(const QueryOptions& options, bool retry) {
  Client client(options.server);
  const absl::Status done = client.UpdateRun(
      options.run, retry ? v1::UpdateRunRequest::ACTION_RETRY : v1::UpdateRunRequest::ACTION_DROP,
      retry ? kRetrySeconds : options.timeout_seconds);
  if (!done.ok()) return LiveFailed(done);
  const char* what = retry ? "judged again" : "dropped";
  return LiveAnswer(
      options.format == "json"
          ? absl::StrCat("{\"run\":", JsonString(options.run), ",\"action\":\"", what, "\"}\n")
          : absl::StrCat("run ", Printable(options.run), ": ", what, "\n"),
      true);
}

// Returns true if the text is in the run's name, in its shown name, or in "owner:NAME".
bool Matches(const v1::RunInfo& run, const std::string& text) {
  const std::string all =
      absl::StrCat(run.run(), "\n", run.labels().name(), "\nowner:", run.owner());
  return absl::StrContains(absl::AsciiStrToLower(all), absl::AsciiStrToLower(text));
}

// Returns the runs that the options select, in their order.
std::vector<const v1::RunInfo*> SelectedRuns(const v1::ListRunsResponse& response,
                                             const QueryOptions& options) {
  std::vector<const v1::RunInfo*> runs;
  for (const v1::RunInfo& run : response.runs()) {
    if (!options.run.empty() && options.run != run.run()) continue;
    const v1::RunLabels& labels = run.labels();
    if (options.run.empty() && !options.all && (labels.archived() || labels.deleted())) continue;
    if (!options.tag.empty() &&
        std::find(labels.tags().begin(), labels.tags().end(), options.tag) == labels.tags().end())
      continue;
    if (!options.state.empty() && options.state != StateOf(run)) continue;
    if (!Matches(run, options.filter)) continue;
    runs.push_back(&run);
  }
  const auto by = [&runs](auto key) {
    std::stable_sort(runs.begin(), runs.end(),
                     [&](const v1::RunInfo* a, const v1::RunInfo* b) { return key(*a) < key(*b); });
  };
  if (options.sort == "name") by([](const v1::RunInfo& run) { return run.run(); });
  if (options.sort == "seen") by([](const v1::RunInfo& run) { return -run.last_seen_unix_ns(); });
  if (options.sort == "step") by([](const v1::RunInfo& run) { return -run.newest_step(); });
  if (options.sort == "incidents") {
    by([](const v1::RunInfo& run) { return -static_cast<int64_t>(run.open_incidents()); });
  }
  return runs;
}

int RunRuns(const QueryOptions& options) {
  Client client(options.server);
  const auto caught_up = AwaitCaughtUp(client, options.server, options.timeout_seconds);
  if (!caught_up.ok()) return LiveFailed(caught_up.status());
  const auto response = client.Runs(options.timeout_seconds);
  if (!response.ok()) return LiveFailed(response.status());
  if (!options.run.empty()) {
    const absl::Status known = CheckRunKnown(options.run, options.server, *response);
    if (!known.ok()) return LiveFailed(known);
  }
  std::string out;
  for (const v1::RunInfo* run : SelectedRuns(*response, options))
    out += options.format == "json" ? RunJson(*run) : RunText(*run);
  if (out.empty() && options.format != "json") out = "no runs\n";
  return LiveAnswer(out, *caught_up);
}

std::string LabelsText(const v1::RunLabels& labels) {
  std::string text;
  if (!labels.name().empty()) absl::StrAppend(&text, "  name: ", Printable(labels.name()), "\n");
  if (labels.tags_size() > 0) {
    text += "  tags:";
    for (const std::string& tag : labels.tags()) absl::StrAppend(&text, " ", Printable(tag));
    text += "\n";
  }
  if (!labels.note().empty()) absl::StrAppend(&text, "  note: ", Printable(labels.note()), "\n");
  if (labels.archived()) text += "  archived\n";
  if (labels.deleted())
    text += "  deleted: plumb run-edit RUN --undo restores it until the server removes its data\n";
  return text;
}

std::string LabelsJson(const v1::RunLabels& labels) {
  std::string json = "{\"tags\":[";
  for (int i = 0; i < labels.tags_size(); ++i)
    absl::StrAppend(&json, i == 0 ? "" : ",", JsonString(labels.tags(i)));
  return absl::StrCat(json, "],\"note\":", JsonString(labels.note()),
                      ",\"name\":", JsonString(labels.name()),
                      ",\"archived\":", labels.archived() ? "true" : "false",
                      ",\"deleted\":", labels.deleted() ? "true" : "false",
                      ",\"who\":", JsonString(labels.who()), "}");
}

int EditRun(const RunEditOptions& options) {
  v1::RunEdit edit = options.edit;
  if (edit.who().empty()) edit.set_who(UserName());
  Client client(options.server);
  const auto caught_up = AwaitCaughtUp(client, options.server, options.timeout_seconds);
  if (!caught_up.ok()) return LiveFailed(caught_up.status());
  const auto labels = client.EditRun(edit, options.timeout_seconds);
  if (!labels.ok()) return LiveFailed(labels.status());
  return LivePrint(options.format == "json"
                       ? absl::StrCat("{\"run\":", JsonString(edit.run()),
                                      ",\"labels\":", LabelsJson(*labels), "}\n")
                       : absl::StrCat("run ", Printable(edit.run()), ":\n",
                                      LabelsText(*labels).empty() ? "  no tags, no note\n"
                                                                  : LabelsText(*labels)));
}

}  // namespace plumbline::audit
