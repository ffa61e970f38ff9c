// Maps the offset of an element in the buffer to its segment, which determines the start of a ring.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analysis/collective/case/case.h"

namespace plumbline::analysis {

// One candidate map. Its lists have one entry per sample of the case.
struct SegmentMap {
  std::string name;              // "count/N", "gloo", "chunks", "chunks, channels in turn", ...
  std::vector<int32_t> segment;  // [m], in [0, N)
  std::vector<int32_t>
      other;  // [m]: the neighbouring segment if the offset is within 2N of a boundary; else -1
  std::vector<int32_t> channel;  // [m]; empty if there is one channel
};

// Returns the length in elements of one rank's part of a gloo ring: segments of at most 1 MiB, at
// least two per rank, their number a multiple of N (gloo/allreduce.cc, checked against PyTorch
// 1.13).
uint64_t GlooPart(uint64_t count, int ranks, uint64_t element_bytes);

// Returns the maps that apply to the case. If the count is not known, returns none. Equal maps are
// listed once. `rows` is the ring's number of rows (N, or the number of groups).
std::vector<SegmentMap> CandidateMaps(const ReductionCase& c, int rows);

}  // namespace plumbline::analysis
