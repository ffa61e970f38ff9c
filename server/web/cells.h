// Ranks by steps as bytes, for a picture.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "plumbline/v1/query.pb.h"

namespace plumbline::server {

// A row stands for one rank, or for neighbours where there are more than fit: then a cell is the
// value of theirs that is farthest from the row's median, so that one rank that differs is seen.
struct CellGrid {
  static constexpr uint8_t kNotFinite = 255, kNoEvidence = 254, kMost = 253;

  std::vector<uint32_t> first_rank, last_rank;  // of each row
  std::vector<int64_t> step;                    // the first one of each column
  uint64_t bucket_steps = 1;
  double low = 0, high = 0;  // bytes 0 and kMost; beyond them: cut off
  std::string bytes;         // row by row
};

// At most `rows` rows, ranks in `alone` each on their own besides.
CellGrid GridOf(const v1::SeriesColumns& columns, size_t rows, const std::set<uint32_t>& alone);

}  // namespace plumbline::server
