// Sampled elements of a matrix product: the row and the column of each, the addend, and the result.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "analysis/sample/sample.h"
#include "base/dtype.h"
#include "base/half.h"
#include "plumbline/v1/evidence.pb.h"

namespace plumbline::analysis {

// Borrows the message's bytes: must not outlive it.
struct MatmulCase {
  int samples = 0;                // m
  int inner = 0;                  // K
  Matrix a;                       // [m,K], or [r,K] with a_index
  Matrix b;                       // [m,K], or [q,K] with b_index
  std::vector<double> d;          // [m]
  std::vector<double> c;          // [m]; empty if nothing was added
  std::vector<uint64_t> offsets;  // [m]; empty if not recorded
  std::vector<int64_t> a_index;   // [m], the rows of `a` and `b` of each element;
  std::vector<int64_t> b_index;   // if empty: row i
  // Elements that share neither a row nor a column with an earlier one; statistics use these. If
  // rows and columns are not known, all elements.
  std::vector<bool> apart;  // [m]
  DType a_dtype = DType::kUnspecified;
  DType b_dtype = DType::kUnspecified;
  DType d_dtype = DType::kUnspecified;
  DType c_dtype = DType::kUnspecified;
  DType declared = DType::kF32;  // declared accumulator; f32 if there is no declaration
  bool accumulator_declared = false;
  bool tf32_declared = false;  // the inputs are meant to be cut to tf32 or to bf16
  bool stochastic = false;     // declared: d is rounded stochastically
  std::string library;
  // The formats of a's and b's values, which may be narrower than the dtype (e2m1 in e4m3, bf16 in
  // f32).
  FloatFormat a_format{}, b_format{};

  // D = scale sum over blocks of (a_scale b_scale sum of a b). Scales are f32 numbers.
  std::vector<double> scale;             // [m], tensor scales included; empty means 1
  std::vector<double> scale_a, scale_b;  // [m] or empty: two factors with the product `scale`
  int block = 0;  // products that share a scale; 0 if there are no block scales
  std::vector<double> a_scale, b_scale;  // [rows of a or b, blocks()]

  // Significand bits of a factor, the larger of both.
  int factor_bits() const;
  int blocks() const { return block == 0 ? 0 : (inner + block - 1) / block; }
  bool scaled() const { return !scale.empty() || block > 0; }
  // Block scales are powers of two, so they do not round.
  bool exact_blocks = true;
  double Scale(int i) const { return scale.empty() ? 1 : scale[At(i)]; }

  double A(int i, int k) const { return a.At(RowA(i), k); }
  double B(int i, int k) const { return b.At(RowB(i), k); }
  double AScale(int i, int j) const { return a_scale[At(RowA(i)) * At(blocks()) + At(j)]; }
  double BScale(int i, int j) const { return b_scale[At(RowB(i)) * At(blocks()) + At(j)]; }

 private:
  int64_t RowA(int i) const { return a_index.empty() ? i : a_index[At(i)]; }
  int64_t RowB(int i) const { return b_index.empty() ? i : b_index[At(i)]; }
  static size_t At(int64_t i) { return static_cast<size_t>(i); }
};

// Decodes a call. If it cannot be judged, returns FailedPrecondition with an inconclusive reason
// ("short-id: sentence"): no sample, malformed tensors, inputs that are f64 or not floating point.
absl::StatusOr<MatmulCase> DecodeMatmul(const v1::Matmul& matmul);

}  // namespace plumbline::analysis
