#include "analysis/collective/replay/orders.h"

#include <algorithm>
#include <array>
#include <numeric>

namespace plumbline::analysis {
namespace {

// Returns the number that the order of `sequence` has in AllRingOrders. The sequence may begin at
// any row.
size_t OrderNumber(const std::array<int32_t, kMostSearchedRows>& sequence, int rows, int* start) {
  const auto zero =
      static_cast<int>(std::find(sequence.begin(), sequence.begin() + rows, 0) - sequence.begin());
  *start = (rows - zero) % rows;  // the sequence begins there, relative to row 0
  size_t number = 0;
  for (int i = 1; i < rows; ++i) {
    const int32_t row = sequence[static_cast<size_t>((zero + i) % rows)];
    size_t smaller = 0;
    for (int j = i + 1; j < rows; ++j)
      smaller += sequence[static_cast<size_t>((zero + j) % rows)] < row;
    number = number * static_cast<size_t>(rows - i) + smaller;
  }
  return number;
}

// Visits all sequences of rows, and keeps the sums of their prefixes.
template <typename T>
class ChainWalk {
 public:
  ChainWalk(ReductionValues<T>& values, int first, int n, std::vector<SampleMask>& masks)
      : values_(values), first_(first), n_(n), masks_(masks) {}

  void Run() {
    for (int32_t row = 0; row < values_.rows(); ++row) {
      std::copy_n(values_.Row(row, first_), n_, sums_[0].begin());
      sequence_[0] = row;
      Extend(1, 1u << row);
    }
  }

 private:
  void Extend(int length, uint32_t used) {
    const int rows = values_.rows();
    if (length == rows) return Leaf();
    const auto at = static_cast<size_t>(length);
    for (int32_t row = 0; row < rows; ++row) {
      if (used & (1u << row)) continue;
      sequence_[at] = row;
      // The first two rows commute, so their sum is computed only once.
      if (length == 1 && row < sequence_[0]) continue;
      std::copy_n(sums_[at - 1].begin(), n_, sums_[at].begin());
      values_.Add(sums_[at].data(), values_.Row(row, first_), n_);
      Extend(length + 1, used | (1u << row));
    }
  }

  void Leaf() {
    const int rows = values_.rows();
    const SampleMask mask =
        values_.Compare(sums_[static_cast<size_t>(rows - 1)].data(), first_, n_);
    Put(mask);
    std::swap(sequence_[0], sequence_[1]);
    Put(mask);
    std::swap(sequence_[0], sequence_[1]);
  }

  void Put(SampleMask mask) {
    int start = 0;
    const size_t order = OrderNumber(sequence_, values_.rows(), &start);
    masks_[order * static_cast<size_t>(values_.rows()) + static_cast<size_t>(start)] = mask;
  }

  ReductionValues<T>& values_;
  int first_;
  int n_;
  std::vector<SampleMask>& masks_;
  std::array<int32_t, kMostSearchedRows> sequence_{};
  std::array<std::array<T, kBlockSamples>, kMostSearchedRows> sums_;
};

}  // namespace

std::vector<RingOrder> AllRingOrders(int rows) {
  RingOrder order(static_cast<size_t>(rows));
  std::iota(order.begin(), order.end(), 0);
  std::vector<RingOrder> orders;
  do {
    orders.push_back(order);
  } while (std::next_permutation(order.begin() + 1, order.end()));
  return orders;
}

template <typename T>
void AllChains(ReductionValues<T>& values, int first, int n, std::vector<SampleMask>& masks) {
  size_t sequences = 1;
  for (int i = 2; i <= values.rows(); ++i) sequences *= static_cast<size_t>(i);
  masks.assign(sequences, 0);
  ChainWalk<T>(values, first, n, masks).Run();
}

template void AllChains(ReductionValues<float>&, int, int, std::vector<SampleMask>&);
template void AllChains(ReductionValues<double>&, int, int, std::vector<SampleMask>&);

}  // namespace plumbline::analysis
