// Tests complete jobs: healthy jobs of 8 and 64 ranks give no finding, each planted fault is named,
// and no rank that only waits is named.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "rules/engine/engine.h"
#include "tests/rules/support/series_run.h"
#include "tests/rules/support/simulated_flight.h"
#include "tests/rules/support/simulated_job.h"

namespace plumbline::rules {
namespace {

using testing::FlightRun;
using testing::FlightSpec;
using testing::JobRun;
using testing::JobSpec;

bool Long() { return std::getenv("PLUMB_LONG") != nullptr; }

std::vector<v1::Finding> Findings(v1::Batch batch, std::vector<std::string> settings = {}) {
  std::vector<v1::Finding> findings;
  EngineConfig config;
  config.settings = std::move(settings);
  config.rules = {"performance/*"};
  auto engine = Engine::Create(config, [&](const v1::Verdict& verdict) {
    if (verdict.kind() == v1::Verdict::KIND_FINDING) findings.push_back(verdict.finding());
  });
  EXPECT_TRUE(engine.ok()) << engine.status();
  EXPECT_TRUE((*engine)->Add(std::move(batch)).ok());
  (*engine)->Finish();
  return findings;
}

std::set<uint32_t> RanksIn(const v1::Finding& finding, const std::string& key) {
  std::set<uint32_t> ranks;
  for (const auto& value : finding.details().fields().at(key).list_value().values())
    ranks.insert(static_cast<uint32_t>(value.number_value()));
  return ranks;
}

std::string KindIn(const v1::Finding& finding) {
  return finding.details().fields().at("kind").string_value();
}

TEST(Jobs, HealthyOnesRaiseNothing) {
  for (const int ranks : {8, 64}) {
    const int jobs = ranks == 8 ? (Long() ? 400 : 16) : (Long() ? 50 : 2);
    for (int i = 0; i < jobs; ++i) {
      JobSpec spec;
      spec.ranks = ranks;
      spec.seed = static_cast<uint64_t>(1000 * ranks + i);
      const auto findings = Findings(JobRun(spec));
      for (const v1::Finding& finding : findings)
        ADD_FAILURE() << ranks << " ranks, seed " << spec.seed << ": " << finding.rule() << ": "
                      << finding.explanation();
    }
  }
}

// Tests gaps of up to 4 % of a step at random places. Three gaps of one name may be evenly spaced
// by chance, which is at most a note. The rates are on the rule page.
TEST(Jobs, GapsAtRandomAreSeldomANote) {
  int ranks = 0, notes = 0;
  for (int i = 0; i < (Long() ? 100 : 4); ++i) {
    JobSpec spec;
    spec.ranks = 64;
    spec.stray_ms = 8;
    spec.seed = static_cast<uint64_t>(50'000 + i);
    ranks += spec.ranks;
    for (const v1::Finding& finding : Findings(JobRun(spec))) {
      EXPECT_EQ(finding.level(), v1::LEVEL_NOTE) << finding.rule() << finding.explanation();
      notes += finding.rule() == "performance/idle-comb" ? 1 : 0;
    }
  }
  RecordProperty("ranks", ranks);
  RecordProperty("notes", notes);
  EXPECT_LE(notes, 2 + ranks / 200);
}

TEST(Jobs, EachStallIsNamed) {
  const std::map<std::string, std::string> causes = {
      {"loader", "data-loading"}, {"gc", "garbage-collection"}, {"checkpoint", "checkpoint"},
      {"compile", "compilation"}, {"sync", "synchronisation"},  {"silent", "unknown"}};
  for (const auto& [stall, cause] : causes) {
    for (const int every : {1, 3}) {
      JobSpec spec;
      spec.ranks = 8;
      spec.steps = 18;
      spec.stall = stall;
      spec.stall_every = every;
      spec.stall_ms = 30.0 * every;
      std::map<std::string, std::set<std::string>> reported;  // causes by rule
      for (const v1::Finding& finding : Findings(JobRun(spec)))
        reported[finding.rule()].insert(finding.cause().id());
      EXPECT_EQ(reported["performance/idle-comb"], std::set<std::string>{cause}) << stall << every;
      EXPECT_EQ(reported.contains("performance/data-stall"), stall == "loader") << stall << every;
      EXPECT_EQ(reported.contains("performance/checkpoint-stall"), stall == "checkpoint") << stall;
      EXPECT_FALSE(reported.contains("performance/straggler")) << stall;
      EXPECT_FALSE(reported.contains("performance/launch-bound")) << stall << every;
    }
  }
}

TEST(Jobs, TheSlowRankIsNamedAndNoVictim) {
  for (uint64_t seed = 1; seed <= (Long() ? 100 : 6); ++seed) {
    for (const bool late : {false, true}) {
      JobSpec spec;
      spec.seed = seed;
      const int culprit = static_cast<int>(seed % 8);
      (late ? spec.late_rank : spec.slow_rank) = culprit;
      int stragglers = 0;
      for (const v1::Finding& finding : Findings(JobRun(spec))) {
        if (finding.rule() != "performance/straggler") continue;
        ++stragglers;
        EXPECT_EQ(RanksIn(finding, "ranks"), std::set<uint32_t>{static_cast<uint32_t>(culprit)});
        EXPECT_EQ(RanksIn(finding, "waiting").size(), 7u);
        EXPECT_EQ(KindIn(finding), late ? "late" : "slow");
      }
      EXPECT_EQ(stragglers, 1) << seed << late;
    }
  }
}

// One of 8 equal ranks is 120 ms late, or computes 1.6 times 180 ms: the seven others lose 120 or
// 108 ms in each of 16 steps.
TEST(Jobs, TheTimeLostToAStragglerIsTheWaitOfTheOthers) {
  for (const bool late : {false, true}) {
    JobSpec spec;
    spec.spread = spec.jitter = spec.stray_gaps = 0;
    (late ? spec.late_rank : spec.slow_rank) = 3;
    const std::vector<v1::Finding> findings = Findings(JobRun(spec));
    const auto found = std::find_if(findings.begin(), findings.end(), [](const v1::Finding& one) {
      return one.rule() == "performance/straggler";
    });
    ASSERT_NE(found, findings.end()) << late;
    const double by_hand = 7 * 16 * (late ? 0.120 : 0.6 * 0.180);
    EXPECT_NEAR(found->lost_rank_seconds(), by_hand, 0.01 * by_hand) << late;
    EXPECT_TRUE(found->lost_on_gpus());
  }
}

// Tests a pipeline with the bubble of its schedule, and a pipeline with a stage that is too large.
// Tests a 256 MiB all-reduce that reaches 70 % of the link bandwidth even if ranks arrive late, and
// one that reaches 40 %.
TEST(Jobs, LinksThatAreReachedAreNotAccused) {
  int accused = 0, found = 0;
  const int jobs = Long() ? 200 : 6;
  for (int i = 0; i < jobs; ++i) {
    JobSpec spec;
    spec.steps = 128;
    spec.kernels = 8;
    spec.compute_ms = 20;
    spec.spread = 0.02 * (i % 4);
    spec.jitter = 0.3;
    spec.late_rank = i % 3 == 0 ? 5 : -1;
    spec.late_ms = 30;
    spec.collective_mib = 256;
    spec.seed = static_cast<uint64_t>(9000 + i);
    const double bytes = 2 * 256.0 * (1 << 20) * 7 / 8;  // sent by a rank
    const auto reported = [&](double gb_s) {
      spec.transfer_ms = 1e3 * bytes / (1e9 * gb_s);
      int count = 0;
      for (const v1::Finding& finding :
           Findings(JobRun(spec), {"performance/collective-bandwidth.domain_gb_s=45"}))
        count += finding.rule() == "performance/collective-bandwidth" ? 1 : 0;
      return count;
    };
    accused += reported(0.7 * 45);
    found += reported(0.4 * 45);
  }
  EXPECT_EQ(accused, 0);
  EXPECT_EQ(found, jobs);
}

// Tests hosts with four GPUs and network cards of 50 GB/s. In an all-to-all, each member sends the
// data for other hosts through its own card. In a ring over hosts of unequal size, the cards of the
// smallest host are the limit.
TEST(Jobs, CardsThatAreUsedWhollyAreNotAccused) {
  struct {
    const char* op;
    int ranks;
    double gb_s;  // the best case by the formulas of the rule page
  } constexpr kBest[] = {{"all_to_all", 8, 50.0 * 7 / 4},
                         {"all_to_all", 16, 50.0 * 15 / 12},
                         {"all_reduce", 8, 200},
                         {"all_reduce", 5, 50},
                         {"all_to_all", 6, 50.0 * 5 / 4}};
  for (const auto& best : kBest) {
    JobSpec spec;
    spec.ranks = best.ranks;
    spec.steps = 128;
    spec.kernels = 4;
    spec.compute_ms = 20;
    spec.collective = best.op;
    spec.collective_mib = 256;
    const double n = best.ranks, whole = 256.0 * (1 << 20) * (n - 1) / n;
    const double bytes = spec.collective == "all_reduce" ? 2 * whole : whole / n;
    for (const double share : {1.0, 0.6, 0.4}) {
      spec.transfer_ms = 1e3 * bytes / (1e9 * share * best.gb_s);
      int count = 0;
      for (const v1::Finding& finding :
           Findings(JobRun(spec), {"performance/collective-bandwidth.link_gb_s=50",
                                   "performance/collective-bandwidth.domain=4"}))
        count += finding.rule() == "performance/collective-bandwidth" ? 1 : 0;
      EXPECT_EQ(count, share < 0.5 ? 1 : 0) << best.op << " of " << best.ranks << ", " << share;
    }
  }
}

TEST(Jobs, HealthyPipelinesAreSilentAndALargeStageIsNamed) {
  const std::vector<std::string> reported = {"performance/pipeline-bubble.micro_batches=16"};
  int jobs = 0;
  for (const int stages : {2, 4, 8}) {
    for (int i = 0; i < (Long() ? 134 : 4); ++i) {
      JobSpec spec;
      spec.ranks = 2 * stages;
      spec.stages = stages;
      spec.micro_batches = 16;
      spec.transfer_ms = 1;
      spec.spread = 0.01;
      spec.stray_gaps = 0.25;
      spec.hidden = false;
      spec.seed = static_cast<uint64_t>(300 * stages + i);
      for (const v1::Finding& finding : Findings(JobRun(spec), reported)) {
        EXPECT_NE(finding.rule(), "performance/pipeline-bubble") << finding.explanation();
      }
      ++jobs;
      spec.slow_stage = i % stages;
      spec.slow = 1.3;
      int named = 0;
      for (const v1::Finding& finding : Findings(JobRun(spec), reported)) {
        if (finding.rule() != "performance/pipeline-bubble") continue;
        named += finding.cause().id() == "stage-imbalance" ? 1 : 0;
        for (const uint32_t rank : finding.site().ranks())
          EXPECT_EQ(static_cast<int>(rank) % stages, spec.slow_stage);
      }
      EXPECT_EQ(named, 1) << stages << " stages, seed " << spec.seed;
    }
  }
  RecordProperty("jobs", jobs);
}

// Tests ranks that wait in a circle: ranks that began in opposite order, and two ranks that both
// send without receiving.
TEST(Jobs, CirclesAreNamed) {
  for (uint64_t seed = 0; seed < 8; ++seed) {
    FlightSpec spec;
    spec.culprit = static_cast<int>(seed % 7);
    spec.fault = "order";
    auto findings = Findings(FlightRun(spec));
    ASSERT_EQ(findings.size(), 1u);
    EXPECT_EQ(KindIn(findings[0]), "mismatched");
    EXPECT_EQ(RanksIn(findings[0], "ranks"),
              std::set<uint32_t>{static_cast<uint32_t>(spec.culprit)});
    spec.fault = "sends";
    findings = Findings(FlightRun(spec));
    ASSERT_EQ(findings.size(), 1u);
    EXPECT_EQ(KindIn(findings[0]), "mismatched");
    EXPECT_EQ(RanksIn(findings[0], "ranks"),
              (std::set<uint32_t>{static_cast<uint32_t>(spec.culprit),
                                  static_cast<uint32_t>(spec.culprit + 1)}));
  }
}

TEST(Jobs, ACombOfOneRankIsThatRanks) {
  JobSpec spec;
  spec.stall = "gc";
  spec.stall_ms = 100;
  spec.stall_rank = 3;
  std::set<uint32_t> ranks;
  for (const v1::Finding& finding : Findings(JobRun(spec))) {
    if (finding.rule() != "performance/idle-comb") continue;
    ranks.insert(finding.site().ranks().begin(), finding.site().ranks().end());
  }
  EXPECT_EQ(ranks, std::set<uint32_t>{3});
}

// Tests 480 hangs at full length: no innocent rank is named.
TEST(Jobs, TheRankThatHoldsAJobIsNamedAndNoOther) {
  const std::map<std::string, std::string> kinds = {{"absent", "not-launched"},
                                                    {"stuck", "not-completed"},
                                                    {"shape", "mismatched"},
                                                    {"operation", "mismatched"}};
  int hangs = 0;
  for (const auto& [fault, kind] : kinds) {
    for (uint64_t seed = 1; seed <= (Long() ? 60 : 10); ++seed) {
      for (const int stages : {1, 4}) {
        FlightSpec spec;
        spec.ranks = 16;
        spec.stages = stages;
        spec.fault = fault;
        spec.seed = seed;
        spec.culprit = static_cast<int>(seed * 5 % 16);
        spec.dump = fault != "absent" || seed % 2 == 0;
        const auto findings = Findings(FlightRun(spec));
        ASSERT_EQ(findings.size(), 1u) << fault << " seed " << seed << " stages " << stages;
        EXPECT_EQ(RanksIn(findings[0], "ranks"),
                  std::set<uint32_t>{static_cast<uint32_t>(spec.culprit)})
            << fault << " seed " << seed << " stages " << stages << ": "
            << findings[0].explanation();
        EXPECT_EQ(KindIn(findings[0]), kind);
        EXPECT_FALSE(RanksIn(findings[0], "waiting").contains(static_cast<uint32_t>(spec.culprit)));
        ++hangs;
      }
    }
  }
  RecordProperty("hangs", hangs);
}

TEST(Jobs, DumpsOfAJobThatGoesOnRaiseNothing) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    FlightSpec spec;
    spec.stages = seed % 2 == 0 ? 4 : 1;
    spec.ahead = 0;
    spec.seed = seed;
    EXPECT_TRUE(Findings(FlightRun(spec)).empty()) << seed;
  }
}

std::vector<v1::Verdict> OfHang(const FlightSpec& spec, const std::set<uint32_t>& left_out) {
  v1::Batch batch = FlightRun(spec);
  auto& items = *batch.mutable_evidence();
  for (int i = items.size() - 1; i >= 0; --i) {
    if (left_out.contains(batch.sources(static_cast<int>(items[i].source())).rank()))
      items.DeleteSubrange(i, 1);
  }
  std::vector<v1::Verdict> verdicts;
  EngineConfig config;
  config.rules = {"performance/hang"};
  auto engine = Engine::Create(config, [&](const v1::Verdict& verdict) {
    if (verdict.rule() == "performance/hang") verdicts.push_back(verdict);
  });
  EXPECT_TRUE(engine.ok()) << engine.status();
  EXPECT_TRUE((*engine)->Add(std::move(batch)).ok());
  (*engine)->Finish();
  return verdicts;
}

// Tests that if the dump of one rank shows that it stopped, a rank without a dump is not named; and
// that two dumps of eight do not prove anything about the other six.
TEST(Jobs, ARankWithoutADumpIsNotBlamedForOneThatHasOne) {
  FlightSpec spec;
  spec.fault = "absent";
  const auto with_five = OfHang(spec, {3});
  ASSERT_EQ(with_five.size(), 1u);
  ASSERT_EQ(with_five[0].kind(), v1::Verdict::KIND_FINDING);
  EXPECT_EQ(RanksIn(with_five[0].finding(), "ranks"), std::set<uint32_t>{5});
  const auto few = OfHang(spec, {1, 2, 3, 4, 5, 6});
  ASSERT_EQ(few.size(), 1u);
  EXPECT_EQ(few[0].kind(), v1::Verdict::KIND_INCONCLUSIVE);
  EXPECT_EQ(few[0].reason().substr(0, 9), "few-dumps") << few[0].reason();
}

// Tests batches of uneven length, and caches that fill in the first 40 steps. More shapes:
// memory_creep_test.cc.
TEST(Jobs, HealthyMemoryDoesNotCreep) {
  std::string text = "steps = 400\nmemory.limit = 80\n";
  const int series = Long() ? 1000 : 60;
  for (int i = 0; i < series; ++i) {
    text += "memory.allocated" + std::to_string(i) +
            (i % 2 == 0 ? " = 60 ~0.05\n" : " = 40 40>66 ~0.02\n");
  }
  int accused = 0;
  for (v1::Batch& batch : testing::SeriesRun(text)) {
    for (const v1::Finding& finding : Findings(std::move(batch)))
      accused += finding.rule() == "performance/memory-creep" ? 1 : 0;
  }
  EXPECT_EQ(accused, 0) << "of " << series;
}

}  // namespace
}  // namespace plumbline::rules
