// Endless names of runs, from the address of honest trainings. Tests the places that a sender can
// hold, those that remain for others, and the server's state of runs that are over.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <limits>
#include <thread>

#include "tests/server/doors/support.h"

namespace plumbline::test {
namespace {

using testing::HasSubstr;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr char kAck[] = "[ingest]\nack_seconds = 0.02\nack_batches = 1\nmax_runs = ";
constexpr uint64_t kFirstStream = 1000;

std::string NameOf(uint64_t i) { return "made-up-" + std::to_string(i); }

// A run with one step. Its agent tries again until there is a place.
std::unique_ptr<AgentStream> NewRun(const std::string& door, uint64_t stream,
                                    const std::string& run) {
  std::unique_ptr<AgentStream> agent;
  const bool welcomed = Eventually([&] {
    agent = std::make_unique<AgentStream>(ChannelTo(door, {}), stream, std::vector{SourceOf(run)});
    return agent->Welcomed();
  });
  EXPECT_TRUE(welcomed) << agent->Ended().error_message();
  EXPECT_TRUE(agent->Send(ScalarStep(SourceOf(run), 1), 1));
  EXPECT_TRUE(agent->Acknowledged(1));
  return agent;
}

enum class Sends { kHello, kValue, kNan, kAll };

// Uses one name: a hello, evidence, and the end of the connection; with kAll also the end of the
// run.
bool UseName(const std::shared_ptr<grpc::Channel>& channel, uint64_t i, Sends sends) {
  const v1::Source source = SourceOf(NameOf(i));
  AgentStream agent(channel, kFirstStream + i, {source});
  if (!agent.Welcomed()) return false;
  if (sends == Sends::kHello) return true;
  agent.Send(ScalarStep(source, 1, sends == Sends::kValue ? 1.0 : kNan), 1);
  uint64_t last = 1;
  if (sends == Sends::kAll) agent.Send(Goodbye(source, 1), last = 2);
  return agent.Acknowledged(last);
}

// Sends each name by a separate connection, or all by one. Returns the number of welcomed names.
uint64_t UseNames(const std::string& door, uint64_t first, uint64_t count, Sends sends,
                  bool connect_anew = true, int threads = 4, bool again = false) {
  std::atomic<uint64_t> next{first}, used{0};
  std::vector<std::thread> workers;
  for (int t = 0; t < threads; ++t) {
    workers.emplace_back([&] {
      auto channel = ChannelTo(door, {});
      for (uint64_t i = next++; i < first + count; i = next++) {
        if (connect_anew) channel = ChannelTo(door, {});
        bool welcomed = UseName(channel, i, sends);
        for (int t = 0; again && !welcomed && t < 1000; ++t) {
          std::this_thread::sleep_for(std::chrono::milliseconds(20));
          welcomed = UseName(channel, i, sends);
        }
        used += welcomed ? 1 : 0;
      }
    });
  }
  for (std::thread& worker : workers) worker.join();
  return used;
}

class RunPlaces : public testing::Test {
 protected:
  void Start(const std::string& max_runs, const std::string& grace = "600") {
    server_ = StartWith(folder_, kAck + max_runs + "\n",
                        {"--data", folder_.File("data"), "--grace", grace});
    ASSERT_FALSE(server_->address().empty()) << server_->process().errors();
  }
  void TearDown() override {
    if (HasFailure() && server_) ADD_FAILURE() << "plumbd's log:\n" << server_->process().errors();
  }
  void StartRelay() {
    relay_ = std::make_unique<Plumbd>(std::vector<std::string>{"--relay", server_->address()});
    ASSERT_FALSE(relay_->address().empty()) << relay_->process().errors();
  }
  std::string Door() const { return relay_ ? relay_->address() : server_->address(); }

  // An earlier run continues on its connection, and its evidence is judged.
  void ExpectUnharmed(AgentStream* agent, const std::string& run) {
    EXPECT_FALSE(agent->over());
    EXPECT_TRUE(agent->Send(ScalarStep(SourceOf(run), 2, kNan), 2));
    EXPECT_TRUE(agent->Acknowledged(2));
    EXPECT_TRUE(Eventually([&] { return !server_->Incidents(run).empty(); }));
    const auto info = server_->Run(run);
    ASSERT_TRUE(info);
    EXPECT_EQ(info->ranks_connected(), 1u);
    EXPECT_EQ(info->evidence(), 2u);
    EXPECT_EQ(info->lost(), 0u);
    EXPECT_EQ(info->late(), 0u);
  }
  void ExpectHonestRunsNextTo(Sends sends, uint64_t names) {
    const auto before = NewRun(Door(), 1, "before");
    EXPECT_GT(UseNames(Door(), 0, names, sends), 60u);
    const auto honest = NewRun(Door(), 2, "honest");
    ExpectUnharmed(honest.get(), "honest");
    ExpectUnharmed(before.get(), "before");
  }
  size_t Listed() const {
    v1::ListRunsResponse response;
    grpc::ClientContext context;
    EXPECT_TRUE(v1::Query::NewStub(server_->Channel())->ListRuns(&context, {}, &response).ok());
    return static_cast<size_t>(response.runs_size());
  }
  grpc::StatusCode SeriesOf(const std::string& run) const {
    v1::ListSeriesRequest request;
    request.set_run(run);
    v1::ListSeriesResponse response;
    grpc::ClientContext context;
    return v1::Query::NewStub(server_->Channel())
        ->ListSeries(&context, request, &response)
        .error_code();
  }

  TempFolder folder_;
  std::unique_ptr<Plumbd> server_, relay_;
};

// Their grace is ten minutes, so their names are not free soon after they are gone.
TEST_F(RunPlaces, OfRunsThatCameAndWentAreFreeAgain) {
  Start("40");
  ExpectHonestRunsNextTo(Sends::kValue, 200);
}

TEST_F(RunPlaces, OfRunsThatCameAndWentOverARelayAreFreeAgain) {
  Start("40");
  StartRelay();
  ExpectHonestRunsNextTo(Sends::kValue, 200);
}

TEST_F(RunPlaces, OfRunsThatSentNoEvidenceAreFreeAgain) {
  Start("40");
  ExpectHonestRunsNextTo(Sends::kHello, 300);
  EXPECT_TRUE(Eventually([&] { return Listed() <= 40 + 2; })) << Listed();
}

TEST_F(RunPlaces, OfRunsThatAreOverAreFreeAgain) {
  Start("40");
  ExpectHonestRunsNextTo(Sends::kAll, 200);
}

// One connection holds all names that it gets.
void ExpectPlacesNextToAHeldConnection(const std::string& door) {
  const auto channel = ChannelTo(door, {});
  std::vector<std::unique_ptr<AgentStream>> held;
  size_t welcomed = 0;
  for (uint64_t i = 0; i < 120; ++i) {
    held.push_back(
        std::make_unique<AgentStream>(channel, kFirstStream + i, std::vector{SourceOf(NameOf(i))}));
  }
  for (auto& agent : held) welcomed += agent->Welcomed() ? 1 : 0;
  EXPECT_EQ(welcomed, 80u + 8u);
  const auto first = NewRun(door, 1, "honest-1");
  const auto second = NewRun(door, 2, "honest-2");
  held.clear();
}

TEST_F(RunPlaces, AConnectionHoldsAFewOfThoseKeptForConnections) {
  Start("80");
  ExpectPlacesNextToAHeldConnection(Door());
}

TEST_F(RunPlaces, AConnectionToARelayHoldsAFewToo) {
  Start("80");
  StartRelay();
  ExpectPlacesNextToAHeldConnection(Door());
}

// One connection of a relay, or of a client that behaves like a relay, holds half of the streams.
TEST_F(RunPlaces, AConnectionLeavesStreamsToOthers) {
  server_ = StartWith(folder_, "[ingest]\nack_seconds = 0.02\nmax_streams = 40\n");
  ASSERT_FALSE(server_->address().empty()) << server_->process().errors();
  StartRelay();
  const auto channel = ChannelTo(Door(), {});
  std::vector<std::unique_ptr<AgentStream>> held;
  size_t welcomed = 0;
  for (uint64_t i = 0; i < 60; ++i) {
    held.push_back(
        std::make_unique<AgentStream>(channel, kFirstStream + i, std::vector{SourceOf(NameOf(i))}));
  }
  for (auto& agent : held) welcomed += agent->Welcomed() ? 1 : 0;
  EXPECT_EQ(welcomed, 20u);
  EXPECT_THAT(held.back()->Ended().error_message(), HasSubstr("this connection has 20 of the 40"));
  const auto honest = NewRun(server_->address(), 1, "honest");
  held.clear();
}

// Connections request endless names, one after the other, while a sender holds all places. Each
// place that becomes free goes to the connection that has waited longest.
void ExpectTurnsInOrder(const Plumbd& server, const std::string& door, uint64_t places) {
  constexpr uint64_t kWaiting = 5;
  const auto waited = [&] { return server.Info().dropped().at("waited-hellos"); };
  std::vector<std::unique_ptr<AgentStream>> held, waiting, later;
  uint64_t stream = kFirstStream;
  std::vector<std::shared_ptr<grpc::Channel>> channels;
  const auto query = [&](const std::string& run) {
    return std::make_unique<AgentStream>(channels.back(), ++stream, std::vector{SourceOf(run)});
  };
  for (uint64_t i = 0; i < places; ++i) {
    if (i % 5 == 0) channels.push_back(ChannelTo(door, {}));
    held.push_back(query(NameOf(i)));
    ASSERT_TRUE(held.back()->Welcomed()) << i;
  }
  const uint64_t before = waited();
  for (uint64_t i = 0; i < kWaiting; ++i) {
    channels.push_back(ChannelTo(door, {}));
    waiting.push_back(query("waits-" + std::to_string(i)));
    ASSERT_TRUE(Eventually([&] { return waited() == before + i + 1; })) << i;
  }
  channels.push_back(ChannelTo(door, {}));
  const auto honest = query("honest");
  ASSERT_TRUE(Eventually([&] { return waited() == before + kWaiting + 1; }));
  // A connection that requests repeatedly has only one waiting request at a time.
  for (uint64_t i = 0; i < 20; ++i) later.push_back(query("later-" + std::to_string(i)));
  for (uint64_t i = 0; i < kWaiting; ++i) {
    held.pop_back();
    ASSERT_TRUE(waiting[i]->Welcomed()) << i;
  }
  held.pop_back();
  EXPECT_TRUE(honest->Welcomed());
}

constexpr char kSlowAck[] = "[ingest]\nack_seconds = 60\nack_batches = 1\nmax_runs = 60\n";

TEST_F(RunPlaces, AreGivenInTheOrderOfRequests) {
  server_ = StartWith(folder_, kSlowAck);
  ASSERT_FALSE(server_->address().empty()) << server_->process().errors();
  ExpectTurnsInOrder(*server_, Door(), 60 + 15);
}

TEST_F(RunPlaces, OfARelayAreGivenInTheOrderOfRequests) {
  server_ = StartWith(folder_, kSlowAck);
  ASSERT_FALSE(server_->address().empty()) << server_->process().errors();
  StartRelay();
  ExpectTurnsInOrder(*server_, Door(), 60 + 15 + 8);
}

// A run with much evidence stays known; of invented runs only a limited number.
TEST_F(RunPlaces, WhatIsKeptOfRunsThatAreOverIsBounded) {
  constexpr size_t kMost = 16, kOfTheEngine = 64;
  Start(std::to_string(kMost), "0.5");
  const v1::Source source = SourceOf("training");
  {
    AgentStream training(ChannelTo(Door(), {}), 1, {source});
    for (int64_t step = 1; step <= 50; ++step)
      training.Send(ScalarStep(source, step, step == 50 ? kNan : 1.0), static_cast<uint64_t>(step));
    training.Send(Goodbye(source, 50), 51);
    ASSERT_TRUE(training.Acknowledged(51));
  }
  EXPECT_GT(UseNames(Door(), 0, 200, Sends::kAll), 100u);
  const auto bounded = [&] {
    return Listed() <= kMost + kOfTheEngine && server_->Incidents().size() <= kMost + kOfTheEngine;
  };
  EXPECT_TRUE(Eventually(bounded)) << Listed() << ", " << server_->Incidents().size();
  EXPECT_TRUE(server_->Run("training"));
  EXPECT_EQ(server_->Incidents("training").size(), 1u);
  EXPECT_EQ(SeriesOf("training"), grpc::StatusCode::OK);
  size_t stored = 0;
  for (uint64_t i = 0; i < 200; ++i) stored += SeriesOf(NameOf(i)) == grpc::StatusCode::OK ? 1 : 0;
  EXPECT_LE(stored, kMost + kOfTheEngine);
  const size_t listed = Listed();
  // This is also true after a restart. A forgotten name may be used again.
  EXPECT_EQ(server_->Stop(), 0) << server_->process().errors();
  Start(std::to_string(kMost), "0.5");
  EXPECT_TRUE(Eventually([&] { return !server_->Info().catching_up(); }));
  EXPECT_LE(Listed(), listed);
  EXPECT_TRUE(server_->Run("training"));
  EXPECT_EQ(server_->Incidents("training").size(), 1u);
  const auto again = NewRun(Door(), 2, NameOf(0));
  EXPECT_TRUE(Eventually([&] { return SeriesOf(NameOf(0)) == grpc::StatusCode::OK; }));
}

// Many runs end together while one run continues. The decisions about them share commits of the
// journal, so that the other run does not wait for a disk write per decision.
TEST_F(RunPlaces, EndsOfManyRunsShareCommits) {
  constexpr uint64_t kRuns = 400;
  server_ = StartWith(folder_, std::string(kAck) + "1000\n",
                      {"--data", folder_.File("data"), "--grace", "1", "--http", "127.0.0.1:0"});
  ASSERT_FALSE(server_->address().empty()) << server_->process().errors();
  const std::string http = HttpAddress(*server_);
  const auto counted = [&](const std::string& what) {
    const std::string answer = HttpAnswer(http, "/metrics");
    const std::string name = "\nplumbline_journal_" + what + "_total ";
    const size_t at = answer.find(name);
    return at == std::string::npos ? uint64_t{0} : std::stoull(answer.substr(at + name.size()));
  };
  const auto honest = NewRun(Door(), 1, "honest");
  std::vector<std::unique_ptr<AgentStream>> streams;
  for (uint64_t i = 0; i < kRuns; ++i) {
    const v1::Source source = SourceOf(NameOf(i));
    streams.push_back(std::make_unique<AgentStream>(ChannelTo(Door(), {}), kFirstStream + i,
                                                    std::vector{source}));
    streams.back()->Send(ScalarStep(source, 1), 1);
  }
  for (const auto& stream : streams) ASSERT_TRUE(stream->Acknowledged(1));
  const uint64_t commits = counted("commits"), entries = counted("entries");
  ASSERT_GT(commits, 0u);
  streams.clear();
  // Each run has two events: its rank is gone, and it is over.
  EXPECT_TRUE(Eventually([&] { return counted("entries") >= entries + 2 * kRuns; }));
  EXPECT_LT(counted("commits"), commits + kRuns);
  ExpectUnharmed(honest.get(), "honest");
}

int64_t ResidentMiB(const Process& process) {
  std::istringstream status(ReadFile("/proc/" + std::to_string(process.pid()) + "/status"));
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("VmRSS:", 0) == 0) return std::stoll(line.substr(6)) / 1024;
  }
  return 0;
}

// PLUMB_LONG: 200,000 names, each with a NaN and a separate connection, which is tried again until
// it is welcomed. The cost does not grow in the second half.
TEST_F(RunPlaces, TwoHundredThousandNamesCostNoMoreThanSome) {
  if (std::getenv("PLUMB_LONG") == nullptr) GTEST_SKIP() << "minutes long: PLUMB_LONG=1";
  constexpr uint64_t kNames = 200'000, kPart = 25'000;
  server_ = StartWith(folder_, std::string(kAck) + "1000\nmax_streams = 4000\n",
                      {"--data", folder_.File("data"), "--grace", "5"});
  ASSERT_FALSE(server_->address().empty()) << server_->process().errors();
  const auto before = NewRun(Door(), 1, "before");
  std::vector<int64_t> resident{ResidentMiB(server_->process())};
  for (uint64_t first = 0; first < kNames; first += kPart) {
    const uint64_t used = UseNames(Door(), first, kPart, Sends::kNan, true, 8, true);
    const auto begin = std::chrono::steady_clock::now();
    const auto honest = NewRun(Door(), 2 + first, "honest-" + std::to_string(first));
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    resident.push_back(ResidentMiB(server_->process()));
    std::printf("%llu names, %llu of the last welcomed: %lld MiB; an honest run after %.2f s\n",
                static_cast<unsigned long long>(first + kPart),
                static_cast<unsigned long long>(used), static_cast<long long>(resident.back()),
                took.count());
    std::fflush(stdout);
  }
  ExpectUnharmed(before.get(), "before");
  EXPECT_LE(resident.back(), resident[4] + 64);
}

}  // namespace
}  // namespace plumbline::test
