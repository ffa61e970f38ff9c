// Tensors of samples of evidence, checked and read as numbers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/archive.h"
#include "base/dtype.h"
#include "plumbline/v1/evidence.pb.h"

namespace plumbline::analysis {

// A checked tensor as doubles, in C order. Exact for every floating dtype.
struct SampleValues {
  DType dtype = DType::kUnspecified;
  std::vector<int64_t> shape;
  std::vector<double> values;

  bool present() const { return dtype != DType::kUnspecified; }
};

// Returns FailedPrecondition "bad-tensor: ..." if the tensor's dtype, shape and bytes do not agree.
absl::StatusOr<SampleValues> ReadValues(const char* name, const v1::Tensor& tensor);

// The sampled elements of one update. All vectors have the same length or are empty (absent).
struct UpdateCase {
  DType dtype = DType::kUnspecified;         // of before and after
  DType moment_dtype = DType::kUnspecified;  // kUnspecified if there are no moments
  std::vector<uint64_t> offsets;             // index in the tensor, C order
  std::vector<double> before, after, intended;
  std::vector<double> gradient, moment_before, moment_after;
  std::vector<uint8_t> unchanged;  // `after` has the bits of `before`

  size_t size() const { return before.size(); }
  // True if dtype and columns are equal, so that they can be joined.
  bool Alike(const UpdateCase& other) const;
  void Append(const UpdateCase& other);
  void Persist(Archive& a) {
    a(dtype, moment_dtype, offsets, before, after, intended);
    a(gradient, moment_before, moment_after, unchanged);
  }
};

// Returns FailedPrecondition "no-sample: ..." or "bad-tensor: ..." with a text for the verdict.
absl::StatusOr<UpdateCase> DecodeUpdate(const v1::Update& update);

// The sample of one tensor: [rows, columns] values, or elements at offsets.
struct TensorCase {
  DType dtype = DType::kUnspecified;
  std::vector<double> values;
  std::vector<uint64_t> offsets;  // empty for whole rows
  int64_t rows = 0;               // 0 when there are offsets
  int64_t columns = 0;
  uint64_t first_row = 0;
};

// Returns errors as DecodeUpdate does. Integer tensors are read too.
absl::StatusOr<TensorCase> DecodeTensor(const v1::TensorState& state);

// Returns true if every finite value is one of `dtype`, and at least `enough` of them are not
// powers of two, which fit every format.
bool FitsFormat(const std::vector<double>& values, DType dtype, size_t enough);

// Returns the coarsest of bf16, f16 and the given dtype that holds each of at least `enough` finite
// values that are not powers of two (which fit every format). If f32 values are all bf16 numbers,
// they were bf16 before they were saved as f32.
DType CoarsestDType(const std::vector<double>& values, DType dtype, size_t enough = 16);

}  // namespace plumbline::analysis
