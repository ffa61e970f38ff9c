// Tests health/run-died on a job whose ranks train in lock step, with a planted end. Tests the
// named rank live (a host reports missing ranks) and offline (records end early) for all reading
// orders, unreachable ranks, and the limits on stored text.
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <random>

#include "analysis/processes/process_end.h"
#include "rules/engine/close_events.h"
#include "rules/engine/engine.h"
#include "rules/engine/report.h"
#include "tests/support/batches.h"

namespace plumbline::rules {
namespace {

using google::protobuf::util::MessageDifferencer;

enum class Plan { kWell, kException, kFollows, kGone, kRequested, kExit };

// The injector: the last batch of each rank after `steps` steps, according to its plan.
struct Job {
  std::vector<Plan> ranks;
  int64_t steps = 12;
  uint32_t attempt = 0;

  v1::Source SourceOf(uint32_t rank) const {
    v1::Source source = test::SourceOf("run", rank, static_cast<uint32_t>(ranks.size()), attempt);
    source.set_host("node" + std::to_string(rank));
    source.set_pid(1000 * (attempt + 1) + rank);
    return source;
  }
  v1::Batch Steps(uint32_t rank) const {
    v1::Batch batch = test::BatchOf(SourceOf(rank));
    for (int64_t step = 0; step < steps; ++step)
      test::AddScalar(&batch, "loss", step, 3 + static_cast<double>(rank));
    test::AddProgress(&batch, steps - 1).set_newest_step(steps);
    return batch;
  }
  std::optional<v1::Batch> Goodbye(uint32_t rank) const {
    if (ranks[rank] == Plan::kGone) return std::nullopt;
    v1::Batch batch = test::BatchOf(SourceOf(rank));
    v1::Progress& progress = test::AddProgress(&batch, steps - 1);
    progress.set_newest_step(steps);
    progress.set_finished(true);
    v1::Ending& ending = *progress.mutable_ending();
    // Ranks that follow report later, although their clock is earlier. The report order decides.
    ending.set_unix_ns(int64_t{1'000'000'000'000} + rank);
    switch (ranks[rank]) {
      case Plan::kException:
        ending.set_how(v1::Ending::HOW_EXCEPTION);
        ending.set_type("ValueError");
        ending.set_where("train.py:57 in forward");
        break;
      case Plan::kFollows:
        ending.set_how(v1::Ending::HOW_EXCEPTION);
        ending.set_type("DistBackendError");
        ending.set_text("NCCL error: remote process exited");
        ending.set_unix_ns(ending.unix_ns() - 5'000'000'000);
        break;
      case Plan::kRequested:
        ending.set_how(v1::Ending::HOW_SIGNAL);
        ending.set_code(15);
        break;
      case Plan::kExit:
        ending.set_how(v1::Ending::HOW_EXIT);
        ending.set_code(7);
        break;
      default:
        progress.clear_ending();
    }
    return batch;
  }
};

class RunDied : public ::testing::Test {
 protected:
  std::unique_ptr<Engine> Make(bool hosted) {
    EngineConfig config;
    config.hosted = hosted;
    auto engine = Engine::Create(config, [this](const v1::Verdict& verdict) {
      if (verdict.rule() != kRunDiedRule) return;
      last_ = verdict;
      report_.Add(verdict);
    });
    EXPECT_TRUE(engine.ok()) << engine.status();
    return std::move(*engine);
  }

  static std::vector<uint32_t> Order(size_t ranks, uint32_t seed) {
    std::vector<uint32_t> order(ranks);
    for (uint32_t i = 0; i < ranks; ++i) order[i] = i;
    std::mt19937 random(seed);
    std::shuffle(order.begin(), order.end(), random);
    return order;
  }

  static void Gone(Engine* engine, const Job& job, const std::vector<uint32_t>& ranks,
                   v1::RanksGone::Cause cause = v1::RanksGone::CAUSE_STREAM_BROKEN,
                   bool reachable = true) {
    v1::JudgeEvent event;
    v1::RanksGone& gone = *event.mutable_ranks_gone();
    gone.set_cause(cause);
    for (const uint32_t rank : ranks) {
      if (!reachable) gone.add_unreachable(static_cast<uint32_t>(gone.sources_size()));
      *gone.add_sources() = job.SourceOf(rank);
    }
    ApplyCloses(event, "", engine);
  }

  static void Event(Engine* engine, bool over) {
    v1::JudgeEvent event;
    if (over) {
      event.mutable_run_finished()->set_run("run");
    } else {
      event.mutable_ended()->set_run("run");
    }
    ApplyCloses(event, "", engine);
  }

  // Returns the verdict as plumbd gives it: an interim report, the missing ranks, the end of the
  // run.
  v1::Verdict Live(const Job& job, uint32_t seed) {
    last_.Clear();
    report_ = Report();
    auto engine = Make(true);
    std::vector<uint32_t> gone;
    for (const uint32_t rank : Order(job.ranks.size(), seed))
      EXPECT_TRUE(engine->Add(job.Steps(rank)).ok());
    for (const uint32_t rank : Order(job.ranks.size(), seed + 1)) {
      auto goodbye = job.Goodbye(rank);
      if (!goodbye) gone.push_back(rank);
      if (goodbye) {
        EXPECT_TRUE(engine->Add(*std::move(goodbye)).ok());
      }
      if (seed % 2 == 0) Event(engine.get(), false);
    }
    if (!gone.empty()) Gone(engine.get(), job, gone);
    Event(engine.get(), false);
    Event(engine.get(), true);
    return last_;
  }

  v1::Verdict Offline(const Job& job, uint32_t seed) {
    last_.Clear();
    report_ = Report();
    auto engine = Make(false);
    for (const uint32_t rank : Order(job.ranks.size(), seed)) {
      EXPECT_TRUE(engine->Add(job.Steps(rank)).ok());
      if (auto goodbye = job.Goodbye(rank)) {
        EXPECT_TRUE(engine->Add(*std::move(goodbye)).ok());
      }
    }
    engine->Finish();
    return last_;
  }

  v1::Verdict last_;
  Report report_;
};

std::string Reported(const v1::Finding& f) {
  return f.fingerprint() + f.title() + f.cause().id() + std::to_string(f.level()) +
         std::to_string(f.strength()) + std::to_string(f.measured().value()) +
         f.details().ShortDebugString();
}

TEST_F(RunDied, WhoWentFirstIsNamedLiveAndOffline) {
  struct Planted {
    Plan first, others;
    const char* cause;
    v1::Level level;
  };
  const Planted planted[] = {
      {Plan::kException, Plan::kFollows, "exception", v1::LEVEL_ERROR},
      {Plan::kException, Plan::kRequested, "exception", v1::LEVEL_ERROR},
      {Plan::kException, Plan::kWell, "exception", v1::LEVEL_ERROR},
      {Plan::kException, Plan::kGone, "exception", v1::LEVEL_ERROR},
      {Plan::kGone, Plan::kFollows, "gone", v1::LEVEL_ERROR},
      {Plan::kGone, Plan::kRequested, "gone", v1::LEVEL_ERROR},
      {Plan::kGone, Plan::kWell, "gone", v1::LEVEL_ERROR},
      {Plan::kExit, Plan::kFollows, "exit-status", v1::LEVEL_ERROR},
      {Plan::kExit, Plan::kRequested, "exit-status", v1::LEVEL_WARNING},
      {Plan::kExit, Plan::kWell, "exit-status", v1::LEVEL_WARNING},
  };
  for (const Planted& p : planted) {
    for (const size_t world : {2u, 3u, 8u}) {
      for (uint32_t culprit = 0; culprit < world; culprit += 2) {
        Job job{std::vector<Plan>(world, p.others)};
        job.ranks[culprit] = p.first;
        const uint32_t seed = culprit + 10 * static_cast<uint32_t>(world);
        for (const bool live : {true, false}) {
          const v1::Verdict verdict = live ? Live(job, seed) : Offline(job, seed);
          SCOPED_TRACE(testing::Message() << p.cause << " of rank " << culprit << " in " << world
                                          << (live ? " live" : " offline"));
          ASSERT_EQ(verdict.kind(), v1::Verdict::KIND_FINDING) << verdict.ShortDebugString();
          const v1::Finding& f = verdict.finding();
          EXPECT_EQ(f.cause().id(), p.cause);
          EXPECT_EQ(f.level(), p.level);
          EXPECT_EQ(f.strength(), v1::STRENGTH_PROVED);
          ASSERT_EQ(f.site().ranks_size(), 1);
          EXPECT_EQ(f.site().ranks(0), culprit);
          EXPECT_EQ(f.site().step_last(), 12);
          const auto& details = f.details().fields();
          EXPECT_EQ(details.at("followed").number_value(),
                    p.others == Plan::kWell ? 0.0 : static_cast<double>(world - 1));
          const auto& last = details.at("last_scalar").struct_value().fields();
          EXPECT_EQ(last.at("series").string_value(), "loss");
          EXPECT_EQ(last.at("step").number_value(), 11);
          EXPECT_EQ(last.at("value").number_value(), 3.0 + culprit);
        }
      }
    }
  }
}

// Tests that the final report is the same, even if the live report was earlier than the complete
// data.
TEST_F(RunDied, TheReportIsTheSameLiveAndOfflineAndInEveryOrder) {
  Job job{{Plan::kFollows, Plan::kException, Plan::kFollows, Plan::kWell, Plan::kRequested}};
  Offline(job, 1);
  const std::string expected = Reported(*report_.findings().at(0));
  for (uint32_t seed = 1; seed < 12; ++seed) {
    Offline(job, seed);
    EXPECT_EQ(Reported(*report_.findings().at(0)), expected);
    Live(job, seed);
    ASSERT_EQ(report_.findings().size(), 1u);
    EXPECT_EQ(Reported(*report_.findings().at(0)), expected) << seed;
  }
}

TEST_F(RunDied, EverybodyWellIsAPass) {
  const Job job{{Plan::kWell, Plan::kWell, Plan::kWell}};
  EXPECT_EQ(Live(job, 1).kind(), v1::Verdict::KIND_PASS);
  EXPECT_EQ(Offline(job, 1).kind(), v1::Verdict::KIND_PASS);
}

TEST_F(RunDied, AllAtOnceGoneIsReportedLiveAndInconclusiveOffline) {
  const Job job{{Plan::kGone, Plan::kGone, Plan::kGone}};
  const v1::Verdict live = Live(job, 1);
  ASSERT_EQ(live.kind(), v1::Verdict::KIND_FINDING);
  EXPECT_EQ(live.finding().cause().id(), "gone-together");
  EXPECT_EQ(live.finding().level(), v1::LEVEL_ERROR);
  const v1::Verdict offline = Offline(job, 1);
  ASSERT_EQ(offline.kind(), v1::Verdict::KIND_INCONCLUSIVE);
  EXPECT_EQ(offline.reason().substr(0, offline.reason().find(':')), "unfinished");
}

// Tests that a rank that may be alive, or has never appeared, is not reported as dead.
TEST_F(RunDied, WhoCannotBeReachedHasNotDied) {
  const Job job{{Plan::kWell, Plan::kGone}};
  struct Away {
    v1::RanksGone::Cause cause;
    bool reachable;
  };
  for (const Away away :
       {Away{v1::RanksGone::CAUSE_STREAM_BROKEN, false},
        Away{v1::RanksGone::CAUSE_SERVER_AWAY, true}, Away{v1::RanksGone::CAUSE_SILENT, true},
        Away{v1::RanksGone::CAUSE_UNSPECIFIED, true}}) {
    last_.Clear();
    auto engine = Make(true);
    ASSERT_TRUE(engine->Add(job.Steps(0)).ok());
    ASSERT_TRUE(engine->Add(job.Steps(1)).ok());
    ASSERT_TRUE(engine->Add(*job.Goodbye(0)).ok());
    Gone(engine.get(), job, {1}, away.cause, away.reachable);
    Event(engine.get(), false);
    EXPECT_EQ(last_.kind(), v1::Verdict::KIND_UNSPECIFIED) << last_.ShortDebugString();
    Event(engine.get(), true);
    EXPECT_EQ(last_.kind(), v1::Verdict::KIND_INCONCLUSIVE) << away.cause;
  }
}

// Tests a proxy that was away longer than the grace period.
TEST_F(RunDied, WhoIsBackHasNotDied) {
  const Job job{{Plan::kWell, Plan::kWell}};
  auto engine = Make(true);
  ASSERT_TRUE(engine->Add(job.Steps(0)).ok());
  ASSERT_TRUE(engine->Add(job.Steps(1)).ok());
  Gone(engine.get(), job, {1});
  Event(engine.get(), false);
  EXPECT_EQ(last_.finding().strength(), v1::STRENGTH_BOUNDED);
  Job more = job;
  more.steps = 20;
  ASSERT_TRUE(engine->Add(more.Steps(1)).ok());
  ASSERT_TRUE(engine->Add(*more.Goodbye(1)).ok());
  ASSERT_TRUE(engine->Add(*more.Goodbye(0)).ok());
  Event(engine.get(), true);
  EXPECT_EQ(last_.kind(), v1::Verdict::KIND_PASS);
}

// Tests that each attempt is judged when the next begins. Open results of an earlier attempt are
// not concluded.
TEST_F(RunDied, AnAttemptIsJudgedWhenTheNextBegins) {
  for (const bool hosted : {true, false}) {
    last_.Clear();
    auto engine = Make(hosted);
    const Job first{{Plan::kException, Plan::kGone}};
    Job second{{Plan::kWell, Plan::kWell}};
    second.attempt = 1;
    for (const uint32_t rank : {0u, 1u}) ASSERT_TRUE(engine->Add(first.Steps(rank)).ok());
    ASSERT_TRUE(engine->Add(*first.Goodbye(0)).ok());
    ASSERT_TRUE(engine->Add(second.Steps(0)).ok());
    ASSERT_EQ(last_.kind(), v1::Verdict::KIND_FINDING);
    EXPECT_EQ(last_.finding().cause().id(), "exception");
    EXPECT_TRUE(last_.details().fields().at("restarted").bool_value());
    EXPECT_EQ(last_.details().fields().at("unknown").number_value(), 1);
    EXPECT_EQ(last_.details().fields().at("followed").number_value(), 0);
    ASSERT_TRUE(engine->Add(second.Steps(1)).ok());
    for (const uint32_t rank : {0u, 1u}) ASSERT_TRUE(engine->Add(*second.Goodbye(rank)).ok());
    engine->FinishRun("run");
    EXPECT_EQ(last_.kind(), v1::Verdict::KIND_PASS);
  }
}

TEST_F(RunDied, AnEngineThatTakesOverKnowsHowProcessesEnded) {
  const Job job{{Plan::kFollows, Plan::kException, Plan::kGone}};
  auto engine = Make(true);
  for (const uint32_t rank : {0u, 1u, 2u}) ASSERT_TRUE(engine->Add(job.Steps(rank)).ok());
  for (const uint32_t rank : {0u, 1u}) ASSERT_TRUE(engine->Add(*job.Goodbye(rank)).ok());
  Gone(engine.get(), job, {2});
  auto again = Make(true);
  ASSERT_TRUE(again->Restore(engine->Checkpoint()).ok());
  EXPECT_EQ(again->Checkpoint(), engine->Checkpoint());
  Event(engine.get(), true);
  const v1::Verdict expected = last_;
  ASSERT_EQ(expected.kind(), v1::Verdict::KIND_FINDING);
  last_.Clear();
  Event(again.get(), true);
  EXPECT_TRUE(MessageDifferencer::Equals(last_, expected)) << last_.ShortDebugString();
}

// Tests thousands of ranks with long text: stored text is bounded, and the first rank is still
// named.
TEST_F(RunDied, WordsAreKeptOfAFewAndCutAndTheFirstIsNamedAllTheSame) {
  constexpr uint32_t kRanks = 3000, kFirst = 1234;
  const Job job{std::vector<Plan>(kRanks, Plan::kException)};
  const auto judge = [&](uint32_t seed) {
    auto engine = Make(true);
    for (const uint32_t rank : Order(kRanks, seed)) {
      v1::Batch batch = *job.Goodbye(rank);
      v1::Ending& ending = *batch.mutable_progress(0)->mutable_ending();
      ending.set_text(std::string(4096, 'x'));
      ending.set_where(std::string(4096, 'y'));
      for (int i = 0; i < 100; ++i) ending.add_last()->set_series(std::string(4096, 'z'));
      if (rank == kFirst) ending.set_unix_ns(1);
      EXPECT_TRUE(engine->Add(std::move(batch)).ok());
    }
    // About 3 KiB for each of 64; less than 200 bytes for each of the others.
    EXPECT_LT(engine->Checkpoint().size(), 64u * 4096 + kRanks * 400);
    Event(engine.get(), true);
    EXPECT_EQ(last_.finding().site().ranks(0), kFirst);
    EXPECT_LE(last_.finding().title().size(), 70u);
    return last_;
  };
  EXPECT_TRUE(MessageDifferencer::Equals(judge(1), judge(2)));
}

}  // namespace
}  // namespace plumbline::rules
