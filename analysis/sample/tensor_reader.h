// Checks the tensors of a routing message, and reads them by column.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/dtype.h"
#include "base/load.h"
#include "plumbline/v1/evidence.pb.h"

namespace plumbline::analysis {

// [rows, columns] numbers inside a message, read as doubles. Borrows the message's bytes.
class Matrix {
 public:
  Matrix() = default;
  Matrix(const std::string* data, DType dtype, int64_t columns)
      : data_(data->data()), dtype_(dtype), columns_(columns) {}
  bool present() const { return data_ != nullptr; }
  DType dtype() const { return dtype_; }
  int64_t columns() const { return columns_; }
  const char* data() const { return data_; }
  double At(int64_t row, int64_t column) const {
    const int64_t i = row * columns_ + column;
    if (dtype_ == DType::kF32) return LoadRaw<float>(data_, i);
    return LoadDouble(data_, dtype_, i);
  }

 private:
  const char* data_ = nullptr;
  DType dtype_ = DType::kUnspecified;
  int64_t columns_ = 0;
};

// Returns FailedPrecondition with `reason` ("short-id: sentence"), which the routing rules report
// as inconclusive.
absl::Status Cannot(const std::string& reason);

// Returns a text such as "[2, 3]".
std::string ShapeText(const v1::Tensor& tensor);

// Checks that the tensor has exactly this shape and its bytes.
absl::Status CheckTensor(const char* name, const v1::Tensor& tensor, std::vector<int64_t> shape,
                         bool floating);

// Reads elements first .. first + count of a checked integer tensor. u64 saturates as in LoadInt64.
void ReadIntegers(const v1::Tensor& tensor, int64_t first, int64_t count, int64_t* out);
// The same as 0 and 1.
void ReadMask(const v1::Tensor& tensor, int64_t first, int64_t count, uint8_t* out);

// Returns a whole checked vector of `rows` integers. If the message has none, returns an empty
// vector.
absl::StatusOr<std::vector<int64_t>> Column(const char* name, bool has, const v1::Tensor& tensor,
                                            int64_t rows);

// Returns topk_indices [rows, k]: experts below `experts`, no expert twice in a row, -1 only in
// rows that are not judged.
absl::StatusOr<std::vector<int32_t>> ReadIndices(const v1::Tensor& tensor, int32_t rows, int32_t k,
                                                 int32_t experts,
                                                 const std::function<bool(int32_t)>& judged);

// Two rows of `rows` that share (sequence, position): the lowest by (sequence, position). If all
// are distinct, {-1, -1}. Linear in time for rows in order, and for positions that are dense within
// their sequences.
struct RepeatedRows {
  int32_t first = -1;
  int32_t second = -1;
};
RepeatedRows FindRepeated(const std::vector<int32_t>& rows, const std::vector<int64_t>& sequence,
                          const std::vector<int64_t>& position);

// Numbers ids from 0 on, in order of first appearance.
struct DenseIds {
  std::vector<int32_t> of_row;
  int32_t count = 0;
};
DenseIds NumberIds(const std::vector<int64_t>& ids);

}  // namespace plumbline::analysis
