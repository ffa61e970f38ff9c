#include "server/store/tile.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>

#include "tests/server/store_support.h"

namespace plumbline::server {
namespace {

std::vector<uint64_t> Bits(const std::vector<double>& values) {
  std::vector<uint64_t> bits;
  for (double v : values) bits.push_back(std::bit_cast<uint64_t>(v));
  return bits;
}

Tile RandomTile(std::mt19937_64& random, size_t steps, uint64_t ranks, bool scattered,
                bool with_absent) {
  Tile tile;
  int64_t step = static_cast<int64_t>(random() % 100000) - 50000;
  for (size_t i = 0; i < steps; ++i) {
    tile.steps.push_back(step);
    step += scattered ? 1 + static_cast<int64_t>(random() % 1000) : 1;
  }
  tile.ranks = ranks;
  const size_t cells = steps * tile.columns();
  if (with_absent) tile.absent.assign((cells + 63) / 64, 0);
  for (size_t i = 0; i < cells; ++i) {
    const bool absent = with_absent && random() % 3 == 0;
    if (absent) tile.absent[i / 64] |= uint64_t{1} << (i % 64);
    tile.values.push_back(absent ? 0.0 : test::AnyDouble(random));
  }
  return tile;
}

TEST(Tile, KeepsEveryBitOfAnyShape) {
  std::mt19937_64 random(1);
  TileEncoder encoder;
  TileDecoder decoder;
  std::string bytes;
  for (int round = 0; round < 300; ++round) {
    const size_t steps = 1 + random() % (round % 10 == 0 ? 256 : 70);
    const uint64_t ranks = round % 3 == 0 ? ~uint64_t{0} : (random() & random()) | 1;
    const Tile tile = RandomTile(random, steps, ranks, round % 2 == 0, round % 5 < 2);
    const TileStats stats = encoder.Encode(tile, &bytes);
    Tile back;
    ASSERT_TRUE(decoder.Decode(bytes, &back).ok());
    EXPECT_EQ(back.steps, tile.steps);
    EXPECT_EQ(back.ranks, tile.ranks);
    EXPECT_EQ(back.absent, tile.absent);
    EXPECT_EQ(Bits(back.values), Bits(tile.values));
    uint32_t present = 0, non_finite = 0;
    double sum = 0;
    for (size_t i = 0; i < tile.values.size(); ++i) {
      if (tile.Absent(i)) continue;
      ++present;
      std::isfinite(tile.values[i]) ? void(sum += tile.values[i]) : void(++non_finite);
    }
    EXPECT_EQ(stats.present, present);
    EXPECT_EQ(stats.non_finite, non_finite);
    EXPECT_EQ(stats.sum, sum);
  }
}

TEST(Tile, AnyDamageIsAnErrorAndNothingElse) {
  std::mt19937_64 random(2);
  TileEncoder encoder;
  TileDecoder decoder;
  std::string bytes;
  encoder.Encode(RandomTile(random, 9, 0xF0F, true, true), &bytes);
  Tile back;
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_EQ(decoder.Decode(std::string_view(bytes).substr(0, size), &back).code(),
              absl::StatusCode::kDataLoss);
  }
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    std::string damaged = bytes;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << (bit % 8)));
    const absl::Status status = decoder.Decode(damaged, &back);
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << "bit " << bit;
  }
}

}  // namespace
}  // namespace plumbline::server
