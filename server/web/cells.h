// Converts ranks by steps to bytes, for a picture.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "plumbline/v1/query.pb.h"

namespace plumbline::server {

// A row shows one rank, or several neighbours if there are too many ranks. Then a cell has the
// value that is farthest from the row's median, so that one rank that differs is visible.
struct CellGrid {
  static constexpr uint8_t kNotFinite = 255, kNoEvidence = 254, kMost = 253;

  std::vector<uint32_t> first_rank, last_rank;  // of each row
  std::vector<int64_t> step;                    // the first one of each column
  uint64_t bucket_steps = 1;
  double low = 0, high = 0;  // bytes 0 and kMost; values beyond them are clipped
  std::string bytes;         // row by row
};

// Returns a grid of at most `rows` rows, plus a separate row for each rank in `alone`.
CellGrid GridOf(const v1::SeriesColumns& columns, size_t rows, const std::set<uint32_t>& alone);

}  // namespace plumbline::server
