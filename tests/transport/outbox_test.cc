// The outbox and its edits: whatever is dropped, produced = received + reported as lost.
#include "transport/outbox.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "tests/agent/core/support.h"
#include "tests/transport/support.h"

namespace plumbline::transport {
namespace {

using agent::testing::Account;
using agent::testing::AccountOf;
using agent::testing::SiteKey;
using testing::StepBatch;

v1::Batch Received(const Outbox::Numbered& numbered, uint64_t stream_id = 99) {
  v1::Batch batch;
  EXPECT_TRUE(batch.ParseFromString(*numbered.body + BatchNumber(stream_id, numbered.sequence)));
  return batch;
}

TEST(BatchEdit, NumberIsPartOfTheSameMessage) {
  const v1::Batch batch = StepBatch(3, 4, 10);
  v1::Batch back;
  ASSERT_TRUE(back.ParseFromString(*Seal(batch).body + BatchNumber(0x1234567890ABCDEF, 300)));
  EXPECT_EQ(back.stream_id(), 0x1234567890ABCDEFu);
  EXPECT_EQ(back.sequence(), 300u);
  back.clear_stream_id();
  back.clear_sequence();
  EXPECT_EQ(back.SerializeAsString(), batch.SerializeAsString());
}

TEST(BatchEdit, SamplesGoSummariesStay) {
  const SealedBatch sealed = Seal(StepBatch(3, 4, 1000));
  EXPECT_EQ(sealed.items, 4u);
  EXPECT_EQ(sealed.samples, 2u);
  const SealedBatch less = WithoutSamples(sealed, "sample-queue-full");
  EXPECT_EQ(less.items, 4u);
  EXPECT_EQ(less.samples, 0u);
  const v1::Batch batch = Parsed(less);
  EXPECT_EQ(batch.evidence(0).routing().summary().tokens(), 7u);
  EXPECT_EQ(batch.evidence(0).routing().no_sample_reason(), "dropped: sample-queue-full");
  const Account account = AccountOf({batch});
  EXPECT_EQ(account.samples_lost, 2u);
  EXPECT_EQ(account.lost, 0u);
}

TEST(BatchEdit, EvidenceGoesProgressAndDeclarationsStay) {
  v1::Batch batch = StepBatch(3, 5, 0);
  batch.add_declarations()->set_kind("scalar");
  AddLoss(&batch, "ring-full", &batch.evidence(1).site(), 4, 1, 2);
  const v1::Batch hollow = Parsed(WithoutEvidence(Seal(batch), "queue-full", {}));
  EXPECT_EQ(hollow.evidence_size(), 0);
  EXPECT_EQ(hollow.progress(0).complete_through(), 3);
  EXPECT_EQ(hollow.declarations_size(), 1);
  const Account account = AccountOf({hollow});
  EXPECT_EQ(account.lost_by_cause.at("queue-full"), 5u);
  EXPECT_EQ(account.lost_by_cause.at("ring-full"), 4u);
}

TEST(BatchEdit, MergedLossesAddUpAndSpanTheirSteps) {
  const SealedBatch a = WithoutEvidence(Seal(StepBatch(3, 2, 0)), "queue-full", {});
  const SealedBatch b = WithoutEvidence(Seal(StepBatch(9, 2, 0)), "queue-full", {});
  const v1::Batch merged = Parsed(Merged(a, b));
  ASSERT_EQ(merged.losses_size(), 2);
  for (const v1::Loss& l : merged.losses()) {
    EXPECT_EQ(l.count(), 2u);
    EXPECT_EQ(l.step_first(), 3);
    EXPECT_EQ(l.step_last(), 9);
  }
  ASSERT_EQ(merged.progress_size(), 1);
  EXPECT_EQ(merged.progress(0).complete_through(), 9);
  EXPECT_EQ(merged.sources_size(), 1);
}

TEST(Outbox, NumbersWithoutGapsAndResendsWhatIsOpen) {
  Outbox outbox({});
  for (int64_t s = 0; s < 5; ++s) outbox.Push(Seal(StepBatch(s, 1, 0)));
  for (uint64_t n = 1; n <= 4; ++n) EXPECT_EQ(outbox.TakeNext()->sequence, n);
  outbox.Acknowledge(2);
  EXPECT_EQ(outbox.state().next_sequence, 3u);
  EXPECT_FALSE(outbox.Restart(2));
  for (uint64_t n = 3; n <= 5; ++n) EXPECT_EQ(outbox.TakeNext()->sequence, n);
  EXPECT_FALSE(outbox.TakeNext().has_value());
  EXPECT_EQ(outbox.settled(), 2u);
  outbox.Acknowledge(5);
  EXPECT_TRUE(outbox.state().empty());
  EXPECT_EQ(outbox.state().bytes, 0u);
  EXPECT_EQ(outbox.settled(), 5u);
  EXPECT_EQ(outbox.pushed(), 5u);
}

TEST(Outbox, NoticesThatTheServerForgot) {
  Outbox outbox({});
  outbox.Push(Seal(StepBatch(0, 1, 0)));
  outbox.TakeNext();
  outbox.Acknowledge(1);
  EXPECT_FALSE(outbox.Restart(1));
  EXPECT_TRUE(outbox.Restart(0));
}

TEST(Outbox, AnAbsurdAcknowledgementIsCutToWhatWasSent) {
  Outbox outbox({});
  outbox.Push(Seal(StepBatch(0, 1, 0)));
  outbox.Push(Seal(StepBatch(1, 1, 0)));
  outbox.TakeNext();
  outbox.Acknowledge(1000);
  EXPECT_EQ(outbox.state().batches, 1u);
  EXPECT_EQ(outbox.state().acknowledged, 1u);
  EXPECT_EQ(outbox.TakeNext()->sequence, 2u);
}

TEST(Outbox, DropsSamplesBeforeSummariesOldestFirst) {
  Outbox outbox({100'000, 1000});
  for (int64_t s = 0; s < 12; ++s) outbox.Push(Seal(StepBatch(s, 1, 10'000)));
  std::vector<v1::Batch> batches;
  while (auto next = outbox.TakeNext()) batches.push_back(Received(*next));
  const Account account = AccountOf(batches);
  EXPECT_EQ(account.items, 12u) << "summaries are kept";
  EXPECT_EQ(account.lost, 0u);
  EXPECT_GT(account.samples_lost, 0u);
  EXPECT_EQ(account.samples + account.samples_lost, 12u);
  ASSERT_FALSE(batches.empty());
  EXPECT_FALSE(batches.front().evidence(0).routing().has_sample());
  EXPECT_TRUE(batches.back().evidence(0).routing().has_sample());
}

TEST(Outbox, StaysBoundedHoweverLongTheServerIsAway) {
  const OutboxLimits limits{20'000, 50};
  Outbox outbox(limits);
  for (int64_t s = 0; s < 3000; ++s) {
    outbox.Push(Seal(StepBatch(s, 3, s % 10 == 0 ? 500 : 0)));
    ASSERT_LE(outbox.state().bytes, limits.bytes);
    ASSERT_LE(outbox.state().batches, limits.batches);
  }
  Account account;
  std::vector<uint64_t> sequences;
  while (auto next = outbox.TakeNext()) {
    account.Add(Received(*next));
    sequences.push_back(next->sequence);
    outbox.Acknowledge(next->sequence);
  }
  EXPECT_EQ(account.items + account.lost, 9000u);
  EXPECT_GT(account.items, 0u);
  EXPECT_EQ(account.complete_through, 2999);
  for (size_t i = 0; i < sequences.size(); ++i) EXPECT_EQ(sequences[i], i + 1);
}

TEST(Outbox, RejectedEvidenceIsReportedLostOnce) {
  Outbox outbox({});
  v1::Batch batch = StepBatch(4, 3, 100);
  AddLoss(&batch, "ring-full", &batch.evidence(0).site(), 2, 4, 4);
  outbox.Push(Seal(batch));
  outbox.Push(Seal(StepBatch(5, 1, 0)));
  outbox.TakeNext();
  outbox.Reject(1);
  outbox.Acknowledge(1);
  Account account;
  while (auto next = outbox.TakeNext()) account.Add(Received(*next));
  EXPECT_EQ(account.lost_by_cause.at("rejected"), 3u);
  EXPECT_EQ(account.lost_by_cause.at("ring-full"), 2u);
  EXPECT_EQ(account.items, 1u);
  // The report itself is refused: it is sent once more, without names, and is then given up.
  outbox.Reject(3);
  outbox.Acknowledge(3);
  const auto last = outbox.TakeNext();
  ASSERT_TRUE(last.has_value());
  const v1::Batch sums = Received(*last);
  EXPECT_EQ(sums.declarations_size() + sums.series_sets_size() + sums.evidence_size(), 0);
  Account again;
  again.Add(sums);
  EXPECT_EQ(again.lost_by_cause.at("rejected"), 3u);
  EXPECT_EQ(again.lost_by_cause.at("ring-full"), 2u);
  for (const v1::Loss& loss : sums.losses()) EXPECT_FALSE(loss.has_site());
  outbox.Reject(4);
  outbox.Acknowledge(4);
  EXPECT_TRUE(outbox.state().empty());
  EXPECT_EQ(outbox.state().rejected, 3u);
  outbox.Reject(77);
}

// Random schedules of pushes, sends, breaks, losses and refusals. The server keeps the first
// version of each sequence that reaches it, like a journal.
TEST(Outbox, ConservesEvidenceOverRandomSchedules) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    const OutboxLimits limits{2000 + random() % 40000, 4 + random() % 40};
    Outbox outbox(limits);
    std::map<SiteKey, uint64_t> produced;
    uint64_t samples_produced = 0;
    std::map<uint64_t, v1::Batch> stored;
    std::map<uint64_t, bool> refused;
    uint64_t acknowledged = 0;
    const bool refuses = seed % 3 == 0;

    const auto serve = [&](const Outbox::Numbered& next) {
      if (refused.count(next.sequence) != 0) return;
      const v1::Batch batch = Received(next);
      if (refuses && stored.count(next.sequence) == 0 && batch.evidence_size() != 0 &&
          random() % 5 == 0) {
        refused[next.sequence] = true;
        return;
      }
      stored.emplace(next.sequence, batch);
    };
    const auto acknowledge = [&](uint64_t through) {
      for (uint64_t n = acknowledged + 1; n <= through; ++n) {
        if (refused.count(n) != 0) outbox.Reject(n);
      }
      acknowledged = std::max(acknowledged, through);
      outbox.Acknowledge(through);
    };
    const auto received_through = [&] {
      uint64_t n = acknowledged;
      while (stored.count(n + 1) != 0 || refused.count(n + 1) != 0) ++n;
      return n;
    };

    for (int64_t step = 0; step < 150; ++step) {
      const v1::Batch batch =
          StepBatch(step, static_cast<int>(random() % 6), random() % 3 == 0 ? random() % 3000 : 0);
      for (const v1::Evidence& e : batch.evidence()) {
        ++produced[{e.site().layer(), e.site().op()}];
        samples_produced += e.routing().has_sample();
      }
      outbox.Push(Seal(batch));
      ASSERT_LE(outbox.state().batches, limits.batches + 1) << "seed " << seed;
      for (uint32_t i = 0, n = random() % 4; i < n; ++i) {
        if (auto next = outbox.TakeNext()) {
          if (random() % 8 != 0)
            serve(*next);  // otherwise lost on the way; the stream breaks below
          else
            acknowledge(received_through()), outbox.Restart(acknowledged);
        }
      }
      if (random() % 4 == 0) acknowledge(received_through());
      if (random() % 10 == 0) acknowledge(received_through()), outbox.Restart(acknowledged);
    }
    for (int round = 0; !outbox.state().empty() && round < 1000; ++round) {
      outbox.Restart(acknowledged);
      while (auto next = outbox.TakeNext()) serve(*next);
      acknowledge(received_through());
    }
    ASSERT_TRUE(outbox.state().empty());

    Account account;
    for (const auto& [sequence, batch] : stored) account.Add(batch);
    for (const auto& [site, count] : produced) {
      EXPECT_EQ(account.items_by_site[site] + account.lost_by_site[site], count)
          << "seed " << seed << " site " << site.first << " " << site.second;
    }
    EXPECT_EQ(account.complete_through, 149);
    if (!refuses) {
      // Samples of an item that was dropped are lost with it, so only a bound holds for them.
      EXPECT_LE(account.samples + account.samples_lost, samples_produced);
      EXPECT_GE(account.samples + account.samples_lost + account.lost, samples_produced);
    }
  }
}

}  // namespace
}  // namespace plumbline::transport
