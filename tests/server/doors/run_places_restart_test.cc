// A server is killed or stopped during an attack with endless names of runs. The acknowledged
// batches of honest runs are stored once, and their findings equal those of an engine that got only
// their batches. PLUMB_LONG=1: with the default settings, and a longer attack.
#include <gtest/gtest.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <limits>
#include <thread>

#include "tests/server/chaos_agents.h"
#include "tests/server/doors/support.h"

namespace plumbline::test {
namespace {

bool IsLong() { return std::getenv("PLUMB_LONG") != nullptr; }

// Invents names until it is stopped, for runs that send a NaN and end, or leave, or stay.
class MadeUpNames {
 public:
  explicit MadeUpNames(std::string address) : address_(std::move(address)) {
    for (int t = 0; t < kThreads; ++t) threads_.emplace_back([this, t] { Loop(t); });
  }
  ~MadeUpNames() {
    stopped_ = true;
    for (std::thread& thread : threads_) thread.join();
  }
  uint64_t made() const { return made_; }

 private:
  static constexpr int kThreads = 4;

  void Loop(int t) {
    std::vector<std::unique_ptr<AgentStream>> held;
    for (uint64_t i = 0; !stopped_; ++i) {
      const uint64_t number = i * kThreads + static_cast<uint64_t>(t);
      const v1::Source source = SourceOf("made-up-" + std::to_string(number));
      auto agent = std::make_unique<AgentStream>(ChannelTo(address_, {}), 1000 + number,
                                                 std::vector{source});
      agent->Send(ScalarStep(source, 1, std::numeric_limits<double>::quiet_NaN()), 1);
      if (t % 2 == 0) agent->Send(Goodbye(source, 1), 2);
      held.push_back(std::move(agent));
      ++made_;
      if (held.size() < 16) continue;
      held.erase(held.begin(), held.end() - (t == 3 ? 8 : 0));
    }
  }

  const std::string address_;
  std::atomic<bool> stopped_{false};
  std::atomic<uint64_t> made_{0};
  std::vector<std::thread> threads_;
};

class RunPlacesRestart : public testing::TestWithParam<int> {
 protected:
  void Start(const std::string& address) {
    const std::string limits =
        IsLong() ? "" : "max_runs = 40\nmax_streams = 400\nack_seconds = 0.05\n";
    server_ = StartWith(folder_, "[ingest]\n" + limits,
                        {"--data", folder_.File("data"), "--grpc", address});
    ASSERT_FALSE(server_->address().empty()) << server_->process().errors();
  }
  void TearDown() override {
    if (HasFailure() && server_) ADD_FAILURE() << "plumbd's log:\n" << server_->process().errors();
  }
  // Lets the agents send until `done`.
  void ActUntil(const std::function<bool()>& done) {
    bool is_done = false;
    for (int i = 0; !is_done && i < (IsLong() ? 20 : 1); ++i) {
      is_done = Eventually([&] {
        for (auto& agent : agents_) agent->Act(*server_);
        return done();
      });
    }
    EXPECT_TRUE(is_done);
  }
  bool AllHave(uint64_t batches) {
    return std::all_of(agents_.begin(), agents_.end(), [&](auto& agent) {
      agent->NoteAcknowledged();
      return agent->acknowledged() >= batches;
    });
  }
  void CheckBatches(const ChaosAgent& agent) {
    EXPECT_EQ(agent.broken_promise(), "");
    const auto held = BatchesOfJournal(folder_.File("data/journal"));
    const auto& of_stream = held.at(agent.stream_id());
    ASSERT_EQ(of_stream.size(), agent.size());
    for (const auto& [sequence, copies] : of_stream) {
      ASSERT_EQ(copies.size(), 1u) << sequence;
      EXPECT_EQ(copies[0], agent.batch(sequence).SerializeAsString());
    }
  }
  void CheckRun(const ChaosAgent& agent, const std::string& run) {
    std::vector<v1::Batch> batches;
    uint64_t evidence = 0;
    for (uint64_t s = 1; s <= agent.size(); ++s) {
      batches.push_back(agent.batch(s));
      evidence += static_cast<uint64_t>(batches.back().evidence_size());
      for (const v1::SeriesRows& rows : batches.back().series())
        evidence += static_cast<uint64_t>(rows.value_size());
    }
    const Findings expected = FindingsOfBatches(batches, run);
    EXPECT_FALSE(expected.empty());
    Findings found;
    EXPECT_TRUE(Eventually([&] { return (found = FindingsOf(*server_, run)) == expected; }))
        << found.size() << " findings of " << run << ", expected " << expected.size();
    const auto info = server_->Run(run);
    ASSERT_TRUE(info);
    EXPECT_EQ(info->evidence(), evidence);
    EXPECT_EQ(info->lost(), 0u);
    EXPECT_EQ(info->late(), 0u);
  }

  TempFolder folder_;
  std::unique_ptr<Plumbd> server_;
  std::vector<std::unique_ptr<ChaosAgent>> agents_;
};

TEST_P(RunPlacesRestart, LosesNothingOfHonestRuns) {
  const int64_t steps = IsLong() ? 600 : 40;
  const uint64_t names = IsLong() ? 8000 : 60;
  Start("127.0.0.1:0");
  const std::string address = server_->address();
  constexpr uint64_t kHonest = 3;
  for (uint64_t i = 1; i <= kHonest; ++i) {
    agents_.push_back(std::make_unique<ChaosAgent>(i, SourceOf("honest-" + std::to_string(i)),
                                                   steps, static_cast<unsigned>(i), Age::kOwn));
  }
  {
    MadeUpNames attack(address);
    ActUntil([&] { return AllHave(3) && attack.made() > names; });
    server_->process().Signal(GetParam());
    server_->process().Wait();
    for (auto& agent : agents_) agent->Break();
    Start(address);
    const uint64_t before = attack.made();
    ActUntil([&] { return AllHave(static_cast<uint64_t>(steps) + 1); });
    // Runs that are new after the restart are accepted too.
    agents_.push_back(
        std::make_unique<ChaosAgent>(kHonest + 1, SourceOf("honest-4"), 10, 4u, Age::kOwn));
    ActUntil([&] { return agents_.back()->done() && attack.made() > before + names; });
  }
  for (const auto& agent : agents_) {
    CheckBatches(*agent);
    CheckRun(*agent, "honest-" + std::to_string(agent->stream_id()));
  }
}

INSTANTIATE_TEST_SUITE_P(InTheMiddle, RunPlacesRestart, testing::Values(SIGKILL, SIGTERM),
                         [](const auto& info) { return info.param == SIGKILL ? "Kill" : "Stop"; });

}  // namespace
}  // namespace plumbline::test
