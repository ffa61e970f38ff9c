// Blocks of entries are restored byte for byte, or an error is reported.
#include "server/journal/packed_block.h"

#include <gmock/gmock.h>

#include "server/packing/value_runs.h"
#include "tests/server/journal/packed_support.h"

namespace plumbline::server {
namespace {

using testing::HasSubstr;
using Entries = std::vector<std::pair<FrameType, std::string>>;

std::string Pack(const Entries& entries) {
  BlockPacker packer;
  for (const auto& [type, payload] : entries) packer.Add(type, payload);
  std::string block;
  EXPECT_TRUE(packer.Finish(&block));
  EXPECT_EQ(packer.bytes(), 0u);
  return block;
}

Entries Unpack(std::string_view block) {
  Entries entries;
  BlockReader reader;
  std::string why;
  EXPECT_TRUE(reader.Open(block, &why)) << why;
  FrameType type;
  std::string_view payload;
  while (reader.Next(&type, &payload)) entries.emplace_back(type, payload);
  return entries;
}

Entries ByChance(unsigned seed, size_t count) {
  EntryMaker maker(seed);
  Entries entries;
  for (size_t i = 0; i < count; ++i) entries.push_back(maker.Entry());
  return entries;
}

TEST(PackedBlock, EveryByteOfEveryEntryComesBack) {
  const auto rounds = static_cast<unsigned>(test::Rounds(150, 5000));
  size_t before = 0, after = 0;
  for (unsigned seed = 0; seed < rounds; ++seed) {
    const Entries entries = ByChance(seed, 1 + seed % 60);
    const std::string block = Pack(entries);
    ASSERT_EQ(Unpack(block), entries) << "seed " << seed;
    for (const auto& [type, payload] : entries) before += payload.size();
    after += block.size();
  }
  EXPECT_LT(after, before);
}

TEST(PackedBlock, OneAfterAnotherFromTheSamePacker) {
  BlockPacker packer;
  BlockReader reader;
  for (unsigned seed = 0; seed < 20; ++seed) {
    const Entries entries = ByChance(seed, 10);
    for (const auto& [type, payload] : entries) packer.Add(type, payload);
    std::string block, why;
    ASSERT_TRUE(packer.Finish(&block));
    ASSERT_TRUE(reader.Open(block, &why)) << why;
    FrameType type;
    std::string_view payload;
    for (const auto& [expected_type, expected] : entries) {
      ASSERT_TRUE(reader.Next(&type, &payload));
      EXPECT_EQ(type, expected_type);
      EXPECT_EQ(payload, expected);
    }
    EXPECT_FALSE(reader.Next(&type, &payload));
  }
}

// Batches with 400 samples of 8 ranks, as agents send them. Noise of a 10,000th of a float around 2
// has 24 unpredictable bits besides sign and exponent: 2 to 3 bytes, plus rows, names and numbers.
TEST(PackedBlock, SamplesTakeAThirdOfTheirBytes) {
  std::mt19937 random(1);
  std::normal_distribution<float> noise(2, 0.01F);
  Entries entries;
  size_t before = 0, samples = 0;
  for (uint64_t number = 1; before < kFullBlock; ++number) {
    v1::Batch batch;
    batch.set_stream_id(number % 50);
    batch.set_sequence(number / 50);
    v1::SeriesRows& rows = *batch.add_series();
    rows.set_set(1);
    for (uint32_t rank = 0; rank < 8; ++rank) {
      v1::Source& source = *batch.add_sources();
      source.set_run("a run of some name");
      source.set_host("host-" + std::to_string(number % 50));
      source.set_rank(static_cast<uint32_t>(8 * (number % 50) + rank));
      rows.add_source(rank);
      rows.add_step(static_cast<int64_t>(number / 50));
      for (int column = 0; column < 50; ++column) rows.add_value(noise(random));
    }
    const EntryPrefix prefix{number, static_cast<int64_t>(number * 1000003), number % 50,
                             number / 50};
    const auto head = prefix.Encode();
    entries.emplace_back(FrameType::kJournalBatch,
                         std::string(head.data(), head.size()) + batch.SerializeAsString());
    before += entries.back().second.size();
    samples += 400;
  }
  const std::string block = Pack(entries);
  EXPECT_EQ(Unpack(block), entries);
  EXPECT_LT(static_cast<double>(block.size()) / static_cast<double>(samples), 3.0);
  EXPECT_GT(static_cast<double>(before) / static_cast<double>(samples), 8.0);
}

// FindValueRuns returns the same for a batch with and without its values.
TEST(PackedBlock, ValuesAreFoundWithAndWithoutThem) {
  size_t found = 0;
  for (unsigned seed = 0; seed < 500; ++seed) {
    const std::string wire = EntryMaker(seed).Body();
    std::vector<ValueRun> with, without;
    size_t size = 0;
    if (!FindValueRuns(wire, false, &with, &size)) continue;
    EXPECT_EQ(size, wire.size());
    std::string cut = wire;
    for (auto run = with.rbegin(); run != with.rend(); ++run) cut.erase(run->at, 8 * run->count);
    ASSERT_TRUE(FindValueRuns(cut, true, &without, &size)) << "seed " << seed;
    EXPECT_EQ(size, wire.size());
    ASSERT_EQ(with.size(), without.size());
    for (size_t i = 0; i < with.size(); ++i) {
      EXPECT_EQ(with[i].at, without[i].at);
      EXPECT_EQ(with[i].count, without[i].count);
      EXPECT_EQ(with[i].set, without[i].set);
      EXPECT_EQ(with[i].rows, without[i].rows);
      EXPECT_EQ(with[i].sources, without[i].sources);
    }
    found += with.size();
  }
  EXPECT_GT(found, 300u);
}

// The checksums are correct, but the contents are wrong. Decoding must end, and never use more
// memory than a block may have.
TEST(PackedBlock, LyingBlocksAreRefusedOrReadAsFarAsTheyGo) {
  const auto rounds = static_cast<unsigned>(test::Rounds(3000, 200000));
  const std::string good = Pack(ByChance(1, 40));
  size_t refused = 0;
  for (unsigned seed = 0; seed < rounds; ++seed) {
    std::mt19937 random(seed);
    std::string block = good;
    if (seed % 2 == 0) {
      block = test::DamageBytes(block, random);
    } else {  // a number of the header
      const auto any = static_cast<uint32_t>(random());
      const uint32_t lies[] = {0, 1, 0x7FFFFFFF, 0xFFFFFFFF, any % 4096, any};
      std::memcpy(block.data() + 4 * (random() % 5), &lies[random() % 6], 4);
    }
    BlockReader reader;
    std::string why;
    if (!reader.Open(block, &why)) {
      ++refused;
      EXPECT_THAT(why, HasSubstr("expected a packed block"));
    }
    FrameType type;
    std::string_view payload;
    size_t bytes = 0;
    while (reader.Next(&type, &payload)) {
      bytes += payload.size();
      EXPECT_TRUE(IsEntry(type));
    }
    EXPECT_LE(bytes, kMostBlock);
  }
  EXPECT_GT(refused, rounds / 2);
}

TEST(PackedBlock, StatesWhatItIsNot) {
  BlockReader reader;
  std::string why;
  EXPECT_FALSE(reader.Open("short", &why));
  EXPECT_THAT(why, HasSubstr("a header"));
  std::string block = Pack(ByChance(2, 3));
  block[0] = 2;
  EXPECT_FALSE(reader.Open(block, &why));
  EXPECT_EQ(why, "expected a packed block of form 1, found form 2");
  block[0] = 1;
  EXPECT_FALSE(reader.Open(block.substr(0, block.size() - 1), &why));
  EXPECT_FALSE(reader.Open(block + "x", &why));
  EXPECT_TRUE(reader.Open(block, &why)) << why;
}

}  // namespace
}  // namespace plumbline::server
