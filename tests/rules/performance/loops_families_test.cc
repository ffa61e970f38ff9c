// Healthy loops that are not as even as the textbook's: what they raise is at most a note with a
// true figure.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "tests/rules/performance/simulated_loops.h"

namespace plumbline::rules {
namespace {

using testing::JudgeAll;
using testing::LoopSpec;

// Jobs that are not as even as the textbook's, and as healthy.
std::map<std::string, std::vector<LoopSpec>> Families(const LoopSpec& plain) {
  std::map<std::string, std::vector<LoopSpec>> families;
  const auto one = [&](const char* name) -> LoopSpec& {
    return families[name].emplace_back(plain);
  };
  one("uneven data").uneven = 0.5;
  one("evaluations").evaluate_every = 20;
  LoopSpec& saves = one("checkpoints");
  saves.checkpoint_every = 20;
  saves.checkpoint_ms = 60;
  LoopSpec& first = one("rank 0 saves");
  first.checkpoint_every = 20;
  first.checkpoint_ms = 60;
  first.first_saves = true;
  LoopSpec& long_saves = one("one long checkpoint");
  long_saves.checkpoint_every = 40;
  long_saves.checkpoint_ms = 5000;
  // Begun again at step 32, by as many ranks or by half of them.
  for (const int ranks : {plain.ranks, plain.ranks / 2}) {
    auto& attempts = families[ranks == plain.ranks ? "restart" : "elastic"];
    attempts = {plain, plain};
    attempts[1].attempt = 1;
    attempts[1].first_step = 32;
    attempts[1].steps = 128;
    attempts[1].ranks = ranks;
    attempts[1].seed += 500'000;
  }
  return families;
}

// A note that says what three checkpoints of 60 ms in 64 steps cost is no accusation, where it is
// true. "": it is.
std::string WrongWithNote(const v1::Finding& finding, const LoopSpec& spec) {
  if (finding.level() != v1::LEVEL_NOTE) return "more than a note";
  if (finding.rule() != "performance/idle-comb" || spec.checkpoint_every == 0 ||
      finding.cause().id() != "checkpoint")
    return "a note of what is not there";
  const double saves = spec.steps / spec.checkpoint_every;
  const double step_ms = spec.data_ms + spec.work_ms + spec.reduce_ms + 2;
  // The slowest rank makes a step up to 1.3 times as long as the mean one.
  const double most = saves * spec.checkpoint_ms / (spec.steps * step_ms);
  const double share = finding.measured().value();
  return share > most / 1.3 && share < most ? "" : "a share that is not true";
}

TEST(Loops, HealthyFamiliesRaiseAtMostATrueNote) {
  const bool all = std::getenv("PLUMB_LONG") != nullptr;
  std::map<std::string, int> jobs, notes, noted_jobs;
  for (const int ranks : {8, 64}) {
    for (int i = 0; i < (all ? (ranks == 64 ? 30 : 200) : (ranks == 64 ? 2 : 10)); ++i) {
      LoopSpec plain;
      plain.ranks = ranks;
      plain.seed = static_cast<uint64_t>(7'000'000 + 1000 * ranks + i);
      for (const auto& [name, specs] : Families(plain)) {
        const auto findings = JudgeAll(specs).findings;
        for (const v1::Finding& finding : findings) {
          const std::string wrong = WrongWithNote(finding, specs.back());
          EXPECT_EQ(wrong, "") << name << ", " << ranks << " ranks, seed " << plain.seed << ": "
                               << v1::Level_Name(finding.level()) << " " << finding.rule() << ": "
                               << finding.explanation();
        }
        ++jobs[name];
        noted_jobs[name] += findings.empty() ? 0 : 1;
        notes[name] += static_cast<int>(findings.size());
      }
    }
  }
  for (const auto& [name, count] : jobs)
    std::printf("%-20s %4d jobs, %d of them with notes, %d notes\n", name.c_str(), count,
                noted_jobs[name], notes[name]);
}

}  // namespace
}  // namespace plumbline::rules
