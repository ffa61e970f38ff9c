// A tile: the values of one series on up to 64 ranks over some closed steps, as the store keeps it.
//
// Bytes, little-endian: version (2), flags, number of steps (u16), CRC-32C of all else, first step
// (i64), ranks (u64), min, max, sum (f64), present (u32), non-finite (u32); then, if there is one,
// a size (u32) and a zstd frame of [offsets of the steps from the first (i64 each), unless they are
// consecutive] [a bit for each absent cell, unless all are present]; then the cells, [steps,
// ranks], in the format of plane_codec.h. In version 1, which can still be read, all bytes after
// the header are one zstd frame, with the cells last, as byte planes of doubles.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace plumbline::server {

inline constexpr uint32_t kTileRanks = 64;
inline constexpr size_t kMaxTileSteps = 4096;

struct Tile {
  std::vector<int64_t> steps;    // ascending, at most kMaxTileSteps
  uint64_t ranks = 0;            // bit i: rank 64 * block + i has a column
  std::vector<double> values;    // [steps, columns], C order; 0 where absent
  std::vector<uint64_t> absent;  // one bit per cell, lowest first; empty: all present

  size_t columns() const { return static_cast<size_t>(__builtin_popcountll(ranks)); }
  bool Absent(size_t cell) const {
    return !absent.empty() && ((absent[cell / 64] >> (cell % 64)) & 1) != 0;
  }
};

// Statistics of the present values; min, max and sum of the finite ones (0 without any).
struct TileStats {
  double min = 0;
  double max = 0;
  double sum = 0;
  uint32_t present = 0;
  uint32_t non_finite = 0;
};

// Not thread-safe: use one per thread.
class TileEncoder {
 public:
  TileEncoder();
  ~TileEncoder();
  // Encodes `tile`, which must not be empty. Replaces *out.
  TileStats Encode(const Tile& tile, std::string* out);

 private:
  struct Scratch;
  std::unique_ptr<Scratch> scratch_;
};

// Not thread-safe: use one per thread.
class TileDecoder {
 public:
  TileDecoder();
  ~TileDecoder();
  // Returns DataLoss if the bytes are not a valid tile.
  absl::Status Decode(std::string_view bytes, Tile* tile);

 private:
  struct Scratch;
  std::unique_ptr<Scratch> scratch_;
};

}  // namespace plumbline::server
