// Finds the values of series (SeriesRows.value) in the wire bytes of a batch, which a packed block
// (packed_block.h) writes separately.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace plumbline::server {

// Consecutive doubles.
struct ValueRun {
  size_t at = 0;     // of the first, in the batch with all its values
  size_t count = 0;  // not 0
  uint64_t set = 0;
  size_t rows = 0;                // of the message; count need not be a multiple
  std::vector<uint32_t> sources;  // one per row, or one for all, or whatever the message has
};

// Finds the runs of a batch in order, without parsing the rest. `cut`: the values of the runs are
// missing in `bytes`, and everything else, also lengths, is unchanged; `at` counts them
// nonetheless. *size is the size of the batch with its values. Returns false, equally with and
// without the values, if this is not a batch or if values are outside their message.
bool FindValueRuns(std::string_view bytes, bool cut, std::vector<ValueRun>* runs, size_t* size);

}  // namespace plumbline::server
