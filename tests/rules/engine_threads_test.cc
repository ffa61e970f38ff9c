// Tests that runs judged concurrently give the same verdicts as runs judged sequentially. With the
// thread sanitizer: rules and the engine access no common data without a lock.
#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <thread>

#include "rules/catalogue.h"
#include "rules/engine/engine.h"
#include "tests/rules/support/golden_case.h"

namespace plumbline::rules {
namespace {

constexpr int kThreads = 4;

// Verdicts by run, in order.
using Stated = std::map<std::string, std::vector<std::string>>;

// Returns the batches of one golden case per rule.
std::vector<std::vector<v1::Batch>> Inputs() {
  std::vector<std::vector<v1::Batch>> inputs;
  for (const CatalogueEntry& entry : Catalogue()) {
    if (entry.make == nullptr) continue;
    for (const testing::GoldenCase& c :
         testing::GoldenCases(PLUMBLINE_SOURCE_DIR, entry.info->id)) {
      if (!c.settings.empty() || !c.suppressions.empty()) continue;
      inputs.push_back(testing::InputOf(c));
      break;
    }
  }
  return inputs;
}

// Returns the same batch for another run and stream.
v1::Batch Renamed(v1::Batch batch, int thread, size_t input) {
  const std::string prefix = std::to_string(thread) + "-" + std::to_string(input) + "-";
  for (v1::Source& source : *batch.mutable_sources()) source.set_run(prefix + source.run());
  batch.set_stream_id(batch.stream_id() + static_cast<uint64_t>(thread) * 1'000'000 + input * 1000);
  return batch;
}

void Judge(const std::vector<std::vector<v1::Batch>>& inputs, int thread, Engine* engine) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    const size_t input = (i + static_cast<size_t>(thread) * 7) % inputs.size();
    std::vector<std::string> runs;
    for (const v1::Batch& batch : inputs[input]) {
      v1::Batch renamed = Renamed(batch, thread, input);
      for (const v1::Source& source : renamed.sources()) runs.push_back(source.run());
      (void)engine->Add(std::move(renamed));  // rejected batches are rejected in both
    }
    for (const std::string& run : runs) engine->FinishRun(run);  // no effect the second time
  }
}

TEST(EngineThreads, RunsThatAreJudgedTogetherGiveWhatTheyGiveAlone) {
  const std::vector<std::vector<v1::Batch>> inputs = Inputs();
  ASSERT_GT(inputs.size(), 10u);
  const auto judged = [&](bool together) {
    Stated stated;
    std::mutex mutex;
    auto engine = Engine::Create({}, [&](const v1::Verdict& verdict) {
      std::lock_guard lock(mutex);
      stated[verdict.site().run()].push_back(verdict.DebugString());
    });
    EXPECT_TRUE(engine.ok());
    std::vector<std::thread> threads;
    for (int thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&, thread] { Judge(inputs, thread, engine->get()); });
      if (!together) threads.back().join();
    }
    for (std::thread& thread : threads) {
      if (thread.joinable()) thread.join();
    }
    EXPECT_EQ((*engine)->open_bytes(), 0u);
    return std::pair(std::move(stated), (*engine)->coverage().judged);
  };
  const auto [alone, judged_alone] = judged(false);
  const auto [together, judged_together] = judged(true);
  EXPECT_GT(alone.size(), inputs.size());
  EXPECT_EQ(judged_alone, judged_together);
  ASSERT_EQ(alone.size(), together.size());
  for (const auto& [run, verdicts] : alone) EXPECT_EQ(verdicts, together.at(run)) << run;
}

}  // namespace
}  // namespace plumbline::rules
