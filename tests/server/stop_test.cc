// SIGTERM with clients that have much on its way: plumbd stops soon, and the next start judges what
// it had not come to.
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <cstdlib>

#include "tests/server/support.h"

namespace plumbline::test {
namespace {

using Clock = std::chrono::steady_clock;

// One value of each of `names` new series.
v1::Batch NewNames(const v1::Source& source, int64_t step, int names) {
  v1::Batch batch;
  *batch.add_sources() = source;
  for (int i = 0; i < names; ++i) {
    v1::Evidence& e = *batch.add_evidence();
    e.set_step(step);
    e.mutable_site()->set_op("loss/" + std::to_string(step * names + i));
    e.mutable_scalar()->set_value(1);
  }
  AddProgress(&batch, step);
  return batch;
}

TEST(Stop, ABacklogIsLeftToTheNextStart) {
  constexpr int kBatches = 8, kNames = 4000;
  TempFolder folder;
  const std::vector<std::string> options = {"--data", folder.File("data"), "--grace", "60"};
  std::vector<v1::Source> sources;
  uint64_t held = 0;
  {
    Plumbd server(options);
    ASSERT_FALSE(server.address().empty()) << server.process().errors();
    std::vector<std::unique_ptr<AgentStream>> agents;
    for (uint64_t a = 0; a < 4; ++a) {
      sources.push_back(SourceOf("run" + std::to_string(a)));
      agents.push_back(std::make_unique<AgentStream>(server, 100 + a, std::vector{sources.back()}));
    }
    for (int b = 0; b < kBatches; ++b) {
      for (size_t a = 0; a < agents.size(); ++a)
        agents[a]->Send(NewNames(sources[a], b, kNames), static_cast<uint64_t>(b) + 1);
    }
    ASSERT_TRUE(Eventually([&] { return agents[0]->acknowledged() >= 2; }));
    const auto start = Clock::now();
    server.process().Signal(SIGTERM);
    EXPECT_EQ(server.process().Wait(), 0) << server.process().errors();
    const std::chrono::duration<double> took = Clock::now() - start;
    // Of a machine at rest; with other work on it the time says nothing.
    const bool at_rest = std::getenv("PLUMB_LONG") != nullptr;
    EXPECT_LT(took.count(), at_rest ? 5 : 300);
    for (const auto& agent : agents) held += agent->acknowledged();
  }
  ASSERT_GT(held, 0u);
  Plumbd server(options);
  ASSERT_FALSE(server.address().empty()) << server.process().errors();
  EXPECT_TRUE(Eventually([&] {
    uint64_t evidence = 0;
    for (const v1::Source& source : sources) {
      const auto run = server.Run(source.run());
      evidence += run ? run->evidence() : 0;
    }
    return evidence >= held * kNames;
  }));
}

}  // namespace
}  // namespace plumbline::test
