#include "server/store/tile.h"

#include <gtest/gtest.h>
#include <zstd.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "base/crc32c.h"
#include "server/store/byte_shuffle.h"
#include "server/store/plane_codec.h"
#include "tests/server/store/support.h"

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

// ---- values that trainers report -------------------------------------------------------------

constexpr size_t kSteps = 64, kColumns = 64;

// Returns the cells of 64 steps and 64 ranks: value(step, rank).
template <typename Value>
std::vector<double> Cells(const Value& value) {
  std::vector<double> cells;
  for (size_t step = 0; step < kSteps; ++step) {
    for (size_t rank = 0; rank < kColumns; ++rank) cells.push_back(value(step, rank));
  }
  return cells;
}

double BytesACell(const std::vector<double>& cells) {
  Tile tile;
  for (size_t step = 0; step < kSteps; ++step) tile.steps.push_back(static_cast<int64_t>(step));
  tile.ranks = ~uint64_t{0};
  tile.values = cells;
  std::string bytes;
  TileEncoder().Encode(tile, &bytes);
  Tile back;
  EXPECT_TRUE(TileDecoder().Decode(bytes, &back).ok());
  EXPECT_EQ(Bits(back.values), Bits(tile.values));
  return static_cast<double>(bytes.size()) / static_cast<double>(cells.size());
}

// Limits a little above the measured values; before, floats took 3.1 to 3.9 and decimals 5.9 to
// 6.7.
TEST(Tile, WhatTrainersReportTakesLittle) {
  std::mt19937_64 random(3);
  std::normal_distribution<double> normal;
  const auto noise = [&] { return normal(random); };
  EXPECT_LT(BytesACell(Cells([&](auto, auto) { return static_cast<float>(2 + 0.01 * noise()); })),
            2.6);
  EXPECT_LT(BytesACell(Cells([&](auto, auto) { return static_cast<float>(std::exp(noise())); })),
            3.5);
  std::vector<double> walk(kColumns, 2);
  EXPECT_LT(BytesACell(Cells([&](auto, size_t rank) {
              return static_cast<double>(static_cast<float>(walk[rank] += 1e-3 * noise()));
            })),
            2.1);
  EXPECT_LT(BytesACell(Cells([&](auto, auto) { return std::round(250 + 10 * noise()) / 1000; })),
            0.9);
  EXPECT_LT(BytesACell(Cells([&](auto, auto) { return std::round(2e6 + 1e4 * noise()) / 1e6; })),
            2.2);
  EXPECT_LT(
      BytesACell(Cells([](size_t step, auto) { return 1e9 + 4096.0 * static_cast<double>(step); })),
      0.1);
  EXPECT_LT(BytesACell(Cells([](auto, auto) { return 3e-4; })), 0.1);
  // These are only known not to be floats: eight bytes, and little more.
  EXPECT_LT(BytesACell(Cells([&](auto, auto) { return noise() * std::exp(20 * noise()); })), 8.1);
}

// One cell of each family is replaced by a value that its form cannot hold.
TEST(Tile, OneOddCellKeepsItsBitsAndThoseOfOthers) {
  std::mt19937_64 random(4);
  const double kOdd[] = {-0.0,
                         std::numeric_limits<double>::quiet_NaN(),
                         std::bit_cast<double>(0x7FF0000000000001ull),
                         std::bit_cast<double>(0xFFF8000000000123ull),
                         std::numeric_limits<double>::infinity(),
                         -std::numeric_limits<double>::infinity(),
                         std::numeric_limits<double>::denorm_min(),
                         static_cast<double>(std::numeric_limits<float>::denorm_min()),
                         std::numeric_limits<double>::max(),
                         0x1p50,
                         -0x1p50,
                         0x1p53 + 2,
                         0.1,
                         1e-12,
                         0.30000000000000004};
  for (const double odd : kOdd) {
    for (int family = 0; family < 5; ++family) {
      std::vector<double> cells = Cells([&](size_t step, auto) {
        switch (family) {
          case 0:
            return static_cast<double>(static_cast<float>(random() % 1000) / 7);
          case 1:
            return static_cast<double>(random() % 100000) / 1000;
          case 2:
            return static_cast<double>(step) - 30;
          case 3:
            return odd;
          default:
            return test::AnyDouble(random);
        }
      });
      for (int planted = 0; planted < family % 3; ++planted) cells[random() % cells.size()] = odd;
      cells[random() % cells.size()] = odd;
      BytesACell(cells);
    }
  }
}

// Returns the tile in the format of earlier versions.
std::string OldTile(const Tile& tile) {
  std::string bytes;
  TileEncoder().Encode(tile, &bytes);
  bytes.resize(56);  // the header is the same
  bytes[0] = 1;
  const size_t cells = tile.values.size();
  std::string plain;
  if (static_cast<uint8_t>(bytes[1]) & 1) {
    for (const int64_t step : tile.steps) {
      const int64_t offset = step - tile.steps[0];
      plain.append(reinterpret_cast<const char*>(&offset), 8);
    }
  }
  if (!tile.absent.empty())
    plain.append(reinterpret_cast<const char*>(tile.absent.data()), (cells + 7) / 8);
  const size_t at = plain.size();
  plain.resize(at + 8 * cells);
  ShuffleBytes(tile.values.data(), cells, reinterpret_cast<uint8_t*>(plain.data()) + at);
  std::string packed(ZSTD_compressBound(plain.size()), '\0');
  packed.resize(ZSTD_compress(packed.data(), packed.size(), plain.data(), plain.size(), 1));
  bytes += packed;
  const uint32_t crc = Crc32c(bytes.data() + 8, bytes.size() - 8, Crc32c(bytes.data(), 4));
  std::memcpy(bytes.data() + 4, &crc, 4);
  return bytes;
}

TEST(Tile, TilesOfBeforeAreRead) {
  std::mt19937_64 random(5);
  TileDecoder decoder;
  for (int round = 0; round < 60; ++round) {
    const Tile tile =
        RandomTile(random, 1 + random() % 70, random() | 1, round % 2 == 0, round % 3 == 0);
    Tile back;
    ASSERT_TRUE(decoder.Decode(OldTile(tile), &back).ok());
    EXPECT_EQ(back.steps, tile.steps);
    EXPECT_EQ(back.absent, tile.absent);
    EXPECT_EQ(Bits(back.values), Bits(tile.values));
  }
}

// A checksum detects damage; bytes that pass it are still validated.
TEST(PlaneCodec, TakesAnyBytes) {
  std::mt19937_64 random(6);
  PlaneCodec codec;
  std::vector<double> back;
  for (int round = 0; round < 3000; ++round) {
    const size_t columns = 1 + random() % 64, count = columns * (1 + random() % 40);
    std::vector<double> cells;
    for (size_t i = 0; i < count; ++i) cells.push_back(static_cast<double>(random() % 500) / 4);
    std::string bytes;
    codec.Encode(cells, columns, &bytes);
    ASSERT_TRUE(codec.Decode(bytes, count, columns, &back));
    ASSERT_EQ(Bits(back), Bits(cells));
    for (int hit = 0; hit < 8; ++hit) {
      std::string damaged = bytes;
      if (random() % 4 == 0) damaged.resize(random() % damaged.size());
      for (size_t n = random() % 4; n > 0 && !damaged.empty(); --n)
        damaged[random() % damaged.size()] = static_cast<char>(random());
      if (codec.Decode(damaged, count, columns, &back)) {
        EXPECT_EQ(back.size(), count);
      }
    }
  }
}

}  // namespace
}  // namespace plumbline::server
