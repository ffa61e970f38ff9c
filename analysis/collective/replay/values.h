// Computes sums of sampled columns under one arithmetic, a block of samples at a time, and compares
// them with the collective's output.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "analysis/collective/case/case.h"
#include "analysis/collective/replay/arithmetic.h"
#include "analysis/collective/replay/trees.h"

namespace plumbline::analysis {

// Maximum number of samples per block, which have one bit each in a mask.
inline constexpr int kBlockSamples = 64;
using SampleMask = uint64_t;

// T is float for partial sums up to f32, double for f64. Keeps no reference to the case. Not
// thread-safe, because it has scratch memory.
template <typename T>
class ReductionValues {
 public:
  // Loads the columns `columns` of the case. If the arithmetic has groups, sums these first.
  ReductionValues(const ReductionCase& c, const Arithmetic& a, std::span<const int32_t> columns);

  int rows() const { return rows_; }  // rows of a ring or tree: ranks, or groups of them
  int samples() const { return samples_; }

  // Return the bits of the block's samples [first, first + n) whose sum equals the output. NaN
  // equals NaN and zeros are equal.
  //
  // Chain: `rows` in the order in which they are added, equal for every sample.
  SampleMask Chain(std::span<const int32_t> rows, int first, int n);
  // Rings: ring order `order` from position starts[i] on, in steps of +-1, per sample.
  SampleMask Rings(std::span<const int32_t> order, const int32_t* starts, int direction, int first,
                   int n);
  // The same with one order per sample.
  SampleMask Rings(const std::vector<std::span<const int32_t>>& orders, const int32_t* starts,
                   int direction, int first, int n);
  SampleMask Tree(const SumTree& tree, int first, int n);

  // For searches in which sums have common prefixes: acc = row, acc += row, and the comparison.
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
  std::vector<T> stack_;   // stack for trees
};

extern template class ReductionValues<float>;
extern template class ReductionValues<double>;

}  // namespace plumbline::analysis
