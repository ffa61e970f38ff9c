// Gathers sampled elements of a matrix product D = A B (+ C), with their rows of A and columns of
// B. A few rows are paired with the same number of columns: n vectors of each give up to n^2
// elements, and the memory that is read grows with n only.
//
// The plan is plain data and small: a kernel takes it as an argument. Host and device share its
// core.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/tensor_view.h"
#include "kernels/core/copy_element.h"
#include "kernels/core/status_declared.h"

namespace plumbline {

inline constexpr int kProductVectors = 32;  // rows, and columns, at most
inline constexpr int kProductElements = kProductVectors * kProductVectors;

// Borrowed. `a` [..., K]: its leading axes together are the rows of A. `b` [K, N], any strides
// (pass a weight [N, K] transposed). `d` [..., N] with a's leading axes. `c` is absent, of d's
// shape, or [N].
//
// Scales of 8-bit and 4-bit factors: `a_scale` [..., B] with a's leading axes, or instead of them
// one axis of ceil(rows / a_tile); `b_scale` [B, ceil(N / b_tile)]; B = ceil(K / block). A view
// with one element holds the scale of the whole tensor. Both may be absent.
struct ProductInput {
  TensorView a, b, d, c, a_scale, b_scale;
  int64_t block = 0;  // products that share a scale; 0: K, one scale per row and column
  int64_t a_tile = 0, b_tile = 0;  // neighbouring rows (columns) that share a scale; 0: 1
};

// The layout of one tensor's parts, in elements from its data.
struct ProductPart {
  const void* data = nullptr;
  uint32_t size = 0;                              // bytes of an element; 0: absent
  int64_t step = 0;                               // between neighbours along K (a and b)
  std::array<int64_t, kProductVectors> row{};     // of each sampled row
  std::array<int64_t, kProductVectors> column{};  // of each sampled column
};

struct ProductPlan {
  int64_t inner = 0;    // K
  int32_t vectors = 0;  // n: rows, and columns
  int32_t rows = 0;     // rows, of these; fewer than n if the matrix has no more
  int32_t columns = 0;
  int32_t elements = 0;  // m
  int32_t blocks = 0;    // B; 0: no scales
  ProductPart a, b, d, c, a_scale, b_scale;
  // Offsets in bytes from the start of the gathered memory: a [rows,K], b [columns,K], d [m], c
  // [m], a_scale [rows,B], b_scale [columns,B], dense.
  uint64_t b_at = 0, d_at = 0, c_at = 0, a_scale_at = 0, b_scale_at = 0, bytes = 0;
};

// Element i pairs row i mod n with column (i + i / n) mod n, if these exist: so the first min(rows,
// columns) elements share neither.
struct ProductPair {
  int32_t row = 0;
  int32_t column = 0;
};

// The existing pairs in their order.
class ProductPairs {
 public:
  PLUMB_HD ProductPairs(int32_t rows, int32_t columns)
      : rows_(rows), columns_(columns), n_(rows > columns ? rows : columns) {}
  PLUMB_HD ProductPair Next() {
    for (;;) {
      const ProductPair pair{i_ % n_, (i_ + i_ / n_) % n_};
      ++i_;
      if (pair.row < rows_ && pair.column < columns_) return pair;
    }
  }

 private:
  int32_t rows_, columns_, n_, i_ = 0;
};

// Checks the input without reading the tensors' memory: they may be on any one device. Returns
// InvalidArgument with the tensor and what was expected.
absl::Status CheckProduct(const ProductInput& input);

// Plans a checked product: draws the sampled rows and columns (`key`: the first of two
// permutations), and locates their elements. At most `vectors` of each, `elements` pairs.
ProductPlan PlanProduct(const ProductInput& input, uint64_t key, int vectors, int elements);

// Return the number of the sampled row (of A, flattened) and column: SampleIndex of the halves of
// the key.
uint64_t SampledRow(uint64_t key, uint64_t rows, int i);
uint64_t SampledColumn(uint64_t key, uint64_t columns, int i);

// Returns the number of elements that are copied, one per thread.
PLUMB_HD inline int64_t ProductThreads(const ProductPlan& p) {
  return (static_cast<int64_t>(p.rows) + p.columns) * (p.inner + p.blocks) +
         2 * static_cast<int64_t>(p.elements);
}

namespace internal {

PLUMB_HD inline ProductPair PairAt(const ProductPlan& p, int32_t i) {
  // Square samples need no search.
  const int32_t n = p.rows > p.columns ? p.rows : p.columns;
  if (p.rows == p.columns) return {i % n, (i + i / n) % n};
  ProductPairs pairs(p.rows, p.columns);
  for (; i > 0; --i) pairs.Next();
  return pairs.Next();
}

// Copies element `at` of the sampled vectors of one factor, or of its scales.
PLUMB_HD inline void CopyOfVectors(const ProductPart& part, int64_t length, bool rows, int64_t at,
                                   unsigned char* to) {
  if (part.size == 0) return;
  const auto vector = static_cast<size_t>(at / length);
  const int64_t from = (rows ? part.row[vector] : part.column[vector]) + at % length * part.step;
  CopyElement(part.data, from, part.size, to, at);
}

}  // namespace internal

// Copies element `i` of ProductThreads(plan): the work of a device thread. The order is that of the
// target, so that writes across a bus are whole lines. `out`: plan.bytes bytes, aligned to 16;
// elements are at multiples of their size.
PLUMB_HD inline void GatherProductOne(const ProductPlan& p, int64_t i, unsigned char* out) {
  const int64_t of_a = p.rows * p.inner, of_b = p.columns * p.inner;
  if (i < of_a) return internal::CopyOfVectors(p.a, p.inner, true, i, out);
  if (i < of_a + of_b) return internal::CopyOfVectors(p.b, p.inner, false, i - of_a, out + p.b_at);
  const int64_t scales = i - of_a - of_b - 2 * static_cast<int64_t>(p.elements);
  const int64_t of_a_scale = static_cast<int64_t>(p.rows) * p.blocks;
  if (scales >= of_a_scale)
    return internal::CopyOfVectors(p.b_scale, p.blocks, false, scales - of_a_scale,
                                   out + p.b_scale_at);
  if (scales >= 0)
    return internal::CopyOfVectors(p.a_scale, p.blocks, true, scales, out + p.a_scale_at);
  const auto j = static_cast<int32_t>(i - of_a - of_b);
  const bool of_d = j < p.elements;
  const ProductPart& part = of_d ? p.d : p.c;
  if (part.size == 0) return;
  const int32_t element = of_d ? j : j - p.elements;
  const ProductPair pair = internal::PairAt(p, element);
  const int64_t from =
      part.row[static_cast<size_t>(pair.row)] + part.column[static_cast<size_t>(pair.column)];
  internal::CopyElement(part.data, from, part.size, out + (of_d ? p.d_at : p.c_at), element);
}

// Gathers everything, of host tensors of any alignment. Thread-safe.
void GatherProduct(const ProductPlan& plan, std::byte* out);

}  // namespace plumbline
