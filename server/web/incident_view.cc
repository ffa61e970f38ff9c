// Incidents: a list, a single incident with all details, and changes of their state by people.
#include <algorithm>
#include <chrono>
#include <fstream>
#include <future>
#include <memory>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "rules/words/in_short.h"
#include "rules/words/words.h"
#include "server/capsules/capsule_archive.h"
#include "server/web/lost_time.h"
#include "server/web/symptoms.h"
#include "server/web/views.h"

namespace plumbline::server {
namespace {

constexpr std::chrono::seconds kDecided{10};
constexpr size_t kMostWords = 4096;  // of a reason
constexpr size_t kMostIncidents = 1000;

const char* ChangeWord(v1::IncidentRevision::Change change) {
  switch (change) {
    case v1::IncidentRevision::CHANGE_OPENED:
      return "opened";
    case v1::IncidentRevision::CHANGE_STRONGER:
      return "became stronger";
    case v1::IncidentRevision::CHANGE_ACKNOWLEDGED:
      return "acknowledged";
    case v1::IncidentRevision::CHANGE_SILENCED:
      return "silenced";
    case v1::IncidentRevision::CHANGE_REOPENED:
      return "opened again";
    case v1::IncidentRevision::CHANGE_RESOLVED:
      return "resolved";
    case v1::IncidentRevision::CHANGE_RETURNED:
      return "found again";
    case v1::IncidentRevision::CHANGE_MERGED:
      return "merged into another";
    case v1::IncidentRevision::CHANGE_STOPPED:
      return "the training was ordered to end";
    default:
      return "changed";
  }
}

const char* CapsuleWord(v1::CapsuleInfo::State state) {
  switch (state) {
    case v1::CapsuleInfo::STATE_WAITING:
      return "waiting";
    case v1::CapsuleInfo::STATE_TAKING:
      return "taking";
    case v1::CapsuleInfo::STATE_COMPLETE:
      return "complete";
    case v1::CapsuleInfo::STATE_PARTIAL:
      return "partial";
    default:
      return "failed";
  }
}

bool InState(const IncidentTable::Change& change, const std::string& state) {
  return state.empty() || state == "all" || state == StandingOf(change);
}

// Parses the page's request. Returns InvalidArgument if it is malformed.
absl::StatusOr<v1::IncidentUpdate> UpdateOf(const Json& requested) {
  if (!requested.is_object())
    return absl::InvalidArgumentError("expected an update as a JSON object");
  const auto text = [&](const char* key) {
    const auto found = requested.find(key);
    return found != requested.end() && found->is_string() ? found->get<std::string>()
                                                          : std::string();
  };
  v1::IncidentUpdate update;
  const std::string state = text("state");
  if (state == "acknowledged") update.set_action(v1::IncidentUpdate::ACTION_ACKNOWLEDGE);
  if (state == "silenced") update.set_action(v1::IncidentUpdate::ACTION_SILENCE);
  if (state == "open") update.set_action(v1::IncidentUpdate::ACTION_REOPEN);
  update.set_reason(std::string(absl::StripAsciiWhitespace(text("reason"))));
  update.set_who(text("who").empty() ? "the page" : text("who"));
  if (update.reason().size() + update.who().size() > kMostWords) {
    return absl::InvalidArgumentError("a reason and a name have at most 4,096 bytes");
  }
  const auto step = requested.find("until_step");
  if (step != requested.end()) {
    const bool fits = step->is_number_unsigned() && step->get<uint64_t>() <= INT64_MAX;
    if (!fits) return absl::InvalidArgumentError("until_step: expected a step, 0 or more");
    update.set_until_step(step->get<int64_t>());
  }
  if (const std::string until = text("until_time"); !until.empty()) {
    int64_t time = 0;
    if (!absl::SimpleAtoi(until, &time) || time <= static_cast<int64_t>(UnixNs()))
      return absl::InvalidArgumentError("until_time: expected a time in the future");
    update.set_until_unix_ns(time);
  }
  if (auto s = CheckUpdate(update); !s.ok()) return s;
  return update;
}

// Adds the other incidents of the run: the root of this incident, its symptoms, and all others.
void AddOthers(const std::vector<IncidentTable::Change>& of_run, const std::string& fingerprint,
               Json* page) {
  Json& out = *page;
  out["also"] = Json::array();
  out["symptoms"] = Json::array();
  const Symptoms symptoms(of_run);
  for (const auto& other : of_run) {
    const IncidentTable::Change* const root = symptoms.RootOf(other);
    if (other.status.fingerprint() == fingerprint) {
      if (root != nullptr) out["symptom_of"] = IncidentRow(*root);
      for (const auto* symptom : symptoms.Of(other))
        out["symptoms"].push_back(IncidentRow(*symptom));
      continue;
    }
    if (root != nullptr || out["also"].size() == 12) continue;
    if (other.incident.state() == v1::Incident::STATE_RESOLVED) continue;
    out["also"].push_back({{"fingerprint", other.status.fingerprint()},
                           {"rule", other.incident.finding().rule()},
                           {"level", analysis::LevelName(other.incident.finding().level())},
                           {"title_short", rules::ShortOf(other.incident.finding()).title}});
  }
}

}  // namespace

std::vector<IncidentTable::Change> WebViews::IncidentsSeen(const Lease& lease,
                                                           const std::string& run,
                                                           const std::string& rule) const {
  IncidentFilter filter;
  filter.run = run;
  filter.rule_glob = rule;
  filter.visible = [&lease, deleted = sources_.query.judge->DeletedRuns()](const std::string& of) {
    return lease.Over(Scope::kRead, of) && !deleted.contains(of);
  };
  return sources_.query.incident_table->List(filter);
}

Json WebViews::Incidents(const Lease& lease, const Params& params) const {
  auto all = IncidentsSeen(lease, ParamOf(params, "run"), ParamOf(params, "rule"));
  Json counts = {
      {"open", 0}, {"acknowledged", 0}, {"silenced", 0}, {"suppressed", 0}, {"resolved", 0}};
  std::sort(all.begin(), all.end(), WorseThan);
  const Symptoms symptoms(all);
  Json rows = Json::array();
  size_t requested = 0;
  for (const auto& change : all) {
    if (symptoms.RootOf(change) != nullptr) continue;
    counts[StandingOf(change)].get_ref<int64_t&>() += 1;
    if (!InState(change, ParamOf(params, "state"))) continue;
    if (requested++ < kMostIncidents) rows.push_back(symptoms.Row(change));
  }
  return {{"now", NsText(static_cast<int64_t>(UnixNs()))},
          {"counts", std::move(counts)},
          {"left_out", requested - rows.size()},
          {"incidents", std::move(rows)}};
}

// Incidents of runs that the caller may not read are treated as missing, because another answer
// would reveal that they exist.
absl::StatusOr<std::string> WebViews::Resolve(const Lease& lease, const std::string& name) const {
  return sources_.query.incident_table->Resolve(
      name, [&lease](const std::string& run) { return lease.Over(Scope::kRead, run); });
}

Json WebViews::HistoryJson(const std::string& fingerprint) const {
  Json out = Json::array();
  const auto history = sources_.query.store->History(fingerprint);
  if (history.ok()) {
    for (const v1::IncidentRevision& one : *history) {
      out.push_back({{"change", ChangeWord(one.change())},
                     {"level", analysis::LevelName(one.level())},
                     {"state", rules::StateName(one.state())},
                     {"step", one.step()},
                     {"time", NsText(one.unix_ns())},
                     {"who", one.who()},
                     {"reason", one.reason()}});
    }
  }
  if (sources_.query.alerts == nullptr) return out;
  for (const v1::AlertDelivery& alert : sources_.query.alerts(fingerprint)) {
    const int64_t time = alert.done_unix_ns() > 0 ? alert.done_unix_ns() : alert.decided_unix_ns();
    out.push_back({{"change", absl::StrCat("alert ", alert.state(), ": ", alert.route())},
                   {"level", "alert"},
                   {"state", ""},
                   {"step", nullptr},
                   {"time", NsText(time)},
                   {"who", ""},
                   {"reason", alert.problem()}});
  }
  std::stable_sort(out.begin(), out.end(), [](const Json& a, const Json& b) {
    return std::stoll(a["time"].get<std::string>()) < std::stoll(b["time"].get<std::string>());
  });
  return out;
}

Json WebViews::CapsuleJson(const std::string& fingerprint) const {
  const CapsuleKeeper* const keeper = sources_.query.capsules;
  if (keeper == nullptr || !keeper->keeps()) {
    return {{"state", "none"},
            {"why", "this server stores nothing on disk: start it with --data for capsules"}};
  }
  const auto list = keeper->List("", fingerprint);
  if (list.empty()) {
    return {{"state", "none"},
            {"why", "no capsule was requested; plumb capsule requests one from running ranks"}};
  }
  const v1::CapsuleInfo& info = list.back();
  uint64_t bytes = 0;
  for (const v1::CapsuleRank& rank : info.ranks()) bytes += rank.bytes();
  return {{"state", CapsuleWord(info.state())},
          {"why", info.error()},
          {"bytes", bytes},
          {"step", info.step()},
          {"ranks", info.ranks_size()}};
}

absl::StatusOr<std::pair<std::string, std::string>> WebViews::Capsule(
    const Lease& lease, const std::string& name) const {
  const auto fingerprint = Resolve(lease, name);
  if (!fingerprint.ok()) return fingerprint.status();
  const auto change = sources_.query.incident_table->Get(*fingerprint);
  if (!change.ok()) return change.status();
  const CapsuleKeeper* const keeper = sources_.query.capsules;
  const auto list = keeper == nullptr ? std::vector<v1::CapsuleInfo>()
                                      : keeper->List("", change->incident.finding().fingerprint());
  if (list.empty()) return absl::NotFoundError("the server has no capsule of this incident");
  const v1::CapsuleInfo& info = list.back();
  uint64_t bytes = 0;
  for (const v1::CapsuleRank& rank : info.ranks()) bytes += rank.total();
  const std::string folder = absl::StrCat("capsule-", fingerprint->substr(0, 12));
  if (bytes > kMostArchiveBytes) {
    return absl::FailedPreconditionError(absl::StrCat(
        "it has ", bytes >> 20, " MB, more than the limit of an answer: use plumb capsule ",
        fingerprint->substr(0, 12), " --server ", sources_.grpc_address, " --output ", folder));
  }
  std::vector<std::pair<int, std::string>> held;
  for (int i = 0; i < info.ranks_size(); ++i) {
    if (info.ranks(i).state() != v1::CapsuleRank::STATE_HELD) continue;
    std::ifstream file(keeper->PathOf(info, i), std::ios::binary);
    std::string data(info.ranks(i).total(), '\0');
    if (!file.read(data.data(), static_cast<std::streamsize>(data.size())))
      return absl::UnavailableError("the capsule was removed or replaced in the meantime");
    held.emplace_back(i, std::move(data));
  }
  if (held.empty()) return absl::NotFoundError("no part of it has arrived yet");
  auto archive = CapsuleArchive(folder, info, held);
  if (!archive.ok()) return archive.status();
  return std::make_pair(folder + ".tar", *std::move(archive));
}

bool WebViews::HasGpus(const std::string& run) const {
  v1::ListSeriesRequest request;
  request.set_run(run);
  request.set_series("gpu.*");
  v1::ListSeriesResponse response;
  return sources_.query.store->ListSeries(request, &response).ok() && response.series_size() > 0;
}

Json WebViews::LostJson(const IncidentTable::Change& change,
                        const std::vector<IncidentTable::Change>& of_run,
                        const v1::RunInfo* run) const {
  RunTimes times{.info = run, .now_unix_ns = static_cast<int64_t>(UnixNs())};
  for (int i = 0; run != nullptr && i < run->attempts_size(); ++i) {
    const Liveness::Pace pace =
        sources_.query.judge->PaceOf(run->run(), run->attempts(i).attempt());
    times.step_seconds.push_back(pace.step_seconds);
    times.longest_pause = pace.longest_pause;
  }
  const auto lost = LostBy(change, Symptoms(of_run).Of(change), times);
  if (!lost) return nullptr;
  return {{"rank_seconds", rules::NumberJson(lost->rank_seconds)},
          {"on_gpus", lost->on_gpus || (run != nullptr && HasGpus(run->run()))},
          {"of", lost->of}};
}

absl::StatusOr<Json> WebViews::Incident(const Lease& lease, const std::string& name) const {
  const auto fingerprint = Resolve(lease, name);
  if (!fingerprint.ok()) return fingerprint.status();
  const auto change = sources_.query.incident_table->Get(*fingerprint);
  if (!change.ok()) return change.status();
  const std::string& run = change->incident.finding().site().run();
  Json out = IncidentRow(*change);
  out["now"] = NsText(static_cast<int64_t>(UnixNs()));
  out["may_change"] = lease.Over(Scope::kAdmin, run);
  out["access"] = lease.Names();
  out["finding"] = rules::PageFinding(change->incident.finding());
  out["site_rows"] = SitesJson(change->status);
  out["history"] = HistoryJson(*fingerprint);
  out["capsule"] = CapsuleJson(change->incident.finding().fingerprint());
  const std::vector<v1::RunInfo> seen = RunsSeen(lease);
  const auto known = std::find_if(seen.begin(), seen.end(),
                                  [&](const v1::RunInfo& info) { return info.run() == run; });
  const std::vector<IncidentTable::Change> of_run = IncidentsSeen(lease, run, "");
  out["lost"] = LostJson(*change, of_run, known == seen.end() ? nullptr : &*known);
  if (known != seen.end()) {
    const v1::RunInfo& info = *known;
    out["run_step"] = info.newest_step();
    out["run_world"] = std::max(info.world_size(), info.ranks_seen());
    out["run_connected"] = info.ranks_connected();
    out["run_over"] = Over(info);
  }
  AddOthers(of_run, *fingerprint, &out);
  return out;
}

absl::Status WebViews::CheckStep(const v1::IncidentUpdate& update, const std::string& run) const {
  if (update.action() != v1::IncidentUpdate::ACTION_SILENCE || !update.has_until_step())
    return absl::OkStatus();
  for (const v1::RunInfo& info : sources_.query.judge->Runs()) {
    if (info.run() != run) continue;
    if (Over(info)) {
      return absl::InvalidArgumentError(
          "until_step: the run is over and has no further steps: silence it until a time");
    }
    if (update.until_step() <= info.newest_step()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "until_step: expected a future step; the run is at step ", info.newest_step()));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Json> WebViews::SetState(const Lease& lease, const std::string& name,
                                        const std::string& text) const {
  const Json requested = Json::parse(text, nullptr, false);
  auto update = UpdateOf(requested);
  if (!update.ok()) return update.status();
  const auto fingerprint = Resolve(lease, name);
  if (!fingerprint.ok()) return fingerprint.status();
  const auto change = sources_.query.incident_table->Get(*fingerprint);
  if (!change.ok()) return change.status();
  if (!lease.Over(Scope::kAdmin, change->incident.finding().site().run())) {
    return absl::PermissionDeniedError(absl::StrCat(
        "the access entry ", lease.Names(),
        " does not grant admin on this run: you can read, but not acknowledge or silence"));
  }
  if (auto s = CheckStep(*update, change->incident.finding().site().run()); !s.ok()) return s;
  // If an incident is found again, its revision changes. So the state, which people decide, is
  // compared instead.
  const auto seen = requested.find("seen");
  if (seen != requested.end() && seen->is_string() &&
      seen->get<std::string>() != rules::StateName(change->incident.state())) {
    return absl::AbortedError(absl::StrCat(
        "it is ", rules::StateName(change->incident.state()), " now",
        change->status.who().empty() ? "" : absl::StrCat(", by ", change->status.who()),
        ": reload it"));
  }
  update->set_fingerprint(*fingerprint);
  if (const std::string entry = lease.Names(); !entry.empty()) {
    update->set_who(absl::StrCat(update->who(), " (", entry, ")"));
  }
  // The decision of a person about an incident also applies to its symptoms.
  const auto of_run = IncidentsSeen(lease, change->incident.finding().site().run(), "");
  const Symptoms symptoms(of_run);
  std::vector<v1::IncidentUpdate> updates = {*update};
  for (const auto* symptom : symptoms.Of(*change)) {
    updates.push_back(*update);
    updates.back().set_fingerprint(symptom->status.fingerprint());
  }
  for (const v1::IncidentUpdate& one : updates) {
    if (auto s = Decide(one); !s.ok()) return s;
  }
  return Incident(lease, *fingerprint);
}

// Applies an update at its place among the batches.
absl::Status WebViews::Decide(const v1::IncidentUpdate& update) const {
  if (sources_.query.update == nullptr) return sources_.query.incident_table->Apply(update);
  auto done = std::make_shared<std::promise<absl::Status>>();
  std::future<absl::Status> decided = done->get_future();
  sources_.query.update(update, [done](const absl::Status& s) { done->set_value(s); });
  if (decided.wait_for(kDecided) != std::future_status::ready) {
    return absl::DeadlineExceededError(
        "the server has not applied it yet: it is stored, and will be applied");
  }
  return decided.get();
}

}  // namespace plumbline::server
