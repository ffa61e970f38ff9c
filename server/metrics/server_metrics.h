// plumbd's metrics at /metrics, by prometheus-cpp. Labels are bounded: rules and levels of the
// catalogue, routes of the configuration, and the names of the runs seen last. No other text from a
// trainer is a label.
#pragma once

#include <prometheus/client_metric.h>
#include <prometheus/collectable.h>
#include <prometheus/metric_family.h>

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "server/alerts/alert_center.h"
#include "server/incidents/incident_table.h"
#include "server/journal/checkpointer.h"
#include "server/journal/journal.h"
#include "server/judge/judge.h"
#include "server/process/counters.h"
#include "server/store/store.h"

namespace plumbline::server {

// The sources of each scrape. They must outlive the metrics; pointers may be null.
struct MetricSources {
  std::string version;
  const Counters* counters = nullptr;
  const Judge* judge = nullptr;
  const IncidentTable* incident_table = nullptr;
  const Journal* journal = nullptr;
  Store* store = nullptr;
  const AlertCenter* alerts = nullptr;
  std::function<size_t()> streams;        // connected now
  std::function<absl::Status()> serving;  // OK: evidence can be acknowledged
  const Checkpointer* checkpointer = nullptr;
  std::string directory, journal_directory;  // empty: nothing is stored
  // When something expires: certificates by their key in [tls], tokens by their access entry.
  struct Expiry {
    std::string of;
    int64_t unix_s;
  };
  std::function<std::vector<Expiry>()> certificates, tokens;
};

// Thread-safe.
class ServerMetrics : public prometheus::Collectable {
 public:
  static constexpr size_t kMostRuns = 20;  // with separate series: those seen last

  explicit ServerMetrics(MetricSources sources);
  std::vector<prometheus::MetricFamily> Collect() const override;
  // Returns the result of Collect in Prometheus' text format, version 0.0.4.
  std::string Text() const;

 private:
  const MetricSources sources_;
  const double started_unix_s_;
};

// Collects metric families, for the functions below.
class MetricFamilies {
 public:
  using Labels = std::vector<prometheus::ClientMetric::Label>;

  void Counter(const std::string& name, const std::string& help, double value, Labels labels = {});
  void Gauge(const std::string& name, const std::string& help, double value, Labels labels = {});
  // `cumulative`: numbers of values up to bounds[i]; `count` and `sum`: of all values.
  void Histogram(const std::string& name, const std::string& help,
                 const std::vector<double>& bounds, const std::vector<uint64_t>& cumulative,
                 uint64_t count, double sum, Labels labels);
  std::vector<prometheus::MetricFamily> Take() { return std::move(families_); }

 private:
  prometheus::ClientMetric& Add(const std::string& name, const std::string& help,
                                prometheus::MetricType type, Labels labels);
  std::vector<prometheus::MetricFamily> families_;
};

// Returns the names of the counters of counters.h ("batches", ...) and their names at /metrics.
std::vector<std::pair<std::string, std::string>> CounterMetricNames();

void AddCounters(const Counters& counters, MetricFamilies* out);
void AddProcess(MetricFamilies* out);
void AddKeeping(const MetricSources& sources, double started_unix_s, double unix_s,
                MetricFamilies* out);
void AddAlerts(const AlertCenter& alerts, double unix_s, MetricFamilies* out);

}  // namespace plumbline::server
