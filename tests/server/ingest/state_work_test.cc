// The cost of a message does not grow with the known state. With four times as many ranks, streams
// or runs, all messages together take less than thirteen times as long (a product would take
// sixteen; apart from caches, linear is four), and a single message takes hardly longer.
#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <deque>
#include <memory>

#include "server/ingest/pacer.h"
#include "server/stream/claimed_ranks.h"
#include "server/stream/liveness.h"
#include "tests/support/batches.h"

namespace plumbline::server {
namespace {

using Resumes = std::vector<Pacer::Resume>;

// Returns the CPU time of this thread, because other processes may use the machine.
double CpuSeconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

double Seconds(const std::function<void()>& work) {
  const double start = CpuSeconds();
  work();
  return CpuSeconds() - start;
}

// Returns the factor by which the work takes longer at four times the size. Uses the least of some
// tries, because caches are shared.
double Growth(const std::function<std::function<void()>(int size)>& prepare, int size) {
  double least = 1e9;
  for (int attempt = 0; attempt < 5 && least > 3; ++attempt) {
    double small = 1e9, large = 1e9;
    for (int i = 0; i < 3; ++i) {
      small = std::min(small, Seconds(prepare(size)));
      large = std::min(large, Seconds(prepare(4 * size)));
    }
    least = std::min(least, large / small);
  }
  return least;
}

v1::Hello HelloOf(int ranks, const std::string& run = "run", uint32_t first = 0) {
  v1::Hello hello;
  for (int i = 0; i < ranks; ++i)
    *hello.add_sources() = test::SourceOf(run, first + static_cast<uint32_t>(i), 0);
  return hello;
}

v1::Batch ProgressOf(const v1::Hello& hello, int64_t step) {
  v1::Batch batch;
  for (int i = 0; i < hello.sources_size(); ++i) {
    *batch.add_sources() = hello.sources(i);
    test::AddProgress(&batch, step).set_source(static_cast<uint32_t>(i));
  }
  return batch;
}

TEST(StateWork, ABatchOfManyRanksIsPacedInLinearTime) {
  const auto prepare = [](int ranks) {
    const v1::Hello hello = HelloOf(ranks);
    return [hello] {
      Pacer pacer({});
      Resumes free;
      int call = 0;
      pacer.Join(1, &call, hello, &free);
      for (int64_t step = 0; step < 5; ++step)
        EXPECT_TRUE(pacer.Hear(
            1, ProgressOf(hello, step), 1, [] {}, &free));
    };
  };
  EXPECT_LT(Growth(prepare, 8000), 13);
}

// A heartbeat of a stream of many ranks.
TEST(StateWork, ABeatOfManyRanksIsPacedAtOnce) {
  const auto prepare = [](int ranks) {
    auto pacer = std::make_shared<Pacer>(Pacer::Options());
    auto call = std::make_shared<int>();
    Resumes free;
    const v1::Hello hello = HelloOf(ranks);
    pacer->Join(1, call.get(), hello, &free);
    pacer->Hear(
        1, ProgressOf(hello, 1), 1, [] {}, &free);
    return [pacer, call] {
      Resumes freed;
      v1::Heartbeat beat;
      beat.set_any_step(true);
      for (int i = 0; i < 20000; ++i) {
        beat.set_oldest_unsent_step(i % 2);
        pacer->Hear(1, beat, &freed);
      }
    };
  };
  EXPECT_LT(Growth(prepare, 1000), 2.5);
}

// Streams of one call, each of which reports its progress.
TEST(StateWork, ManyStreamsOfOneCallArePacedInLinearTime) {
  const auto prepare = [](int streams) {
    return [streams] {
      Pacer pacer({});
      Resumes free;
      int call = 0;
      for (int i = 0; i < streams; ++i)
        pacer.Join(static_cast<uint64_t>(i + 1), &call, HelloOf(1, "run", static_cast<uint32_t>(i)),
                   &free);
      for (int i = 0; i < streams; ++i) {
        const v1::Batch batch = ProgressOf(HelloOf(1, "run", static_cast<uint32_t>(i)), 1);
        pacer.Hear(
            static_cast<uint64_t>(i + 1), batch, 1, [] {}, &free);
      }
      for (int i = 0; i < streams; ++i) pacer.Leave(static_cast<uint64_t>(i + 1), &free);
    };
  };
  EXPECT_LT(Growth(prepare, 6000), 13);
}

// If a stream names ever new attempts, only the last of them are kept.
TEST(StateWork, AStreamOfEverNewAttemptsIsKeptSmall) {
  Pacer pacer({});
  Resumes free;
  int call = 0;
  pacer.Join(1, &call, HelloOf(1), &free);
  const auto attempts = [&](uint32_t first, uint32_t count) {
    return Seconds([&] {
      for (uint32_t i = 0; i < count; ++i) {
        v1::Hello hello = HelloOf(1);
        hello.mutable_sources(0)->set_attempt(first + i);
        EXPECT_TRUE(pacer.Hear(
            1, ProgressOf(hello, 1), 1, [] {}, &free));
      }
    });
  };
  const double first = attempts(1, 5000);
  double later = 1e9;
  for (uint32_t i = 1; i <= 4; ++i) later = std::min(later, attempts(5000 * i + 1, 5000));
  EXPECT_LT(later, 5 * first);
}

TEST(StateWork, RanksThatComeAgainAreFoundInLinearTime) {
  const auto prepare = [](int ranks) {
    return [ranks] {
      Liveness live;
      const Liveness::Time now{};
      for (uint64_t id = 1; id <= 4; ++id) {
        v1::Hello hello = HelloOf(ranks);
        hello.set_stream_id(id);
        live.Joined(hello, 1, now);
        live.Left(id, 1, now);
      }
      EXPECT_EQ(live.States("run", now)["gone"], static_cast<uint64_t>(ranks));
    };
  };
  EXPECT_LT(Growth(prepare, 8000), 13);
}

// The list of runs computes the state of each.
TEST(StateWork, StatesOfManyRunsAreFoundInLinearTime) {
  const auto prepare = [](int runs) {
    auto live = std::make_shared<Liveness>();
    for (int i = 0; i < runs; ++i) {
      v1::Hello hello = HelloOf(1, "run" + std::to_string(i));
      hello.set_stream_id(static_cast<uint64_t>(i + 1));
      live->Joined(hello, 1, {});
    }
    return [live, runs] {
      for (int i = 0; i < runs; ++i)
        EXPECT_EQ(live->States("run" + std::to_string(i), {})["running"], 1u);
      for (int i = 0; i < runs; ++i) live->Forget("run" + std::to_string(i));
    };
  };
  EXPECT_LT(Growth(prepare, 6000), 13);
}

// A stream's heartbeats and connections share one list with the judge instead of a copy each.
TEST(StateWork, TheRanksOfAStreamAreSharedUntilTheyChange) {
  ClaimedRanks ranks;
  const v1::Hello hello = HelloOf(4096);
  for (const v1::Source& source : hello.sources()) ranks.Add(source);
  const auto shared = ranks.Shared();
  EXPECT_EQ(shared, ranks.Shared());
  ranks.Add(test::SourceOf("run", 5000, 0));
  EXPECT_EQ(shared->size(), 4096u);
  EXPECT_EQ(ranks.Shared()->size(), 4097u);
}

}  // namespace
}  // namespace plumbline::server
