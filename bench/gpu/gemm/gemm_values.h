// f64 values as the bytes of a dtype and back, and a row and a column of factors kept as such.
#pragma once

#include <cstddef>
#include <vector>

#include "absl/types/span.h"
#include "base/dtype.h"

namespace plumbline::bench {

// Values that the floating `dtype` represents; others are rounded by way of f32. `out` has room for
// values.size() elements.
void Encode(DType dtype, absl::Span<const double> values, std::byte* out);
double Decode(DType dtype, const std::byte* element);

// A row and a column of n factors each, one after the other. Of two calls only blocks that differ
// are encoded again: a probe changes a few of thousands of values. Not thread-safe.
class RowAndColumn {
 public:
  // `out`: 2 n elements that outlive this and that nobody else writes meanwhile.
  RowAndColumn(DType dtype, int n, std::byte* out);
  void Set(absl::Span<const double> row, absl::Span<const double> column);

 private:
  void Update(absl::Span<const double> values, size_t begin);

  const DType dtype_;
  std::byte* const out_;
  std::vector<double> held_;
};

}  // namespace plumbline::bench
