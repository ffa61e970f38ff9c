// Sums of sampled columns under one arithmetic, a block of samples at a time, and which of them
// equal what the collective gave.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "analysis/collective/case/case.h"
#include "analysis/collective/replay/arithmetic.h"
#include "analysis/collective/replay/trees.h"

namespace plumbline::rules {

// Samples a block holds at most: one bit each.
inline constexpr int kBlockSamples = 64;
using SampleMask = uint64_t;

// T: float for partial sums up to f32, double for f64. Borrows nothing. Not thread-safe (scratch).
template <typename T>
class ReductionValues {
 public:
  // The columns `columns` of the case, summed in groups first where the arithmetic says so.
  ReductionValues(const ReductionCase& c, const Arithmetic& a, std::span<const int32_t> columns);

  int rows() const { return rows_; }  // of a ring or tree: ranks, or groups of them
  int samples() const { return samples_; }

  // Bits of the block's samples [first, first + n) whose sum equals the output. NaN equals NaN and
  // zeros are equal.
  // `rows` in the order in which they are added, the same for every sample:
  SampleMask Chain(std::span<const int32_t> rows, int first, int n);
  // ring order `order` from position starts[i] onwards, a step of +-1 along it, sample by sample:
  SampleMask Rings(std::span<const int32_t> order, const int32_t* starts, int direction, int first,
                   int n);
  // the same with an order for each sample:
  SampleMask Rings(const std::vector<std::span<const int32_t>>& orders, const int32_t* starts,
                   int direction, int first, int n);
  SampleMask Tree(const SumTree& tree, int first, int n);

  // For searches that share beginnings: acc = row, acc += row, and the comparison.
  const T* Row(int row, int first) const { return &x_[Index(row, first)]; }
  void Add(T* acc, const T* x, int n) const { add_(acc, x, n); }
  SampleMask Compare(const T* acc, int first, int n) const;

 private:
  size_t Index(int row, int sample) const {
    return static_cast<size_t>(row) * static_cast<size_t>(samples_) + static_cast<size_t>(sample);
  }
  void Load(const ReductionCase& c, std::span<const int32_t> columns);
  void SumGroup(const ReductionCase& c, std::span<const int32_t> columns, int group);

  Arithmetic a_;
  int ranks_;
  int rows_;
  int samples_;
  bool as_is_;
  AddBlock<T> add_;
  std::vector<T> x_;       // [rows, samples]
  std::vector<double> y_;  // [samples]
  std::vector<T> stack_;   // of trees
};

extern template class ReductionValues<float>;
extern template class ReductionValues<double>;

}  // namespace plumbline::rules
