// /metrics of a real plumbd, read by Debian's promtool and Prometheus; also its rules and
// dashboard.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <regex>
#include <set>

#include "server/metrics/server_metrics.h"
#include "tests/server/alerts/support.h"
#include "tests/server/http_support.h"

namespace plumbline::test {
namespace {

using testing::HasSubstr;

constexpr char kSource[] = PLUMBLINE_SOURCE_DIR;

// Returns all matches of a pattern's first group.
std::set<std::string> Matches(const std::string& text, const std::string& pattern) {
  const std::regex regex(pattern);
  std::set<std::string> out;
  for (std::sregex_iterator it(text.begin(), text.end(), regex), end; it != end; ++it)
    out.insert((*it)[1]);
  return out;
}

// Runs a command; succeeds if it ends with status 0, otherwise reports its output.
testing::AssertionResult Succeeds(std::vector<std::string> command) {
  Process process(std::move(command));
  if (process.Wait() == 0) return testing::AssertionSuccess();
  return testing::AssertionFailure() << process.output() << process.errors();
}

// A plumbd that has seen a run with a fault, with a route and a store.
class MetricsTest : public testing::Test {
 protected:
  void SetUp() override {
    WriteSecret(folder_.File("secret"), "0123456789abcdef0123");
    std::ofstream(folder_.File("plumbd.toml"))
        << "[ingest]\nack_seconds = 0.01\n[[alerts.route]]\nname = \"hook\"\nwebhook = \""
        << receiver_.url() << "\"\nsecret_file = \"" << folder_.File("secret") << "\"\n";
    server_ = std::make_unique<Plumbd>(std::vector<std::string>{"--http", "127.0.0.1:0", "--config",
                                                                folder_.File("plumbd.toml"),
                                                                "--data", folder_.File("data")});
    ASSERT_TRUE(Eventually([&] {
      const auto at = Matches(server_->process().errors(), "http on (127.0.0.1:[0-9]+)\n");
      if (!at.empty()) http_ = *at.begin();
      return !at.empty();
    })) << server_->process().errors();
    const v1::Source source = SourceOf("quote\" back\\slash\nline");
    agent_ = std::make_unique<AgentStream>(*server_, 5, std::vector<v1::Source>{source});
    agent_->Send(LeakingStep(source, 0), 1);
    ASSERT_TRUE(agent_->Acknowledged(1));
    ASSERT_EQ(receiver_.Wait(1).size(), 1u);
    ASSERT_TRUE(Eventually([&] {
      return Scrape().find("plumbline_alerts_delivered_total{route=\"hook\",sink=\"webhook\"} 1") !=
             std::string::npos;
    }));
  }
  std::string Scrape() const { return HttpGet(http_, "/metrics"); }
  std::set<std::string> Names() const { return Matches("\n" + Scrape(), "\n([a-z_]+)[{ ]"); }

  TempFolder folder_;
  HttpReceiver receiver_;
  std::string http_;
  std::unique_ptr<Plumbd> server_;
  std::unique_ptr<AgentStream> agent_;
};

TEST(Metrics, EveryCounterHasOne) {
  const std::set<std::string> counters =
      Matches(ReadFile(std::string(kSource) + "/server/process/counters.h"),
              "std::atomic<uint64_t> ([a-z_]+)\\{0\\}");
  EXPECT_GE(counters.size(), 18u);
  std::set<std::string> shown, names;
  for (const auto& [field, name] : server::CounterMetricNames()) {
    shown.insert(field);
    names.insert(name);
  }
  EXPECT_EQ(shown, counters) << "server/metrics/counter_metrics.cc";
  EXPECT_EQ(names.size(), shown.size());
}

TEST_F(MetricsTest, StateWhatHappenedInAFormThatPromtoolAccepts) {
  const std::string text = Scrape();
  for (const char* line :
       {"plumbline_batches_total 1\n", "plumbline_evidence_total 1\n",
        "plumbline_streams_connected 1\n", "plumbline_ranks_connected 1\n",
        "plumbline_open_incidents{level=\"error\",rule=\"causality/moe-future-leak\"} 1\n",
        "plumbline_run_newest_step{run=\"quote\\\" back\\\\slash\\nline\"} 0\n",
        "plumbline_judge_lag_seconds 0\n", "plumbline_journal_lag_entries 0\n",
        "plumbline_alert_delivery_seconds_count{route=\"hook\",sink=\"webhook\"} 1\n",
        "# TYPE plumbline_batches_total counter\n", "# TYPE plumbline_store_bytes gauge\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
  std::ofstream(folder_.File("metrics")) << text;
  EXPECT_TRUE(
      Succeeds({"/bin/sh", "-c",
                std::string(PLUMB_PROMTOOL) + " check metrics < " + folder_.File("metrics")}));
}

// Values of rows are items, as in the counts of runs.
TEST(Metrics, TheServersItemsAreThoseOfItsRuns) {
  Plumbd server({"--http", "127.0.0.1:0"});
  const std::string http = HttpAddress(server);
  const v1::Source source = SourceOf("rows");
  AgentStream agent(server, 1, {source});
  v1::Batch batch = ScalarStep(source, 0);
  v1::SeriesSet& set = *batch.add_series_sets();
  set.set_id(17);
  set.add_sites()->set_op("loss");
  set.add_sites()->set_op("grad_norm");
  v1::SeriesRows& rows = *batch.add_series();
  rows.set_set(17);
  rows.set_absent("\x02");  // row 0, column 1
  for (int64_t step = 0; step < 3; ++step) {
    rows.add_source(0);
    rows.add_step(step);
    for (int column = 0; column < 2; ++column) rows.add_value(1);
  }
  agent.Send(batch, 1);
  ASSERT_TRUE(agent.Acknowledged(1));
  EXPECT_TRUE(Eventually([&] {
    const auto run = server.Run("rows");
    return run && run->evidence() == 6;
  }));
  EXPECT_THAT(HttpGet(http, "/metrics"), HasSubstr("plumbline_evidence_total 6\n"));
}

// Each cause has a series from the start on.
TEST(Metrics, LateEvidenceIsCountedByCause) {
  Plumbd server({"--http", "127.0.0.1:0", "--grace", "0.3"});
  const std::string http = HttpAddress(server);
  const v1::Source rank0 = SourceOf("late", 0, 2), rank1 = SourceOf("late", 1, 2);
  AgentStream agent0(server, 1, {rank0});
  ASSERT_TRUE(agent0.Welcomed());
  {
    AgentStream agent1(server, 2, {rank1});
    agent1.Send(ScalarStep(rank1, 0), 1);
    ASSERT_TRUE(agent1.Acknowledged(1));
  }
  for (uint64_t s = 1; s <= 4; ++s) agent0.Send(ScalarStep(rank0, static_cast<int64_t>(s) - 1), s);
  ASSERT_TRUE(Eventually([&] {  // without rank 1
    const auto run = server.Run("late");
    return run && run->closed_step() >= 3;
  })) << server.process().errors();
  const auto late = [&](const std::string& cause, int items) {
    return HttpAnswer(http, "/metrics")
               .find("plumbline_run_late_evidence_total{cause=\"" + cause + "\",run=\"late\"} " +
                     std::to_string(items) + "\n") != std::string::npos;
  };
  EXPECT_TRUE(late("late-stream-broken", 0));
  AgentStream again(server, 2, {rank1}, 2);
  again.Send(ScalarStep(rank1, 1), 2);
  ASSERT_TRUE(again.Acknowledged(2));
  EXPECT_TRUE(Eventually([&] { return late("late-stream-broken", 1); }));
  for (const char* cause : {"late", "late-rank-slow", "late-server-away", "late-rank-silent",
                            "late-never-came", "late-no-room", "late-next-attempt"}) {
    EXPECT_TRUE(late(cause, 0)) << cause;
  }
}

TEST_F(MetricsTest, RunsAreBounded) {
  for (uint64_t i = 0; i < 25; ++i) {
    const v1::Source source = SourceOf("run" + std::to_string(i));
    AgentStream agent(*server_, 100 + i, {source});
    agent.Send(ScalarStep(source, 1), 1);
    ASSERT_TRUE(agent.Acknowledged(1));
  }
  ASSERT_TRUE(
      Eventually([&] { return Scrape().find("plumbline_runs 26\n") != std::string::npos; }));
  EXPECT_EQ(Matches(Scrape(), "plumbline_run_newest_step\\{run=\"([^}]*)\"").size(),
            server::ServerMetrics::kMostRuns);
}

TEST_F(MetricsTest, EveryMetricOfTheDashboardAndOfTheRulesExists) {
  std::set<std::string> names = Names();
  // Metrics that this server does not have: expiring certificates and tokens.
  server::MetricSources sources;
  sources.certificates = sources.tokens = [] {
    return std::vector<server::MetricSources::Expiry>{{"x", 1}};
  };
  for (const auto& family : server::ServerMetrics(sources).Collect()) names.insert(family.name);
  for (const char* path :
       {"/dashboards/grafana/plumbline.json", "/dashboards/prometheus/plumbline.rules.yml"}) {
    const std::set<std::string> used =
        Matches(ReadFile(std::string(kSource) + path), "\\b((?:plumbline|process)_[a-z_]+)\\b");
    EXPECT_GE(used.size(), 10u) << path;
    for (const std::string& name : used)
      EXPECT_TRUE(names.contains(name)) << name << " in " << path;
  }
  const auto dashboard =
      nlohmann::json::parse(ReadFile(std::string(kSource) + "/dashboards/grafana/plumbline.json"));
  EXPECT_GE(dashboard["panels"].size(), 10u);
}

TEST(Metrics, PromtoolAcceptsTheRulesAndTheirTests) {
  EXPECT_TRUE(Succeeds({PLUMB_PROMTOOL, "check", "rules",
                        std::string(kSource) + "/dashboards/prometheus/plumbline.rules.yml"}));
  EXPECT_TRUE(Succeeds({PLUMB_PROMTOOL, "test", "rules",
                        std::string(kSource) + "/tests/server/plumbline.rules.test.yml"}));
}

TEST_F(MetricsTest, PrometheusScrapesItAndDoesNotAlertOnWhatARouteSends) {
  const Prometheus prometheus(http_);
  // Uses a range, because after a late scrape there may be no value at this moment.
  const auto is = [&](const char* expression, const char* value) {
    return Eventually([&] { return prometheus.Value(expression) == value; });
  };
  EXPECT_TRUE(is("last_over_time(plumbline_batches_total%5B5m%5D)", "1")) << prometheus.errors();
  EXPECT_TRUE(is("last_over_time(plumbline_open_incidents%5B5m%5D)", "1"));
  EXPECT_TRUE(is("last_over_time(plumbline_unrouted_incidents%5B5m%5D)", "0"));
  EXPECT_EQ(prometheus.Firing("PlumblineOpenErrors", "rule"), "");
}

}  // namespace
}  // namespace plumbline::test
