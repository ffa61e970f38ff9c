// Copies one element of any size from a tensor to dense memory, and steps through a matrix.
#pragma once

#include <cstdint>

#include "base/dtype.h"

namespace plumbline::internal {

PLUMB_HD inline void CopyElement(const void* from, int64_t at, uint32_t size, unsigned char* to,
                                 int64_t i) {
  switch (size) {
    case 8:
      reinterpret_cast<uint64_t*>(to)[i] = static_cast<const uint64_t*>(from)[at];
      break;
    case 4:
      reinterpret_cast<uint32_t*>(to)[i] = static_cast<const uint32_t*>(from)[at];
      break;
    case 2:
      reinterpret_cast<uint16_t*>(to)[i] = static_cast<const uint16_t*>(from)[at];
      break;
    default:
      to[i] = static_cast<const unsigned char*>(from)[at];
  }
}

// Steps through the elements i, i + step, i + 2 step, ... of a matrix of `columns` > 0. Divisions,
// of 64 bits and slow on a device, are needed only for the first element and for the step.
class MatrixWalk {
 public:
  PLUMB_HD MatrixWalk(int64_t columns, int64_t i, int64_t step)
      : columns_(columns),
        row_(i / columns),
        column_(i % columns),
        rows_on_(step / columns),
        columns_on_(step % columns) {}
  PLUMB_HD int64_t At(int64_t row_stride, int64_t column_stride) const {
    return row_ * row_stride + column_ * column_stride;
  }
  PLUMB_HD void Next() {
    row_ += rows_on_;
    column_ += columns_on_;
    if (column_ < columns_) return;
    column_ -= columns_;
    ++row_;
  }

 private:
  int64_t columns_, row_, column_, rows_on_, columns_on_;
};

}  // namespace plumbline::internal
