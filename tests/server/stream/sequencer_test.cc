#include "server/stream/sequencer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace plumbline::server {
namespace {

ParsedBatch Numbered(uint64_t sequence, size_t bytes = 10) {
  ParsedBatch batch;
  batch.batch = std::make_shared<v1::Batch>();
  batch.batch->set_sequence(sequence);
  batch.bytes = bytes;
  return batch;
}

std::vector<uint64_t> Sequences(const std::vector<ParsedBatch>& batches) {
  std::vector<uint64_t> out;
  for (const ParsedBatch& b : batches) out.push_back(b.batch->sequence());
  return out;
}

using Offer = Sequencer::Offer;

TEST(Sequencer, LetsEachBatchThroughOnceAndInOrderWhateverTheArrival) {
  for (unsigned seed = 0; seed < 50; ++seed) {
    std::mt19937 random(seed);
    std::vector<uint64_t> arrivals;
    for (uint64_t s = 1; s <= 40; ++s) arrivals.insert(arrivals.end(), 1 + random() % 3, s);
    std::shuffle(arrivals.begin(), arrivals.end(), random);
    Sequencer sequencer({64, 1 << 20});
    std::vector<ParsedBatch> ready;
    uint64_t duplicates = 0;
    for (const uint64_t s : arrivals) {
      duplicates += sequencer.Take(s, Numbered(s), &ready) == Offer::kDuplicate;
    }
    std::vector<uint64_t> expected(40);
    for (size_t i = 0; i < 40; ++i) expected[i] = i + 1;
    EXPECT_EQ(Sequences(ready), expected) << "seed " << seed;
    EXPECT_EQ(duplicates, arrivals.size() - 40);
    EXPECT_EQ(sequencer.waiting(), 0u);
  }
}

TEST(Sequencer, ARefusedBatchHasItsTurnAndUsesUpItsNumber) {
  Sequencer sequencer({4, 1000});
  std::vector<ParsedBatch> ready;
  ParsedBatch refused = Numbered(2);
  refused.refused = "why";
  EXPECT_EQ(sequencer.Take(2, std::move(refused), &ready), Offer::kWaits);
  EXPECT_EQ(sequencer.Take(1, Numbered(1), &ready), Offer::kInOrder);
  EXPECT_EQ(sequencer.Take(3, Numbered(3), &ready), Offer::kInOrder);
  EXPECT_EQ(Sequences(ready), (std::vector<uint64_t>{1, 2, 3}));
  EXPECT_EQ(ready[1].refused, "why");
  EXPECT_EQ(sequencer.contiguous(), 3u);
}

TEST(Sequencer, GoesOnWhereAFormerOneStood) {
  Sequencer sequencer({4, 1000}, 7);
  std::vector<ParsedBatch> ready;
  EXPECT_EQ(sequencer.contiguous(), 7u);
  EXPECT_EQ(sequencer.Take(7, Numbered(7), &ready), Offer::kDuplicate);
  EXPECT_EQ(sequencer.Take(8, Numbered(8), &ready), Offer::kInOrder);
}

TEST(Sequencer, WaitsWithinBoundsOnly) {
  Sequencer by_count({2, 1000});
  std::vector<ParsedBatch> ready;
  EXPECT_EQ(by_count.Take(2, Numbered(2), &ready), Offer::kWaits);
  EXPECT_EQ(by_count.Take(3, Numbered(3), &ready), Offer::kWaits);
  EXPECT_EQ(by_count.Take(4, Numbered(4), &ready), Offer::kOverflow);
  EXPECT_EQ(by_count.Take(1, Numbered(1), &ready), Offer::kInOrder);
  EXPECT_EQ(by_count.contiguous(), 3u);

  Sequencer by_bytes({10, 100});
  EXPECT_EQ(by_bytes.Take(2, Numbered(2, 80), &ready), Offer::kWaits);
  EXPECT_EQ(by_bytes.Take(3, Numbered(3, 30), &ready), Offer::kOverflow);
  // The bytes are free again once the gap is filled.
  EXPECT_EQ(by_bytes.Take(1, Numbered(1), &ready), Offer::kInOrder);
  EXPECT_EQ(by_bytes.Take(4, Numbered(4, 80), &ready), Offer::kWaits);
}

TEST(Sequencer, SkipsWhatWillNeverCome) {
  Sequencer sequencer({10, 1000});
  std::vector<ParsedBatch> ready;
  sequencer.Take(1, Numbered(1), &ready);
  sequencer.Take(3, Numbered(3), &ready);
  sequencer.Take(6, Numbered(6), &ready);
  EXPECT_EQ(sequencer.SkipTo(6, &ready), 3u);  // 2, 4, 5; 3 did arrive
  EXPECT_EQ(Sequences(ready), (std::vector<uint64_t>{1, 3, 6}));
  EXPECT_EQ(sequencer.contiguous(), 6u);
  EXPECT_EQ(sequencer.SkipTo(2, &ready), 0u);  // never backwards
  EXPECT_EQ(sequencer.contiguous(), 6u);
}

}  // namespace
}  // namespace plumbline::server
