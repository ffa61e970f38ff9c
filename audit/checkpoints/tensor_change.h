// Measures what changed in one tensor from checkpoint A to checkpoint B.
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
  double change = 0, weight = 0;  // Euclidean norms; `weight` is that in A
};

// Changes of one tensor. Sums are over elements that are finite on both sides, in fp64.
struct TensorChange {
  std::string name, name_b;  // two names if a map renames
  std::string layer;
  TensorKind kind = TensorKind::kModel;
  std::vector<int64_t> shape;
  std::string dtype_a, dtype_b;
  std::string wrong;  // why the tensor was not compared; empty if it was
  uint64_t count = 0;
  uint64_t differ = 0;      // elements with different values (if the dtypes are equal: different
                            // bits)
  uint64_t non_finite = 0;  // elements that are not finite on either side
  double squares_a = 0, squares_b = 0, squares_change = 0;
  double squares_before = 0;        // of the preceding change, if a cosine is computed
  double largest = 0;               // |b - a|
  std::vector<int64_t> largest_at;  // its index
  double largest_a = 0, largest_b = 0;
  std::optional<double> cosine;       // between this change and the preceding one, if that is known
  uint64_t rows = 0, rows_still = 0;  // on the first axis; 0 if rows are not distinguished
  std::vector<MovedRow> most;         // rows with the largest relative change, falling
  std::vector<SingularValue> spectrum;  // of the change, falling, if requested

  double change() const { return std::sqrt(squares_change); }
  // Returns |change| / |A|. If A is zero, returns infinity.
  double relative() const {
    if (squares_change == 0) return 0;
    return squares_a > 0 ? std::sqrt(squares_change / squares_a) : HUGE_VAL;
  }
};

inline constexpr uint64_t kMostRowsOfChange = uint64_t{1} << 20;
inline constexpr size_t kMovedRows = 3;

// Measures the change. `before` is the tensor in the checkpoint before A, or nullptr. Returns read
// errors.
absl::Status MeasureChange(const ComparedTensor& a, const ComparedTensor& b,
                           const ComparedTensor* before, PieceReader* reader, TensorChange* out);

// Reads the change as a dense matrix, rows by columns. If a tensor is not a matrix in one part, or
// too large, `matrix` is empty.
absl::Status ReadChangeMatrix(const ComparedTensor& a, const ComparedTensor& b, PieceReader* reader,
                              std::vector<float>* matrix);

}  // namespace plumbline::audit
