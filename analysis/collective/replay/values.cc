#include "analysis/collective/replay/values.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <type_traits>

namespace plumbline::analysis {
namespace {

template <typename T>
AddBlock<T> AdderFor(const Arithmetic& a) {
  if constexpr (std::is_same_v<T, double>) {
    return DoubleAdder(a.rounding);
  } else {
    return FloatAdder(a.partial, a.rounding, a.flush != Flush::kNone);
  }
}

}  // namespace

template <typename T>
ReductionValues<T>::ReductionValues(const ReductionCase& c, const Arithmetic& a,
                                    std::span<const int32_t> columns)
    : a_(a),
      ranks_(c.ranks),
      rows_(c.ranks / a.group),
      samples_(static_cast<int>(columns.size())),
      as_is_(LeavesAsIs(a)),
      add_(AdderFor<T>(a)) {
  x_.resize(static_cast<size_t>(rows_) * columns.size());
  if (columns.empty()) return;
  for (const int32_t column : columns) y_.push_back(c.output[static_cast<size_t>(column)]);
  if (a.group == 1) {
    Load(c, columns);
  } else {
    for (int g = 0; g < rows_; ++g) SumGroup(c, columns, g);
  }
}

template <typename T>
void ReductionValues<T>::Load(const ReductionCase& c, std::span<const int32_t> columns) {
  T* out = x_.data();
  for (int r = 0; r < rows_; ++r) {
    for (const int32_t column : columns) {
      *out++ = static_cast<T>(EnterSum(a_, c.input(r, column), ranks_));
    }
  }
}

// Adds the ranks of a group in their order, as one node does before the sum over nodes.
template <typename T>
void ReductionValues<T>::SumGroup(const ReductionCase& c, std::span<const int32_t> columns,
                                  int group) {
  Arithmetic inner = a_;
  inner.partial = a_.group_partial;
  const AddBlock<T> add = inner.partial == a_.partial ? add_ : AdderFor<T>(inner);
  std::vector<T> row(columns.size());
  T* acc = &x_[Index(group, 0)];
  for (int r = group * a_.group; r < (group + 1) * a_.group; ++r) {
    const bool begin = r == group * a_.group;
    T* to = begin ? acc : row.data();
    for (size_t i = 0; i < columns.size(); ++i)
      to[i] = static_cast<T>(EnterSum(a_, c.input(r, columns[i]), ranks_));
    if (!begin) add(acc, row.data(), samples_);
  }
  if (inner.partial == a_.partial) return;
  for (int i = 0; i < samples_; ++i)
    acc[i] = static_cast<T>(RoundToFormat(static_cast<double>(acc[i]), a_.partial));
}

// `|` in place of `||`: the loop has no branch, so it vectorises.
template <typename T>
SampleMask ReductionValues<T>::Compare(const T* acc, int first, int n) const {
  SampleMask mask = 0;
  for (int i = 0; i < n; ++i) {
    const auto sum = static_cast<double>(acc[i]);
    const double v = as_is_ ? sum : LeaveSum(a_, sum, ranks_);
    const double y = y_[static_cast<size_t>(first + i)];
    const bool equal = (v == y) | ((v != v) & (y != y));
    mask |= static_cast<SampleMask>(equal) << i;
  }
  return mask;
}

template <typename T>
SampleMask ReductionValues<T>::Chain(std::span<const int32_t> rows, int first, int n) {
  std::array<T, kBlockSamples> acc{};
  std::copy_n(Row(rows[0], first), n, acc.begin());
  for (const int32_t row : rows.subspan(1)) add_(acc.data(), Row(row, first), n);
  return Compare(acc.data(), first, n);
}

template <typename T>
SampleMask ReductionValues<T>::Rings(std::span<const int32_t> order, const int32_t* starts,
                                     int direction, int first, int n) {
  std::array<T, kBlockSamples> acc{}, next{};
  std::array<int32_t, kBlockSamples> at{};
  std::copy_n(starts, n, at.begin());
  for (int hop = 0; hop < rows_; ++hop) {
    T* to = hop == 0 ? acc.data() : next.data();
    for (int i = 0; i < n; ++i) {
      int32_t& p = at[static_cast<size_t>(i)];
      to[i] = x_[Index(order[static_cast<size_t>(p)], first + i)];
      p += direction;
      p = p == rows_ ? 0 : p < 0 ? rows_ - 1 : p;
    }
    if (hop > 0) add_(acc.data(), next.data(), n);
  }
  return Compare(acc.data(), first, n);
}

template <typename T>
SampleMask ReductionValues<T>::Rings(const std::vector<std::span<const int32_t>>& orders,
                                     const int32_t* starts, int direction, int first, int n) {
  std::array<T, kBlockSamples> acc{}, next{};
  for (int hop = 0; hop < rows_; ++hop) {
    T* to = hop == 0 ? acc.data() : next.data();
    for (int i = 0; i < n; ++i) {
      const int p = ((starts[i] + direction * hop) % rows_ + rows_) % rows_;
      to[i] = x_[Index(orders[static_cast<size_t>(i)][static_cast<size_t>(p)], first + i)];
    }
    if (hop > 0) add_(acc.data(), next.data(), n);
  }
  return Compare(acc.data(), first, n);
}

// The tree's code is postfix: a row is pushed, kAdd adds the top block to the one below it.
template <typename T>
SampleMask ReductionValues<T>::Tree(const SumTree& tree, int first, int n) {
  stack_.resize(static_cast<size_t>(tree.depth) * kBlockSamples);
  T* top = stack_.data();  // first free slot
  for (const int32_t op : tree.code) {
    if (op == SumTree::kAdd) {
      top -= kBlockSamples;
      add_(top - kBlockSamples, top, n);
    } else {
      std::copy_n(Row(op, first), n, top);
      top += kBlockSamples;
    }
  }
  return Compare(stack_.data(), first, n);
}

template class ReductionValues<float>;
template class ReductionValues<double>;

}  // namespace plumbline::analysis
