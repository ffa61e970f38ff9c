#include <unistd.h>

#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "audit/live/client.h"
#include "audit/live/live.h"
#include "audit/live/watch_printer.h"
#include "audit/render/finding_json.h"
#include "audit/render/finding_text.h"

namespace plumbline::audit {
namespace {

constexpr int kFailed = 2;

int Failed(const absl::Status& status) {
  std::fprintf(stderr, "plumb: %s\n", Printable(std::string(status.message())).c_str());
  return kFailed;
}

int Print(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  return std::fflush(stdout) == 0 ? 0 : kFailed;
}

std::string JsonString(std::string_view text) { return nlohmann::json(ValidUtf8(text)).dump(); }

bool Json(const QueryOptions& options) { return options.format == "json"; }

std::string Padded(std::string text, size_t width) {
  if (text.size() < width) text.resize(width, ' ');
  return text + "  ";
}

std::string StateOf(const v1::RunInfo& run) {
  if (run.ranks_seen() > 0 && run.ranks_finished() == run.ranks_seen()) return "finished";
  return run.ranks_connected() > 0 ? "running" : "gone";
}

std::string RunText(const v1::RunInfo& run) {
  const std::string name = Printable(run.run());
  const std::string world = run.world_size() > 0 ? absl::StrCat("/", run.world_size()) : "";
  return Padded(name.empty() ? "(unnamed)" : name, 24) + Padded(StateOf(run), 8) +
         Padded(absl::StrCat(run.ranks_seen(), world, " ranks"), 12) +
         Padded(absl::StrCat("step ", run.newest_step(), " (judged ", run.closed_step(), ")"), 24) +
         Padded(absl::StrCat(run.evidence(), " items, ", run.lost(), " lost"), 28) +
         Padded(Plural(run.open_incidents(), "incident"), 13) + "since " +
         TimeText(run.first_seen_unix_ns()) + "\n";
}

std::string RunJson(const v1::RunInfo& run) {
  return absl::StrCat(
      "{\"run\":", JsonString(run.run()), ",\"state\":\"", StateOf(run),
      "\",\"attempt\":", run.attempt(), ",\"world_size\":", run.world_size(),
      ",\"ranks_seen\":", run.ranks_seen(), ",\"ranks_connected\":", run.ranks_connected(),
      ",\"ranks_finished\":", run.ranks_finished(), ",\"newest_step\":", run.newest_step(),
      ",\"closed_step\":", run.closed_step(), ",\"evidence\":", run.evidence(),
      ",\"lost\":", run.lost(), ",\"open_incidents\":", run.open_incidents(), "}\n");
}

int QueryIncidents(Client& client, const QueryOptions& options) {
  v1::ListIncidentsRequest request;
  request.set_run(options.run);
  request.set_rule(options.rule);
  request.set_min_level(options.min_level);
  const auto response = client.Incidents(request, options.timeout_seconds);
  if (!response.ok()) return Failed(response.status());
  WatchPrinter printer(WatchPrinter::Format::kText, StyleFor(STDOUT_FILENO));
  std::string out;
  for (const v1::Incident& incident : response->incidents()) {
    v1::IncidentEvent event;
    event.set_kind(v1::IncidentEvent::KIND_EXISTING);
    *event.mutable_incident() = incident;
    out += Json(options) ? IncidentJson(incident) + "\n" : printer.Event(event);
  }
  if (!Json(options))
    out += Plural(static_cast<uint64_t>(response->incidents_size()), "incident") + "\n";
  return Print(out);
}

int QueryVerdicts(Client& client, const QueryOptions& options) {
  const auto response = client.Verdicts(options.run, options.timeout_seconds);
  if (!response.ok()) return Failed(response.status());
  std::string out;
  for (const v1::Verdict& verdict : response->verdicts()) {
    if (Json(options)) {
      out += VerdictJson(verdict) + "\n";
      continue;
    }
    out += Padded(std::string(VerdictName(verdict.kind())), 12) +
           Padded(Printable(verdict.rule()), 30) + SiteText(verdict.site());
    if (!verdict.reason().empty()) out += ": " + Printable(verdict.reason());
    out += "\n";
  }
  if (!Json(options)) {
    absl::StrAppend(&out, response->judged(), " judged, ", response->inconclusive(),
                    " inconclusive, ", response->dropped(), " dropped\n");
  }
  return Print(out);
}

int QueryInfo(Client& client, const QueryOptions& options) {
  const auto info = client.Info(options.timeout_seconds);
  if (!info.ok()) return Failed(info.status());
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
  for (const auto& [cause, count] :
       std::map<std::string, uint64_t>(info->dropped().begin(), info->dropped().end())) {
    number(cause, count);
  }
  return Print(out + (json ? "}\n" : ""));
}

}  // namespace

int RunRuns(const QueryOptions& options) {
  Client client(options.server);
  const auto response = client.Runs(options.timeout_seconds);
  if (!response.ok()) return Failed(response.status());
  std::string out;
  for (const v1::RunInfo& run : response->runs()) {
    if (!options.run.empty() && options.run != run.run()) continue;
    out += Json(options) ? RunJson(run) : RunText(run);
  }
  if (out.empty() && !Json(options)) out = "no runs\n";
  return Print(out);
}

int RunQuery(const QueryOptions& options) {
  Client client(options.server);
  if (options.what == "verdicts") return QueryVerdicts(client, options);
  if (options.what == "info") return QueryInfo(client, options);
  return QueryIncidents(client, options);
}

}  // namespace plumbline::audit
