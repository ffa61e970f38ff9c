// The values of a packed block (packed_block.h) in the order in which they are written: by column.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/packing/value_runs.h"
#include "server/store/plane_codec.h"

namespace plumbline::server {

// Not thread-safe.
class ValueColumns {
 public:
  void Clear() { groups_.clear(); }
  // Adds a run of an entry of `stream` whose batch begins at `batch_at` in the bytes of the block.
  void Add(const ValueRun& run, uint64_t stream, size_t batch_at);
  // Appends the columns of the added runs, taken from `whole`, the bytes of the block.
  void Encode(PlaneCodec& codec, std::string_view whole, std::string* out);
  // Restores the values in `whole`. Returns false if `bytes` do not belong to the added runs.
  bool Decode(PlaneCodec& codec, std::string_view bytes, std::string* whole);

 private:
  struct Row {
    uint64_t stream;
    uint32_t source;
    size_t at;
  };
  // A rectangle of cells, [rows, columns]: columns [first, first + columns) of a group.
  struct Part {
    const std::vector<Row>& rows;
    size_t first, columns;
  };
  std::vector<Part> Parts();

  std::map<std::pair<uint64_t, size_t>, std::vector<Row>> groups_;  // by set and width
  std::vector<double> cells_;
};

}  // namespace plumbline::server
