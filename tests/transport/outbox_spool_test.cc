// The outbox with a spool: bounded memory, nothing dropped while the disk accepts it, and what was
// pushed = what a server stored + what is counted as lost, also if the process dies in between.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <random>
#include <thread>

#include "tests/agent/core/support.h"
#include "tests/transport/support.h"
#include "transport/outbox.h"

namespace plumbline::transport {
namespace {

using agent::testing::Account;
using test::TempFolder;
using testing::FullDisk;
using testing::SourceOf;
using testing::StepBatch;

constexpr uint64_t kStream = 0x0123456789abcdef;

std::unique_ptr<Outbox> NewOutbox(const TempFolder& dir, OutboxLimits limits,
                                  uint64_t spool_bytes) {
  auto spool = Spool::Create(dir.path(), SourceOf(), kStream, {spool_bytes, ""});
  EXPECT_TRUE(spool.ok()) << spool.status();
  return std::make_unique<Outbox>(limits, *std::move(spool));
}

std::unique_ptr<Outbox> AdoptedOutbox(const TempFolder& dir, OutboxLimits limits) {
  auto spool = Spool::Adopt(SpoolPath(dir.path(), v1::ROLE_TRAINER, 3, kStream), {});
  EXPECT_TRUE(spool.ok()) << spool.status();
  return std::make_unique<Outbox>(limits, *std::move(spool));
}

// A server with a journal: stores the first version of each number that reaches it.
struct Server {
  std::map<uint64_t, v1::Batch> stored;
  uint64_t held = 0;  // without a gap

  void Take(const Outbox::Numbered& next) {
    v1::Batch batch;
    ASSERT_TRUE(batch.ParseFromString(*next.body));
    stored.emplace(next.sequence, batch);
    while (stored.contains(held + 1)) ++held;
  }
  // Takes all batches, acknowledging as it goes.
  void Drain(Outbox* outbox) {
    outbox->Restart(held);
    while (auto next = outbox->TakeNext()) {
      Take(*next);
      outbox->Acknowledge(held);
    }
  }
  Account Sum() const {
    Account account;
    for (const auto& [sequence, batch] : stored) account.Add(batch);
    return account;
  }
};

TEST(SpooledOutbox, HoldsInOrderWhatMemoryCannot) {
  TempFolder dir;
  const OutboxLimits limits{50'000, 40};
  auto outbox = NewOutbox(dir, limits, 64 << 20);
  for (int64_t s = 0; s < 2000; ++s) {
    outbox->Push(Seal(StepBatch(s, 3, s % 7 == 0 ? 2000 : 0)));
    ASSERT_LE(outbox->state().bytes, limits.bytes);
  }
  EXPECT_EQ(outbox->state().batches, 2000u);
  EXPECT_EQ(outbox->state().spooled, 2000u);
  EXPECT_EQ(outbox->OldestUnsentStep(), 0);
  Server server;
  server.Drain(outbox.get());
  EXPECT_TRUE(outbox->state().empty());
  EXPECT_EQ(outbox->settled(), outbox->pushed());
  EXPECT_EQ(outbox->OldestUnsentStep(), kNoStep);
  ASSERT_EQ(server.stored.size(), 2000u);
  for (const auto& [sequence, batch] : server.stored) {
    EXPECT_EQ(batch.evidence(0).step(), static_cast<int64_t>(sequence) - 1);
  }
  const Account sum = server.Sum();
  EXPECT_EQ(sum.items, 6000u);
  EXPECT_EQ(sum.lost + sum.samples_lost, 0u);
  EXPECT_EQ(sum.samples, (2000u + 6) / 7 * 2);
}

TEST(SpooledOutbox, ADeadProcessesBatchesKeepTheirNumbers) {
  TempFolder dir;
  Server server;
  {
    auto outbox = NewOutbox(dir, {50'000, 40}, 64 << 20);
    for (int64_t s = 0; s < 100; ++s) outbox->Push(Seal(StepBatch(s, 2)));
    for (int i = 0; i < 15; ++i) server.Take(*outbox->TakeNext());
    outbox->Acknowledge(10);  // 11 to 15 are stored, but the dead process gets no acknowledgement
  }
  auto outbox = AdoptedOutbox(dir, {50'000, 40});
  EXPECT_GE(outbox->state().next_sequence, 1u);
  EXPECT_LE(outbox->state().next_sequence, 11u);
  server.Drain(outbox.get());
  EXPECT_TRUE(outbox->state().empty());
  const std::string path = outbox->spool_path();
  outbox.reset();
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_EQ(server.held, 100u);
  EXPECT_EQ(server.Sum().items, 200u);
  for (const auto& [sequence, batch] : server.stored) {
    EXPECT_EQ(batch.evidence(0).step(), static_cast<int64_t>(sequence) - 1);
  }
}

TEST(SpooledOutbox, AFullSpoolCountsWhatMemoryThenDrops) {
  TempFolder dir;
  const OutboxLimits limits{30'000, 30};
  auto outbox = NewOutbox(dir, limits, 1 << 20);
  for (int64_t s = 0; s < 3000; ++s) {
    outbox->Push(Seal(StepBatch(s, 4, 1000)));
    ASSERT_LE(outbox->state().bytes, limits.bytes) << s;
  }
  Server server;
  server.Drain(outbox.get());
  const Account sum = server.Sum();
  EXPECT_EQ(sum.items + sum.lost, 12000u);
  EXPECT_EQ(sum.complete_through, 2999);
  EXPECT_GT(sum.lost_by_cause.at("sample-spool-full"), 0u) << "raw rows first";
  EXPECT_GT(sum.lost_by_cause.at("spool-full"), 0u);
  EXPECT_EQ(sum.lost, sum.lost_by_cause.at("spool-full"));
  // The last quarter is reserved for summaries.
  EXPECT_GT(sum.items, sum.samples);
}

TEST(SpooledOutbox, AFullDiskIsCountedAndLeftAgain) {
  TempFolder dir;
  const OutboxLimits limits{20'000, 30};
  auto outbox = NewOutbox(dir, limits, 64 << 20);
  int64_t step = 0;
  for (; step < 20; ++step) outbox->Push(Seal(StepBatch(step, 4, 100)));
  {
    const FullDisk full(4096);
    for (; step < 600; ++step) outbox->Push(Seal(StepBatch(step, 4, 100)));
    EXPECT_LE(outbox->state().bytes, limits.bytes);
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  for (; step < 700; ++step) outbox->Push(Seal(StepBatch(step, 4, 100)));
  EXPECT_EQ(outbox->state().spooled, outbox->state().batches) << "the disk has everything again";
  Server server;
  server.Drain(outbox.get());
  EXPECT_TRUE(outbox->state().empty());
  const Account sum = server.Sum();
  EXPECT_EQ(sum.items + sum.lost, 2800u);
  EXPECT_GT(sum.lost_by_cause.at("spool-write"), 0u);
  EXPECT_EQ(sum.lost, sum.lost_by_cause.at("spool-write"));
  EXPECT_EQ(sum.complete_through, 699);
}

TEST(SpooledOutbox, RemembersWhichSeriesSetsWereStated) {
  Outbox outbox({});
  for (const uint64_t id : {5u, 9u, 5u}) {
    v1::Batch batch = StepBatch(1, 1);
    batch.add_series_sets()->set_id(id);
    outbox.Push(Seal(batch));
  }
  ASSERT_EQ(outbox.series_sets().size(), 2u);
  EXPECT_EQ(outbox.series_sets()[1].id(), 9u);
}

// Random schedules: pushes, lost sends, acknowledgements, broken streams, refusals, and deaths of
// the process, after which the spool is adopted. The spool is never full, so only what a refusal
// counts may be missing.
TEST(SpooledOutbox, ConservesEvidenceOverRandomSchedulesAndDeaths) {
  for (uint32_t seed = 0; seed < 150; ++seed) {
    std::mt19937 random(seed);
    TempFolder dir;
    const OutboxLimits limits{2000 + random() % 20000, 4 + random() % 40};
    auto outbox = NewOutbox(dir, limits, 256 << 20);
    Server server;
    std::map<uint64_t, bool> refused;
    uint64_t produced = 0, acknowledged = 0;
    const bool refuses = seed % 3 == 0;
    bool adopted = false;

    const auto serve = [&](const Outbox::Numbered& next) {
      v1::Batch batch;
      ASSERT_TRUE(batch.ParseFromString(*next.body));
      if (refuses && !server.stored.contains(next.sequence) && batch.evidence_size() != 0 &&
          random() % 6 == 0) {
        refused[next.sequence] = true;
        batch = v1::Batch();
        server.stored.emplace(next.sequence, batch);  // its number is used up
        while (server.stored.contains(server.held + 1)) ++server.held;
        return;
      }
      server.Take(next);
    };
    const auto acknowledge = [&] {
      for (uint64_t n = acknowledged + 1; n <= server.held; ++n) {
        if (refused.contains(n)) outbox->Reject(n);
      }
      acknowledged = std::max(acknowledged, server.held);
      outbox->Acknowledge(acknowledged);
    };

    for (int64_t step = 0; step < 120; ++step) {
      if (!adopted) {
        const v1::Batch batch = StepBatch(step, static_cast<int>(random() % 5),
                                          random() % 3 == 0 ? random() % 2000 : 0);
        produced += static_cast<uint64_t>(batch.evidence_size());
        outbox->Push(Seal(batch));
      }
      for (uint32_t i = 0, n = random() % 4; i < n; ++i) {
        auto next = outbox->TakeNext();
        if (!next) break;
        if (random() % 8 == 0) {  // lost on the way: the stream breaks
          acknowledge();
          outbox->Restart(acknowledged);
          break;
        }
        serve(*next);
      }
      if (random() % 3 == 0) acknowledge();
      if (random() % 10 == 0) {
        acknowledge();
        outbox->Restart(acknowledged);
      }
      const bool dies = !refuses && !adopted && step > 60 && random() % 40 == 0;
      if (dies && !outbox->state().empty()) {
        outbox.reset();
        outbox = AdoptedOutbox(dir, limits);
        outbox->Restart(server.held);
        adopted = true;
      }
    }
    for (int round = 0; !outbox->state().empty() && round < 1000; ++round) {
      outbox->Restart(acknowledged);
      while (auto next = outbox->TakeNext()) serve(*next);
      acknowledge();
    }
    ASSERT_TRUE(outbox->state().empty()) << "seed " << seed;
    const Account sum = server.Sum();
    EXPECT_EQ(sum.items + sum.lost, produced) << "seed " << seed;
    if (!refuses) {
      EXPECT_EQ(sum.lost, 0u) << "seed " << seed;
    }
    if (!adopted) {
      EXPECT_EQ(outbox->settled(), outbox->pushed()) << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace plumbline::transport
