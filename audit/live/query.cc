// plumb query incidents, verdicts and info.
#include <unistd.h>

#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "audit/live/caught_up.h"
#include "audit/live/client.h"
#include "audit/live/known_run.h"
#include "audit/live/live.h"
#include "audit/live/output.h"
#include "audit/live/watch_printer.h"
#include "audit/render/finding_json.h"
#include "audit/render/finding_text.h"
#include "rules/words/words.h"

namespace plumbline::audit {
namespace {

bool Json(const QueryOptions& options) { return options.format == "json"; }

absl::Status RunKnown(Client& client, const QueryOptions& options) {
  return QueryIfRunKnown(client, options.run, options.server, options.timeout_seconds);
}

}  // namespace

int QueryIncidents(const QueryOptions& options) {
  Client client(options.server);
  const auto caught_up = AwaitCaughtUp(client, options.server, options.timeout_seconds);
  if (!caught_up.ok()) return LiveFailed(caught_up.status());
  v1::ListIncidentsRequest request;
  request.set_run(options.run);
  request.set_rule(options.rule);
  request.set_min_level(options.min_level);
  request.set_fingerprint(options.finding);
  const auto response = client.Incidents(request, options.timeout_seconds);
  if (!response.ok()) return LiveFailed(response.status());
  if (response->incidents().empty()) {
    if (auto s = RunKnown(client, options); !s.ok()) return LiveFailed(s);
    if (!options.finding.empty())
      return LiveFailed(absl::NotFoundError(
          absl::StrCat("no finding or incident begins with ", options.finding)));
  }
  TextStyle style = StyleFor(STDOUT_FILENO);
  style.verbose = !options.finding.empty();  // one finding is printed in full
  WatchPrinter printer(WatchPrinter::Format::kText, style);
  std::string out;
  for (int i = 0; i < response->incidents_size(); ++i) {
    const v1::Incident& incident = response->incidents(i);
    const v1::IncidentStatus status =
        i < response->status_size() ? response->status(i) : v1::IncidentStatus();
    v1::IncidentEvent event;
    event.set_kind(v1::IncidentEvent::KIND_EXISTING);
    *event.mutable_incident() = incident;
    *event.mutable_status() = status;
    out += Json(options) ? IncidentJson(incident, status) + "\n" : printer.Event(event);
  }
  out += printer.Existing();
  if (!Json(options))
    out += Plural(static_cast<uint64_t>(response->incidents_size()), "incident") + "\n";
  return LiveAnswer(out, *caught_up);
}

int QueryVerdicts(const QueryOptions& options) {
  Client client(options.server);
  const auto caught_up = AwaitCaughtUp(client, options.server, options.timeout_seconds);
  if (!caught_up.ok()) return LiveFailed(caught_up.status());
  const auto response = client.Verdicts(options.run, options.timeout_seconds);
  if (!response.ok()) return LiveFailed(response.status());
  if (response->verdicts().empty()) {
    if (auto s = RunKnown(client, options); !s.ok()) return LiveFailed(s);
  }
  std::string out;
  for (const v1::Verdict& verdict : response->verdicts()) {
    if (Json(options)) {
      out += VerdictJson(verdict) + "\n";
      continue;
    }
    out += Padded(std::string(VerdictName(verdict.kind())), 12) +
           Padded(Printable(verdict.rule()), 30) + SiteText(verdict.site());
    if (!verdict.reason().empty()) out += ": " + Printable(rules::ReasonSentence(verdict.reason()));
    out += "\n";
  }
  if (!Json(options)) {
    absl::StrAppend(&out, response->judged(), " judged, ", response->inconclusive(),
                    " inconclusive, ", response->dropped(), " dropped\n");
  }
  return LiveAnswer(out, *caught_up);
}

int QueryInfo(const QueryOptions& options) {
  Client client(options.server);
  const auto info = client.Info(options.timeout_seconds);
  if (!info.ok()) return LiveFailed(info.status());
  const bool json = Json(options);
  std::string out = json ? absl::StrCat("{\"version\":", JsonString(info->version()))
                         : absl::StrCat("plumbd ", Printable(info->version()), "\nsince      ",
                                        TimeText(info->started_unix_ns()), "\n");
  const auto number = [&](const std::string& name, uint64_t value) {
    absl::StrAppend(&out, json ? absl::StrCat(",", JsonString(name), ":", value)
                               : absl::StrCat(Padded(Printable(name), 18), value, "\n"));
  };
  number("batches", info->batches());
  number("evidence", info->evidence());
  number("streams", info->streams());
  number("duplicates", info->duplicates());
  number("out-of-order", info->out_of_order());
  number("paused-reads", info->paused_reads());
  number("stopped-ahead", info->stopped_ahead());
  number("catching-up", info->catching_up() ? 1 : 0);
  for (const auto& [cause, count] :
       std::map<std::string, uint64_t>(info->dropped().begin(), info->dropped().end())) {
    number(cause, count);
  }
  const v1::StoreInfo& store = info->store();
  number("samples", store.samples());
  number("tiles", store.tiles());
  number("store-bytes", store.bytes());
  if (!store.problem().empty()) {
    absl::StrAppend(&out, json ? absl::StrCat(",\"problem\":", JsonString(store.problem()))
                               : absl::StrCat("problem: ", Printable(store.problem()), "\n"));
  }
  return LivePrint(out + (json ? "}\n" : ""));
}

}  // namespace plumbline::audit
