// Sampled elements of a matrix product: the row and the column that went into each, what was added,
// what came out.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/dtype.h"
#include "plumbline/v1/evidence.pb.h"
#include "rules/lib/routing_tensors.h"

namespace plumbline::rules {

// Borrows the message's bytes: must not outlive it.
struct MatmulCase {
  int samples = 0;                // m
  int inner = 0;                  // K
  Matrix a;                       // [m,K], or [r,K] with a_index
  Matrix b;                       // [m,K], or [q,K] with b_index
  std::vector<double> d;          // [m]
  std::vector<double> c;          // [m], empty: nothing was added
  std::vector<uint64_t> offsets;  // [m], empty: not said
  std::vector<int64_t> a_index;   // [m], the rows of `a` and `b` that went into each element;
  std::vector<int64_t> b_index;   // empty: i
  // Elements that share neither a row nor a column with an earlier one: what statistics are taken
  // of. Where rows and columns are not known, all.
  std::vector<bool> apart;  // [m]
  DType a_dtype = DType::kUnspecified;
  DType b_dtype = DType::kUnspecified;
  DType d_dtype = DType::kUnspecified;
  DType c_dtype = DType::kUnspecified;
  DType declared = DType::kF32;  // accumulator promised; f32 where nobody said
  bool accumulator_declared = false;
  bool tf32_declared = false;  // the inputs are meant to be cut to tf32
  std::string library;

  // Significand bits of a factor, the larger of both.
  int factor_bits() const;

  double A(int i, int k) const { return a.At(a_index.empty() ? i : a_index[At(i)], k); }
  double B(int i, int k) const { return b.At(b_index.empty() ? i : b_index[At(i)], k); }

 private:
  static size_t At(int i) { return static_cast<size_t>(i); }
};

// FailedPrecondition with an inconclusive reason ("short-id: sentence") where the call cannot be
// judged: no sample, malformed tensors, inputs that are not floating or f64.
absl::StatusOr<MatmulCase> DecodeMatmul(const v1::Matmul& matmul);

}  // namespace plumbline::rules
