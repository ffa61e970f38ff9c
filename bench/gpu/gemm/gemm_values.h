// Converts f64 values to the bytes of a dtype and back, and stores a row and a column of factors.
#pragma once

#include <cstddef>
#include <vector>

#include "absl/types/span.h"
#include "base/dtype.h"

namespace plumbline::bench {

// Encodes values that the floating `dtype` represents; others are rounded through f32. `out` must
// have space for values.size() elements.
void Encode(DType dtype, absl::Span<const double> values, std::byte* out);
double Decode(DType dtype, const std::byte* element);

// A row and a column of n factors each, one after the other. Only blocks that differ from the
// preceding call are encoded again, because a probe changes a few of thousands of values. Not
// thread-safe.
class RowAndColumn {
 public:
  // `out`: 2 n elements, which must outlive this object and must not be changed by others.
  RowAndColumn(DType dtype, int n, std::byte* out);
  void Set(absl::Span<const double> row, absl::Span<const double> column);

 private:
  void Update(absl::Span<const double> values, size_t begin);

  const DType dtype_;
  std::byte* const out_;
  std::vector<double> held_;
};

}  // namespace plumbline::bench
