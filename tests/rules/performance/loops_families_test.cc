// Tests healthy but irregular loops: at most a note with a correct figure.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/rules/performance/simulated_loops.h"

namespace plumbline::rules {
namespace {

using testing::JudgeAll;
using testing::LoopSpec;

// Returns families of healthy but irregular jobs.
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
  // Restarted at step 32, with the same number of ranks or half of them.
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

// Returns the error in a finding, or "" if it is a correct note of the cost of three 60 ms
// checkpoints in 64 steps.
std::string WrongWithNote(const v1::Finding& finding, const LoopSpec& spec) {
  if (finding.level() != v1::LEVEL_NOTE) return "more than a note";
  if (finding.rule() != "performance/idle-comb" || spec.checkpoint_every == 0 ||
      finding.cause().id() != "checkpoint")
    return "a note of what is not there";
  const double saves = spec.steps / spec.checkpoint_every;
  const double step_ms = spec.data_ms + spec.work_ms + spec.reduce_ms + 2;
  // The slowest rank makes a step up to 1.3 times as long as the mean rank does.
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

// Returns unpacked sequences of very different lengths: steps wait for the longest, and no rank is
// at fault.
LoopSpec OfLengths(int ranks, int steps, double sigma) {
  LoopSpec spec;
  spec.ranks = ranks;
  spec.steps = steps;
  spec.lengths = sigma;
  spec.spread = 0.01;  // otherwise, one of 6,400 ranks is actually a fifth slower
  spec.work_ms = 500;  // long enough to judge short blocks, too
  return spec;
}

// Returns the ranks named in all findings of the rule.
std::set<double> Named(const LoopSpec& spec) {
  std::set<double> ranks;
  for (const v1::Finding& finding : JudgeAll({spec}).findings) {
    if (finding.rule() != "performance/straggler") continue;
    for (const auto& rank : finding.details().fields().at("ranks").list_value().values())
      ranks.insert(rank.number_value());
  }
  return ranks;
}

TEST(Loops, LengthsOfSequencesAreNoRanksFault) {
  const bool all = std::getenv("PLUMB_LONG") != nullptr;
  int jobs = 0, accused = 0;
  for (const int ranks : {2, 8, 64}) {
    for (const int steps : {7, 12, 16, 64}) {
      for (const double sigma : {0.2, 0.3, 0.5, 0.8}) {
        for (int i = 0; i < (all ? 100 : 4); ++i) {
          LoopSpec spec = OfLengths(ranks, steps, sigma);
          spec.seed = static_cast<uint64_t>(8'000'000 + 10'000 * ranks + 100 * steps + i);
          accused += Named(spec).empty() ? 0 : 1;
          ++jobs;
        }
      }
    }
  }
  std::printf("%d of %d jobs of uneven lengths accused a rank\n", accused, jobs);
  EXPECT_LE(accused, jobs / 500);  // 4 of 4,800 measured
}

TEST(Loops, AmongUnevenLengthsASlowRankIsNamed) {
  const bool all = std::getenv("PLUMB_LONG") != nullptr;
  int jobs = 0, named = 0;
  for (const int ranks : {8, 64}) {
    for (int i = 0; i < (all ? 200 : 5); ++i) {
      LoopSpec spec = OfLengths(ranks, 64, 0.3);
      spec.slow_rank = i % ranks;
      spec.excess_ms = 350;  // 1.67 times as long
      spec.seed = static_cast<uint64_t>(9'000'000 + 1000 * ranks + i);
      named += Named(spec) == std::set<double>{static_cast<double>(spec.slow_rank)} ? 1 : 0;
      ++jobs;
    }
  }
  std::printf("the slow rank alone named in %d of %d jobs of uneven lengths\n", named, jobs);
  EXPECT_GE(named, jobs - jobs / 50);
}

}  // namespace
}  // namespace plumbline::rules
