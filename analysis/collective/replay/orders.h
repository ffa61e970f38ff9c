// Lists ring orders: the known ones, or all of them if there are few ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "analysis/collective/replay/values.h"

namespace plumbline::analysis {

using RingOrder = std::vector<int32_t>;  // rows in the order in which they are added

inline constexpr int kMostSearchedRows = 8;
// Rings with more rows are not tried. Each start is a separate chain, so the work grows with the
// square of the rows.
inline constexpr int kMostRingRows = 2048;

// Returns every cyclic order of `rows` <= 8 rows, each direction separately, beginning with row 0:
// (rows - 1)! orders, lexicographic.
std::vector<RingOrder> AllRingOrders(int rows);

// For every order of AllRingOrders and every start, sets masks[order * rows + start] to the samples
// of the block that a chain from there explains. Chains with the same beginning share its sum, so
// there are only about e * rows! sums.
template <typename T>
void AllChains(ReductionValues<T>& values, int first, int n, std::vector<SampleMask>& masks);

extern template void AllChains(ReductionValues<float>&, int, int, std::vector<SampleMask>&);
extern template void AllChains(ReductionValues<double>&, int, int, std::vector<SampleMask>&);

}  // namespace plumbline::analysis
