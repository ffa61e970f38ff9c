// A list of runs, worst first, and the view of a single run.
#include <algorithm>
#include <map>
#include <optional>
#include <string_view>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "server/web/symptoms.h"
#include "server/web/views.h"

namespace plumbline::server {
namespace {

using Change = IncidentTable::Change;

constexpr size_t kMostReasons = 100;

bool IsOpen(const Change& change) { return StandingOf(change) == std::string_view("open"); }

// Returns how bad a finding is: first if the run makes no progress, then if its results are
// unusable, then by level.
int Hurt(const v1::Finding& finding) {
  if (finding.level() != v1::LEVEL_ERROR) return finding.level() == v1::LEVEL_WARNING ? 1 : 0;
  if (finding.rule() == "performance/hang" || finding.rule() == "health/run-died") return 4;
  return finding.rule().find("non-finite") != std::string::npos ? 3 : 2;
}

struct State {
  const char* state;  // of the page's marks: error, warning, none, ok, done
  const char* word;
  int order;
};

State StateOf(const v1::RunInfo& run, const Change* worst, uint64_t judged) {
  if (run.has_quarantined()) return {"error", "Set aside", 0};
  const int hurt = worst == nullptr ? -1 : Hurt(worst->incident.finding());
  if (hurt == 4) {
    const bool died = worst->incident.finding().rule() == "health/run-died";
    return {"error", died ? "Died" : "Hung", 1};
  }
  if (hurt >= 2) return {"error", "Sick", 5 - hurt};
  if (hurt == 1) return {"warning", "Warning", 4};
  // For series, the rules report a pass only when the run ends, and before that only findings.
  if (judged == 0 && run.samples() > 0 && !Over(run)) return {"none", "Watched", 6};
  if (judged == 0) return {"none", Over(run) ? "Ended, not judged" : "Not judged", 5};
  if (Over(run)) return {"done", "Finished", 8};
  return {"ok", "Healthy", 7};
}

template <typename Map>
Json MapJson(const Map& map) {
  std::map<std::string, uint64_t> sorted(map.begin(), map.end());
  Json out = Json::object();
  for (const auto& [key, value] : sorted) out[key] = value;
  return out;
}

// Returns the seconds per step while the run was watched; 0 if unknown. Steps that arrive within a
// second were sent from a file.
double StepSeconds(const v1::RunInfo& run) {
  if (run.attempts_size() == 0) return 0;
  const double steps = static_cast<double>(run.newest_step() - run.attempts(0).step_first());
  const double ns = static_cast<double>(run.last_seen_unix_ns() - run.first_seen_unix_ns());
  return steps < 2 || ns < 1e9 ? 0 : ns / 1e9 / steps;
}

Json LabelsJson(const v1::RunLabels& labels) {
  Json tags = Json::array();
  for (const std::string& tag : labels.tags()) tags.push_back(tag);
  return {{"tags", std::move(tags)},         {"note", labels.note()},       {"name", labels.name()},
          {"archived", labels.archived()},   {"deleted", labels.deleted()}, {"who", labels.who()},
          {"time", NsText(labels.unix_ns())}};
}

// Reads texts of a list; other values are left out.
void TakeTexts(const Json& edit, const char* name,
               google::protobuf::RepeatedPtrField<std::string>* out) {
  const auto found = edit.find(name);
  if (found == edit.end() || !found->is_array()) return;
  for (const Json& one : *found) {
    if (one.is_string()) *out->Add() = one.get<std::string>();
  }
}

v1::RunEdit EditOf(const Json& json, const std::string& run) {
  v1::RunEdit edit;
  edit.set_run(run);
  TakeTexts(json, "add_tags", edit.mutable_add_tags());
  TakeTexts(json, "remove_tags", edit.mutable_remove_tags());
  const auto text = [&json](const char* name) -> std::optional<std::string> {
    const auto found = json.find(name);
    if (found == json.end() || !found->is_string()) return std::nullopt;
    return found->get<std::string>();
  };
  const auto flag = [&json](const char* name) -> std::optional<bool> {
    const auto found = json.find(name);
    if (found == json.end() || !found->is_boolean()) return std::nullopt;
    return found->get<bool>();
  };
  if (const auto who = text("who")) edit.set_who(*who);
  if (const auto note = text("note")) edit.set_note(*note);
  if (const auto name = text("name")) edit.set_name(*name);
  if (const auto archived = flag("archived")) edit.set_archived(*archived);
  if (const auto deleted = flag("deleted")) edit.set_deleted(*deleted);
  edit.set_undo(flag("undo").value_or(false));
  return edit;
}

Json RunRow(const v1::RunInfo& run, const Judge::Judged& judged, const std::vector<Change>& open) {
  Json by_level = {{"error", 0}, {"warning", 0}, {"note", 0}};
  uint64_t put_aside = 0;
  const Change* worst = nullptr;
  const Symptoms symptoms(open);
  for (const Change& change : open) {
    if (symptoms.RootOf(change) != nullptr) continue;
    if (!IsOpen(change)) {
      put_aside += change.incident.state() != v1::Incident::STATE_RESOLVED ? 1 : 0;
      continue;
    }
    by_level[analysis::LevelName(change.incident.finding().level())].get_ref<int64_t&>() += 1;
    if (worst == nullptr || WorseThan(change, *worst)) worst = &change;
  }
  const State state = StateOf(run, worst, judged.judged);
  Json row = {{"run", run.run()},
              {"state", state.state},
              {"word", state.word},
              {"order", state.order},
              {"over", Over(run)},
              {"world", std::max(run.world_size(), run.ranks_seen())},
              {"seen", run.ranks_seen()},
              {"connected", run.ranks_connected()},
              {"finished", run.ranks_finished()},
              {"attempt", run.attempt()},
              {"newest_step", run.newest_step()},
              {"closed_step", run.closed_step()},
              {"step_seconds", StepSeconds(run)},
              {"first_seen", NsText(run.first_seen_unix_ns())},
              {"last_seen", NsText(run.last_seen_unix_ns())},
              {"open", std::move(by_level)},
              {"put_aside", put_aside},
              {"judged", judged.judged},
              {"inconclusive", judged.inconclusive},
              {"evidence", run.evidence()},
              {"samples", run.samples()},
              {"lost", run.lost()},
              {"late", run.late()},
              {"series_not_judged", run.series_not_judged()},
              {"liveness", MapJson(run.liveness())}};
  row["labels"] = LabelsJson(run.labels());
  row["owner"] = run.owner();
  row["worst"] = worst == nullptr ? Json(nullptr) : symptoms.Row(*worst);
  if (run.has_quarantined()) row["quarantined"] = run.quarantined().reason();
  return row;
}

std::map<std::string, std::vector<Change>> ByRun(std::vector<Change> all) {
  std::map<std::string, std::vector<Change>> out;
  for (Change& change : all) {
    out[change.incident.finding().site().run()].push_back(std::move(change));
  }
  return out;
}

Json GapsJson(const v1::RunInfo& run) {
  Json gaps = Json::array();
  for (const v1::Gap& gap : run.gaps()) {
    gaps.push_back({{"attempt", gap.attempt()},
                    {"step_first", gap.step_first()},
                    {"step_last", gap.step_last()},
                    {"items", gap.items()},
                    {"reason", gap.reason()}});
  }
  return gaps;
}

// Counts of verdicts by rule, and the reasons of inconclusive ones.
struct Gathered {
  struct OfRule {
    uint64_t pass = 0, finding = 0, inconclusive = 0;
  };
  std::map<std::string, OfRule> rules;
  std::map<std::pair<std::string, std::string>, uint64_t> reasons;  // (rule, reason)
  Json coverage = Json::array();                                    // from meta/probe-coverage

  void Add(const v1::Verdict& verdict) {
    OfRule& rule = rules[verdict.rule()];
    if (verdict.kind() == v1::Verdict::KIND_PASS) ++rule.pass;
    if (verdict.kind() == v1::Verdict::KIND_FINDING) ++rule.finding;
    if (verdict.kind() == v1::Verdict::KIND_INCONCLUSIVE) {
      ++rule.inconclusive;
      if (reasons.size() < 10 * kMostReasons) ++reasons[{verdict.rule(), verdict.reason()}];
    }
  }
  Json ReasonsJson() const {
    std::vector<std::pair<uint64_t, const std::pair<std::string, std::string>*>> sorted;
    for (const auto& [key, count] : reasons) sorted.emplace_back(count, &key);
    std::stable_sort(sorted.begin(), sorted.end(),
                     [](const auto& a, const auto& b) { return a.first > b.first; });
    Json out = Json::array();
    for (const auto& [count, key] : sorted) {
      if (out.size() == kMostReasons) break;
      out.push_back({{"rule", key->first}, {"reason", key->second}, {"sites", count}});
    }
    return out;
  }
  Json RulesJson() const {
    Json out = Json::array();
    for (const auto& [id, counts] : rules) {
      out.push_back({{"rule", id},
                     {"pass", counts.pass},
                     {"finding", counts.finding},
                     {"inconclusive", counts.inconclusive}});
    }
    return out;
  }
};

}  // namespace

bool Over(const v1::RunInfo& run) {
  return run.ranks_finished() > 0 && run.ranks_finished() >= run.ranks_seen();
}

bool WorseThan(const IncidentTable::Change& a, const IncidentTable::Change& b) {
  const auto key = [](const Change& change) {
    return std::make_tuple(-Hurt(change.incident.finding()), -change.incident.opened_unix_ns(),
                           change.incident.id());
  };
  return key(a) < key(b);
}

std::vector<v1::RunInfo> WebViews::RunsSeen(const Lease& lease) const {
  std::vector<v1::RunInfo> runs = sources_.query.judge->Runs();
  std::erase_if(runs, [&](const auto& run) { return !lease.Over(Scope::kRead, run.run()); });
  return runs;
}

absl::Status WebViews::CheckRun(const Lease& lease, const std::string& run) const {
  if (auto s = lease.Check(Scope::kRead, run); !s.ok()) return s;
  for (const v1::RunInfo& one : sources_.query.judge->Runs()) {
    if (one.run() == run) return absl::OkStatus();
  }
  return absl::NotFoundError(
      "this server has no such run: it may be on another server, or have another name");
}

Json WebViews::Runs(const Lease& lease) const {
  auto incidents = ByRun(IncidentsSeen(lease, "", ""));
  const auto judged = sources_.query.judge->JudgedByRun();
  std::vector<Json> rows;
  for (v1::RunInfo& run : RunsSeen(lease)) {
    sources_.query.store->FillRun(&run);
    const auto found = judged.find(run.run());
    rows.push_back(
        RunRow(run, found == judged.end() ? Judge::Judged() : found->second, incidents[run.run()]));
  }
  std::stable_sort(rows.begin(), rows.end(), [](const Json& a, const Json& b) {
    const auto key = [](const Json& row) {
      const Json& worst = row.at("worst");
      const Json& since = worst.is_null() ? row.at("last_seen") : worst.at("opened");
      // Among errors, runs that are still in progress come first.
      const int order = row.at("order").get<int>();
      const bool error = row.at("state") == "error";
      return std::make_tuple(error ? 0 : order, row.at("over").get<bool>(), order,
                             -std::stoll(since.get<std::string>()));
    };
    return key(a) < key(b);
  });
  return {{"now", NsText(static_cast<int64_t>(UnixNs()))}, {"runs", std::move(rows)}};
}

absl::StatusOr<Json> WebViews::Run(const Lease& lease, const std::string& run) const {
  if (auto s = CheckRun(lease, run); !s.ok()) return s;
  std::vector<Change> incidents = IncidentsSeen(lease, run, "");
  for (v1::RunInfo& info : RunsSeen(lease)) {
    if (info.run() != run) continue;
    sources_.query.store->FillRun(&info);
    const auto judged = sources_.query.judge->JudgedByRun();
    const auto found = judged.find(run);
    Json row = RunRow(info, found == judged.end() ? Judge::Judged() : found->second, incidents);
    row["now"] = NsText(static_cast<int64_t>(UnixNs()));
    row["gaps"] = GapsJson(info);
    row["attempts"] = Json::array();
    for (const v1::AttemptInfo& one : info.attempts()) {
      row["attempts"].push_back({{"attempt", one.attempt()},
                                 {"step_first", one.step_first()},
                                 {"step_last", one.step_last()},
                                 {"superseded", one.superseded()}});
    }
    std::sort(incidents.begin(), incidents.end(), WorseThan);
    row["incidents"] = Json::array();
    const Symptoms symptoms(incidents);
    for (const Change& change : incidents) {
      if (symptoms.RootOf(change) == nullptr) row["incidents"].push_back(symptoms.Row(change));
    }
    return row;
  }
  return absl::NotFoundError("this server no longer has this run");
}

// Returns the number of series that the run has reported.
int WebViews::SeriesOf(const std::string& run) const {
  v1::ListSeriesRequest request;
  request.set_run(run);
  v1::ListSeriesResponse all;
  return sources_.query.store->ListSeries(request, &all).ok() ? all.series_size() : 0;
}

absl::StatusOr<Json> WebViews::Coverage(const Lease& lease, const std::string& run) const {
  if (auto s = CheckRun(lease, run); !s.ok()) return s;
  const v1::ListVerdictsResponse verdicts = sources_.query.judge->Verdicts(run);
  Gathered gathered;
  for (const v1::Verdict& verdict : verdicts.verdicts()) gathered.Add(verdict);
  Json out = {{"judged", verdicts.judged()},
              {"inconclusive", verdicts.inconclusive()},
              {"dropped", verdicts.dropped()},
              {"rules", gathered.RulesJson()},
              {"reasons", gathered.ReasonsJson()}};
  for (v1::RunInfo& info : RunsSeen(lease)) {
    if (info.run() != run) continue;
    sources_.query.store->FillRun(&info);
    out["series"] = SeriesOf(run);
    out["evidence"] = info.evidence();
    out["lost"] = info.lost();
    out["late"] = info.late();
    out["lost_by_cause"] = MapJson(info.lost_by_cause());
    out["late_by_cause"] = MapJson(info.late_by_cause());
    out["gaps"] = GapsJson(info);
    out["liveness"] = MapJson(info.liveness());
  }
  return out;
}

absl::StatusOr<Json> WebViews::EditRun(const Lease& lease, const std::string& run,
                                       const std::string& text) const {
  if (auto s = CheckRun(lease, run); !s.ok()) return s;
  if (!lease.Over(Scope::kAdmin, run)) {
    return absl::PermissionDeniedError(
        absl::StrCat("the access entry ", lease.Names(), " does not grant admin on this run"));
  }
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) return absl::InvalidArgumentError("expected an edit as a JSON object");
  const v1::RunEdit edit = EditOf(json, run);
  if (auto s = CheckEditOf(*sources_.query.judge, edit); !s.ok()) return s;
  if (auto s = Decide(RunEdits::UpdateOf(edit, WhoOf(lease, edit.who()))); !s.ok()) return s;
  return LabelsJson(sources_.query.judge->LabelsOf(run));
}

}  // namespace plumbline::server
