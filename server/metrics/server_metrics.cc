#include "server/metrics/server_metrics.h"

#include <prometheus/text_serializer.h>

#include <algorithm>
#include <limits>
#include <sstream>
#include <utility>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "analysis/frame/frame.h"
#include "base/clock.h"
#include "base/printable.h"
#include "rules/engine/rank_progress.h"

namespace plumbline::server {
namespace {

double UnixSeconds() { return static_cast<double>(UnixNs()) / 1e9; }
double Seconds(int64_t ns) { return static_cast<double>(ns) / 1e9; }

void AddJudge(const MetricSources& s, double now, MetricFamilies* out) {
  out->Gauge("plumbline_judge_queue_items", "Items that wait for the rules.",
             static_cast<double>(s.judge->queued()));
  out->Gauge("plumbline_judge_queue_bytes",
             "Bytes of batches that are not judged yet, including those in the journal.",
             static_cast<double>(s.judge->queued_bytes()));
  out->Gauge("plumbline_open_step_bytes", "Memory of open steps (they wait for ranks) of all runs.",
             static_cast<double>(s.judge->open_step_bytes()));
  out->Gauge("plumbline_quarantined_runs",
             "Runs in quarantine: stored but not judged until an operator decides (plumb runs).",
             static_cast<double>(s.judge->quarantine().waiting()));
  out->Counter("plumbline_quarantined_evidence_total",
               "Items of runs in quarantine: stored, not judged.",
               static_cast<double>(s.judge->quarantine().unjudged()));
  out->Gauge("plumbline_open_step_limit_bytes",
             "Limit of the memory of open steps (limits.open_bytes).",
             static_cast<double>(s.judge->open_step_limit()));
  out->Counter(
      "plumbline_made_room_total",
      "Times that the oldest steps of a run closed because of the memory limit for all runs.",
      static_cast<double>(s.judge->made_room()));
  out->Gauge("plumbline_rule_memory_bytes",
             "Size of the state of the rules for all runs, as written in a checkpoint.",
             static_cast<double>(s.judge->rule_bytes()));
  out->Gauge("plumbline_rules_set_aside",
             "Rules that stopped judging a run because their state was too large.",
             static_cast<double>(s.judge->rules_set_aside()));
  out->Gauge(
      "plumbline_series_not_judged",
      "Series that are stored but not judged, because their run has too many series of their role.",
      static_cast<double>(s.judge->series_left_out()));
  out->Counter("plumbline_report_left_out_total",
               "Findings and lines that did not fit into the report of a run.",
               static_cast<double>(s.judge->left_out()));
  const int64_t oldest = s.judge->oldest_queued_unix_ns();
  out->Gauge("plumbline_judge_lag_seconds",
             "Age of the oldest batch that is not judged yet; 0: all are judged.",
             oldest == 0 ? 0 : std::max(0.0, now - Seconds(oldest)));
  out->Gauge("plumbline_judge_catching_up",
             "1 while the journal of an earlier process is judged again.",
             s.judge->catching_up() ? 1 : 0);
  if (s.journal == nullptr) return;
  const uint64_t committed = s.journal->committed();
  const uint64_t judged = s.judge->judged_entry();
  out->Gauge("plumbline_journal_lag_entries", "Entries that are committed but not judged yet.",
             committed > judged ? static_cast<double>(committed - judged) : 0);
}

void AddIncidents(const IncidentTable& incident_table, const AlertCenter* alerts,
                  MetricFamilies* out) {
  auto unrouted = incident_table.OpenByRule(
      [&](const v1::Finding& f) { return alerts == nullptr || !alerts->Routed(f); });
  for (const auto& [key, count] : incident_table.OpenByRule()) {
    const MetricFamilies::Labels labels = {{"level", analysis::LevelName(key.second)},
                                           {"rule", key.first}};
    out->Gauge(
        "plumbline_open_incidents",
        "Incidents neither resolved nor suppressed, acknowledged and silenced ones included.",
        static_cast<double>(count), labels);
    out->Gauge("plumbline_unrouted_incidents", "Open incidents that no [[alerts.route]] matches.",
               static_cast<double>(unrouted[key]), labels);
  }
}

// Adds all causes from the start on, because a counter without a first value has no increase.
void AddLate(const v1::RunInfo& run, MetricFamilies* out) {
  using rules::LateCause;
  constexpr LateCause kCauses[] = {LateCause::kRankSlow,   LateCause::kStreamBroken,
                                   LateCause::kServerAway, LateCause::kRankSilent,
                                   LateCause::kNeverCame,  LateCause::kNoRoom,
                                   LateCause::kNextAttempt};
  uint64_t other = run.late();
  const auto add = [&](const char* cause, uint64_t items) {
    out->Counter(
        "plumbline_run_late_evidence_total",
        "Evidence items that arrived after their step was closed, by the reason of the close.",
        static_cast<double>(items), {{"cause", cause}, {"run", run.run()}});
  };
  for (const LateCause cause : kCauses) {
    const auto found = run.late_by_cause().find(rules::LossCauseOf(cause));
    const uint64_t items = found == run.late_by_cause().end() ? 0 : found->second;
    other -= std::min(other, items);
    add(rules::LossCauseOf(cause), items);
  }
  add(rules::LossCauseOf(LateCause::kUnknown), other);
}

// Only the runs seen last have separate series, because runs come and go and trainers choose their
// names.
void AddRuns(const Judge& judge, MetricFamilies* out) {
  std::vector<v1::RunInfo> runs = judge.Runs();
  uint64_t connected = 0;
  for (const v1::RunInfo& run : runs) connected += run.ranks_connected();
  out->Gauge("plumbline_runs", "Runs known.", static_cast<double>(runs.size()));
  out->Gauge("plumbline_ranks_connected", "Ranks of all runs whose stream is open.",
             static_cast<double>(connected));
  std::sort(runs.begin(), runs.end(), [](const v1::RunInfo& a, const v1::RunInfo& b) {
    return a.last_seen_unix_ns() > b.last_seen_unix_ns();
  });
  runs.resize(std::min(runs.size(), ServerMetrics::kMostRuns));
  for (const v1::RunInfo& run : runs) {
    const MetricFamilies::Labels labels = {{"run", run.run()}};
    out->Gauge("plumbline_run_newest_step", "Newest step reported by a rank.",
               static_cast<double>(run.newest_step()), labels);
    out->Gauge("plumbline_run_closed_step", "Newest step judged.",
               static_cast<double>(run.closed_step()), labels);
    out->Gauge("plumbline_run_last_seen_timestamp_seconds", "Time of the last evidence.",
               Seconds(run.last_seen_unix_ns()), labels);
    out->Gauge("plumbline_run_ranks_connected", "Ranks whose stream is open.",
               static_cast<double>(run.ranks_connected()), labels);
    out->Gauge("plumbline_run_world_size", "World size that the run declared.",
               static_cast<double>(run.world_size()), labels);
    out->Gauge("plumbline_run_open_incidents", "Incidents neither resolved nor suppressed.",
               static_cast<double>(run.open_incidents()), labels);
    out->Counter("plumbline_run_lost_evidence_total", "Evidence items reported as lost.",
                 static_cast<double>(run.lost()), labels);
    AddLate(run, out);
  }
}

void AddStore(Store* store, MetricFamilies* out) {
  const v1::StoreInfo info = store->Info();
  out->Gauge("plumbline_store_bytes", "Bytes of the store on disk.",
             static_cast<double>(info.bytes()));
  out->Counter("plumbline_store_samples_total", "Values written to the store.",
               static_cast<double>(info.samples()));
  out->Counter("plumbline_store_tiles_total", "Tiles sealed.", static_cast<double>(info.tiles()));
  out->Counter("plumbline_store_dropped_tiles_total", "Tiles removed by retention.",
               static_cast<double>(info.dropped_tiles()));
  out->Gauge("plumbline_store_longest_seal_wait_seconds",
             "Longest time that the rules waited for the store.",
             Seconds(info.longest_seal_wait_ns()));
  out->Gauge("plumbline_store_has_problem", "1: the store reports a problem.",
             info.problem().empty() ? 0 : 1);
}

// The text format escapes a newline; Printable would make two characters of it.
std::string SafeLabel(const std::string& value) {
  return absl::StrJoin(absl::StrSplit(value, '\n'), "\n", [](std::string* out, auto line) {
    *out += Printable({line.data(), line.size()});
  });
}

}  // namespace

prometheus::ClientMetric& MetricFamilies::Add(const std::string& name, const std::string& help,
                                              prometheus::MetricType type, Labels labels) {
  auto family = std::find_if(families_.begin(), families_.end(),
                             [&](const prometheus::MetricFamily& f) { return f.name == name; });
  if (family == families_.end()) family = families_.insert(family, {name, help, type, {}});
  prometheus::ClientMetric& metric = family->metric.emplace_back();
  // Names came from trainers, so control characters must not reach a terminal. Characters that the
  // text format escapes stay unchanged here.
  for (prometheus::ClientMetric::Label& label : labels) label.value = SafeLabel(label.value);
  metric.label = std::move(labels);
  return metric;
}

void MetricFamilies::Counter(const std::string& name, const std::string& help, double value,
                             Labels labels) {
  Add(name, help, prometheus::MetricType::Counter, std::move(labels)).counter.value = value;
}

void MetricFamilies::Gauge(const std::string& name, const std::string& help, double value,
                           Labels labels) {
  Add(name, help, prometheus::MetricType::Gauge, std::move(labels)).gauge.value = value;
}

void MetricFamilies::Histogram(const std::string& name, const std::string& help,
                               const std::vector<double>& bounds,
                               const std::vector<uint64_t>& cumulative, uint64_t count, double sum,
                               Labels labels) {
  prometheus::ClientMetric& metric =
      Add(name, help, prometheus::MetricType::Histogram, std::move(labels));
  for (size_t i = 0; i < bounds.size(); ++i) {
    // The buckets are counted one after another. A scrape in between must not see a larger count in
    // a lower bucket than in a higher one.
    metric.histogram.bucket.push_back({std::min(cumulative[i], count), bounds[i]});
  }
  metric.histogram.bucket.push_back({count, std::numeric_limits<double>::infinity()});
  metric.histogram.sample_count = count;
  metric.histogram.sample_sum = sum;
}

ServerMetrics::ServerMetrics(MetricSources sources)
    : sources_(std::move(sources)), started_unix_s_(UnixSeconds()) {}

std::vector<prometheus::MetricFamily> ServerMetrics::Collect() const {
  MetricFamilies out;
  const double now = UnixSeconds();
  out.Gauge("plumbline_build_info", "The version of this server.", 1,
            {{"version", sources_.version}});
  out.Gauge("plumbline_start_time_seconds", "Start time of the service of this process.",
            started_unix_s_);
  if (sources_.counters != nullptr) AddCounters(*sources_.counters, &out);
  if (sources_.streams)
    out.Gauge("plumbline_streams_connected", "Open calls of agents and relays.",
              static_cast<double>(sources_.streams()));
  if (sources_.judge != nullptr) {
    AddJudge(sources_, now, &out);
    AddRuns(*sources_.judge, &out);
  }
  if (sources_.incident_table != nullptr)
    AddIncidents(*sources_.incident_table, sources_.alerts, &out);
  if (sources_.store != nullptr) AddStore(sources_.store, &out);
  if (sources_.alerts != nullptr) AddAlerts(*sources_.alerts, now, &out);
  AddKeeping(sources_, started_unix_s_, now, &out);
  AddProcess(&out);
  return out.Take();
}

std::string ServerMetrics::Text() const {
  std::ostringstream out;
  prometheus::TextSerializer().Serialize(out, Collect());
  return out.str();
}

}  // namespace plumbline::server
