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
  size_t at = 0;     // position of the first, in the batch with all its values
  size_t count = 0;  // not 0
  uint64_t set = 0;
  size_t rows = 0;                // number of rows of the message; count need not be a multiple of
                                  // it
  std::vector<uint32_t> sources;  // one per row, one for all rows, or any other number in the
                                  // message
};

// Finds the runs of a batch in order, without parsing other fields. `cut`: the values of the runs
// are missing in `bytes`, and all other bytes, also lengths, are unchanged; `at` counts the missing
// bytes too. *size is the size of the batch with its values. Returns false if this is not a batch
// or if values are outside their message. The result is the same with and without the values.
bool FindValueRuns(std::string_view bytes, bool cut, std::vector<ValueRun>* runs, size_t* size);

}  // namespace plumbline::server
