// Watches and queries.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <csignal>
#include <filesystem>

#include "audit/live/client.h"
#include "audit/live/doctor_batch.h"
#include "tests/server/support.h"

namespace plumbline::test {
namespace {

using testing::HasSubstr;

// Collects events on a separate thread.
class Watcher {
 public:
  Watcher(const Plumbd& server, v1::WatchIncidentsRequest request) : client_(server.address()) {
    thread_ = std::thread([this, request] {
      status_ = client_.Watch(request, [this](const v1::IncidentEvent& event) {
        std::lock_guard lock(mutex_);
        events_.push_back(event);
        return true;
      });
      ended_ = true;
    });
  }
  ~Watcher() {
    client_.Cancel();
    thread_.join();
  }
  std::vector<v1::IncidentEvent> events() {
    std::lock_guard lock(mutex_);
    return events_;
  }
  bool CaughtUp() {
    return Eventually([this] {
      for (const auto& e : events()) {
        if (e.kind() == v1::IncidentEvent::KIND_CAUGHT_UP) return true;
      }
      return false;
    });
  }
  bool ended() const { return ended_; }

 private:
  audit::Client client_;
  std::mutex mutex_;
  std::vector<v1::IncidentEvent> events_;
  std::atomic<bool> ended_{false};
  absl::Status status_;
  std::thread thread_;
};

v1::WatchIncidentsRequest Request(const std::string& run = "", bool skip_existing = false,
                                  v1::Level level = v1::LEVEL_UNSPECIFIED) {
  v1::WatchIncidentsRequest request;
  request.set_run(run);
  request.set_skip_existing(skip_existing);
  request.set_min_level(level);
  return request;
}

class QueryTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_FALSE(server_.address().empty()) << server_.process().errors(); }
  Plumbd server_;
};

TEST_F(QueryTest, AWatcherSeesWhatExistsThenWhatHappens) {
  const v1::Source source = SourceOf("watched");
  AgentStream agent(server_, 41, {source});
  agent.Send(LeakingStep(source, 0), 1);
  ASSERT_TRUE(Eventually([&] { return !server_.Incidents("watched").empty(); }));

  Watcher watcher(server_, Request("watched"));
  ASSERT_TRUE(watcher.CaughtUp());
  auto events = watcher.events();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].kind(), v1::IncidentEvent::KIND_EXISTING);
  EXPECT_EQ(events[0].incident().finding().rule(), audit::kDoctorRule);
  EXPECT_EQ(events[1].kind(), v1::IncidentEvent::KIND_CAUGHT_UP);

  agent.Send(LeakingStep(source, 1, "layers.9"), 2);
  ASSERT_TRUE(Eventually([&] { return watcher.events().size() >= 3; }));
  events = watcher.events();
  EXPECT_EQ(events[2].kind(), v1::IncidentEvent::KIND_UPDATED) << "one more site of one cause";
  EXPECT_EQ(events[2].status().site_count(), 2u);
  EXPECT_EQ(events[2].status().newest().layer(), "layers.9");
  EXPECT_EQ(events[2].incident().finding().site().layer(), "layers.0");

  agent.Send(LeakingStep(source, 2, "layers.9"), 3);
  ASSERT_TRUE(Eventually([&] { return watcher.events().size() >= 4; }));
  EXPECT_EQ(watcher.events()[3].kind(), v1::IncidentEvent::KIND_UPDATED);
  EXPECT_EQ(watcher.events()[3].incident().count(), 3u);
}

TEST_F(QueryTest, AWatcherMaySkipFilterAndNotDisturbOthers) {
  const v1::Source source = SourceOf("one");
  AgentStream agent(server_, 42, {source});
  agent.Send(LeakingStep(source, 0), 1);
  ASSERT_TRUE(Eventually([&] { return !server_.Incidents("one").empty(); }));
  Watcher skipping(server_, Request("one", true));
  Watcher other_run(server_, Request("two"));
  Watcher all(server_, Request());
  ASSERT_TRUE(skipping.CaughtUp() && other_run.CaughtUp() && all.CaughtUp());
  EXPECT_EQ(skipping.events().size(), 1u);
  agent.Send(LeakingStep(source, 1), 2);
  ASSERT_TRUE(
      Eventually([&] { return skipping.events().size() == 2 && all.events().size() == 3; }));
  EXPECT_EQ(skipping.events()[1].kind(), v1::IncidentEvent::KIND_UPDATED);
  EXPECT_EQ(other_run.events().size(), 1u);
}

// A watcher that does not read must neither delay judging nor cost memory. When it reads again it
// gets the newest state and the number of merged changes.
TEST_F(QueryTest, ASlowWatcherLearnsWhatItMissed) {
  const v1::Source source = SourceOf("slow");
  AgentStream agent(server_, 43, {source});
  grpc::ClientContext context;
  auto stub = v1::Query::NewStub(server_.Channel());
  auto reader = stub->WatchIncidents(&context, Request("slow"));
  v1::IncidentEvent event;
  ASSERT_TRUE(reader->Read(&event));
  ASSERT_EQ(event.kind(), v1::IncidentEvent::KIND_CAUGHT_UP);
  // Makes more changes than flow control sends to a reader that does not read.
  constexpr int kSteps = 400;
  constexpr int kLayers = 8;
  for (int step = 0; step < kSteps; ++step) {
    v1::Batch batch = LeakingStep(source, step);
    for (int n = 1; n < kLayers; ++n) {
      *batch.add_evidence() = batch.evidence(0);
      batch.mutable_evidence(n)->mutable_site()->set_layer("layers." + std::to_string(n));
    }
    ASSERT_TRUE(agent.Send(batch, static_cast<uint64_t>(step) + 1));
  }
  ASSERT_TRUE(Eventually([&] {
    const auto info = server_.Run("slow");
    return info && info->closed_step() == kSteps - 1;
  }));
  // Every occurrence was judged.
  for (const auto& incident : server_.Incidents("slow", audit::kDoctorRule)) {
    EXPECT_EQ(incident.count(), static_cast<uint64_t>(kSteps) * kLayers);
  }
  uint64_t missed = 0, events = 0;
  std::map<uint64_t, uint64_t> newest;
  // One cause: the layers are sites of one incident.
  const auto complete = [&] {
    return newest.size() == 1 && newest.begin()->second == uint64_t{kSteps} * kLayers;
  };
  while (!complete() && reader->Read(&event)) {
    if (event.incident().finding().rule() != audit::kDoctorRule) continue;
    ++events;
    missed += event.missed();
    newest[event.incident().id()] = event.incident().count();
  }
  EXPECT_TRUE(complete());
  EXPECT_EQ(events + missed, static_cast<uint64_t>(kSteps) * kLayers);
  context.TryCancel();
  reader->Finish();
}

TEST_F(QueryTest, ListsRunsVerdictsAndItself) {
  const v1::Source source = SourceOf("listed", 0, 2);
  AgentStream agent(server_, 44, {source});
  agent.Send(LeakingStep(source, 3), 1);
  ASSERT_TRUE(Eventually([&] { return server_.Run("listed").has_value(); }));
  ASSERT_TRUE(Eventually([&] { return server_.Run("listed")->evidence() == 1; }));
  const auto info = server_.Run("listed");
  EXPECT_EQ(info->world_size(), 2u);
  EXPECT_EQ(info->ranks_seen(), 1u);
  EXPECT_EQ(info->ranks_connected(), 1u);
  EXPECT_EQ(info->newest_step(), 3);
  agent.Send(Goodbye(source, 3), 2);
  AgentStream other(server_, 45, {SourceOf("listed", 1, 2)});
  other.Send(Goodbye(SourceOf("listed", 1, 2), 3), 1);
  ASSERT_TRUE(Eventually([&] { return server_.Verdicts("listed").judged() >= 1; }));
  EXPECT_GE(server_.Verdicts("listed").verdicts_size(), 1);
  EXPECT_EQ(server_.Verdicts("nothing").verdicts_size(), 0);
  EXPECT_EQ(server_.Info().protocol(), 1u);
  EXPECT_EQ(server_.Info().batches(), 3u);
  EXPECT_EQ(server_.Info().streams(), 2u);
}

// Returns the stored values of a series, as "step value" pairs.
std::vector<std::string> Kept(const Plumbd& server, const std::string& run) {
  audit::Client client(server.address());
  v1::QuerySeriesRequest request;
  request.set_run(run);
  const auto answer = client.QuerySeries(request, 30);
  std::vector<std::string> kept;
  if (!answer.ok() || answer->series().empty()) return kept;
  const v1::SeriesColumns& c = answer->series(0);
  for (int i = 0; i < c.step_size(); ++i)
    kept.push_back(std::to_string(c.step(i)) + " " + std::to_string(c.mean(i)));
  return kept;
}

TEST(StoredSeries, AreThereOnceAfterAKillAStopAndTheLossOfTheStore) {
  TempFolder folder;
  const std::string data = folder.File("data");
  const v1::Source source = SourceOf("kept");
  std::vector<std::string> expected;
  int64_t next = 0;
  const auto report = [&](const Plumbd& server, uint64_t stream) {
    AgentStream agent(server, stream, {source});
    for (uint64_t sequence = 1; sequence <= 150; ++sequence, ++next) {
      agent.Send(ScalarStep(source, next, 0.5 * static_cast<double>(next)), sequence);
      expected.push_back(std::to_string(next) + " " +
                         std::to_string(0.5 * static_cast<double>(next)));
    }
    ASSERT_TRUE(agent.Acknowledged(150));
    ASSERT_TRUE(Eventually([&] { return Kept(server, "kept").size() == expected.size(); }));
  };
  {
    Plumbd server({"--data", data});
    ASSERT_FALSE(server.address().empty()) << server.process().errors();
    report(server, 71);
    server.process().Signal(SIGKILL);
    server.process().Wait();
  }
  {
    Plumbd server({"--data", data});
    ASSERT_TRUE(Eventually([&] { return Kept(server, "kept").size() == expected.size(); }))
        << server.process().errors();
    EXPECT_EQ(Kept(server, "kept"), expected);
    report(server, 72);
    EXPECT_EQ(server.Stop(), 0);  // with a checkpoint of everything
  }
  for (const bool lost : {false, true}) {
    if (lost) std::filesystem::remove(data + "/store.sqlite");
    Plumbd server({"--data", data});
    ASSERT_FALSE(server.address().empty()) << server.process().errors();
    // No stream continues, so the newest step may still be open; all other steps were restored.
    ASSERT_TRUE(Eventually([&] { return Kept(server, "kept").size() + 1 >= expected.size(); }))
        << lost << server.process().errors();
    auto kept = Kept(server, "kept");
    kept.resize(expected.size() - 1);
    EXPECT_EQ(kept, std::vector<std::string>(expected.begin(), expected.end() - 1));
    EXPECT_EQ(server.Stop(), 0);
  }
}

TEST_F(QueryTest, HealthIsServedAndReflectionOnlyWhenRequested) {
  audit::Client client(server_.address());
  EXPECT_TRUE(client.Health(30).ok());
  const auto serves_reflection = [](const Plumbd& server) {
    // If there is no reflection service, its stream ends with UNIMPLEMENTED.
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kPatience);
    auto channel = server.Channel();
    grpc::internal::RpcMethod method(
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
        grpc::internal::RpcMethod::BIDI_STREAMING, channel);
    std::unique_ptr<grpc::ClientReaderWriter<v1::AgentMessage, v1::ServerMessage>> stream(
        grpc::internal::ClientReaderWriterFactory<v1::AgentMessage, v1::ServerMessage>::Create(
            channel.get(), method, &context));
    stream->WritesDone();
    return stream->Finish().error_code() != grpc::StatusCode::UNIMPLEMENTED;
  };
  EXPECT_FALSE(serves_reflection(server_));
  Plumbd with({"--reflection"});
  ASSERT_FALSE(with.address().empty()) << with.process().errors();
  EXPECT_TRUE(serves_reflection(with));
}

TEST_F(QueryTest, StoppingEndsWatchersAndStreams) {
  Watcher watcher(server_, Request());
  ASSERT_TRUE(watcher.CaughtUp());
  const v1::Source source = SourceOf("stopped");
  AgentStream agent(server_, 46, {source});
  agent.Send(ScalarStep(source, 0), 1);
  ASSERT_TRUE(agent.Welcomed());
  EXPECT_EQ(server_.Stop(), 0);
  EXPECT_TRUE(Eventually([&] { return watcher.ended(); }));
  EXPECT_EQ(agent.Ended().error_code(), grpc::StatusCode::UNAVAILABLE);
}

}  // namespace
}  // namespace plumbline::test
