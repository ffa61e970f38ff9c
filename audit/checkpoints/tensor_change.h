// What changed in one tensor from checkpoint A to checkpoint B.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "audit/checkpoints/pieces.h"
#include "audit/checkpoints/spectrum.h"

namespace plumbline::audit {

struct MovedRow {
  uint64_t row = 0;
  double change = 0, weight = 0;  // Euclidean norms; `weight` in A
};

// Sums are over finite values of both sides, in fp64.
struct TensorChange {
  std::string name, name_b;  // two names where a map says so
  std::string layer;
  TensorKind kind = TensorKind::kModel;
  std::vector<int64_t> shape;
  std::string dtype_a, dtype_b;
  std::string wrong;  // why it was not compared; empty: it was
  uint64_t count = 0;
  uint64_t differ = 0;      // elements with other values (of one dtype: other bits)
  uint64_t non_finite = 0;  // on either side
  double squares_a = 0, squares_b = 0, squares_change = 0;
  double squares_before = 0;        // of the change before, where a cosine is told
  double largest = 0;               // |b - a|
  std::vector<int64_t> largest_at;  // its index
  double largest_a = 0, largest_b = 0;
  std::optional<double> cosine;  // of this change and the one before it; where that one is known
  uint64_t rows = 0, rows_still = 0;    // on the first axis; 0: not told apart
  std::vector<MovedRow> most;           // the rows that moved most of what they are, falling
  std::vector<SingularValue> spectrum;  // of the change, falling; where it was asked for

  double change() const { return std::sqrt(squares_change); }
  // |change| / |A|; infinite from nothing.
  double relative() const {
    if (squares_change == 0) return 0;
    return squares_a > 0 ? std::sqrt(squares_change / squares_a) : HUGE_VAL;
  }
};

inline constexpr uint64_t kMostRowsOfChange = uint64_t{1} << 20;
inline constexpr size_t kMovedRows = 3;

// `before`: the tensor in the checkpoint before A, or nullptr. Errors are those of reading.
absl::Status MeasureChange(const ComparedTensor& a, const ComparedTensor& b,
                           const ComparedTensor* before, PieceReader* reader, TensorChange* out);

// The change as a dense matrix, rows by columns; empty: no matrix of one part, or one too large.
absl::Status ReadChangeMatrix(const ComparedTensor& a, const ComparedTensor& b, PieceReader* reader,
                              std::vector<float>* matrix);

}  // namespace plumbline::audit
