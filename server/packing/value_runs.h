// Where the values of series (SeriesRows.value) lie in the wire bytes of a batch: what a packed
// block (packed_block.h) writes apart.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace plumbline::server {

// Doubles that lie together.
struct ValueRun {
  size_t at = 0;     // of the first, in the batch with all its values
  size_t count = 0;  // not 0
  uint64_t set = 0;
  size_t rows = 0;                // that the message has; count need not be a multiple
  std::vector<uint32_t> sources;  // one a row, or one for all, or what the message has
};

// The runs of a batch in order, found without a parse of the rest. `cut`: in `bytes` the values of
// the runs are left out and everything else, lengths too, stands as it was; `at` counts them
// nonetheless. *size: of the batch with its values. False, the same with and without the values:
// this is no batch, or values lie outside of what they belong to.
bool FindValueRuns(std::string_view bytes, bool cut, std::vector<ValueRun>* runs, size_t* size);

}  // namespace plumbline::server
