#include "analysis/collective/case/outputs.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "analysis/sample/sample.h"
#include "base/half.h"
#include "base/load.h"
#include "base/real.h"

namespace plumbline::analysis {
namespace {

constexpr uint64_t kFewestNonZero = 64;
// If there are more different results, they do not belong to one reduction.
constexpr size_t kMostResults = 8;
constexpr double kLargeUnits = 4, kLargeUnitsOfOne = 2;
constexpr size_t kFewestSmaller = 8;

// One rank's row of values.
struct Row {
  uint32_t rank = 0;
  const char* data = nullptr;
};

// Rows with the same dtype, the same length and the same elements.
struct Rows {
  std::vector<Row> rows;
  DType dtype = DType::kUnspecified;
  int64_t count = 0;
  const v1::ReductionSample* sample = nullptr;  // sample of the first rank

  double Value(size_t row, int64_t i) const { return LoadDouble(rows[row].data, dtype, i); }
  size_t bytes() const { return static_cast<size_t>(count) * DTypeSize(dtype); }
};

bool SamePlaces(const v1::ReductionSample& a, const v1::ReductionSample& b) {
  return a.has_offsets() == b.has_offsets() && a.offsets().dtype() == b.offsets().dtype() &&
         a.offsets().data() == b.offsets().data();
}

std::optional<Rows> RowsOfOne(const JoinedReduction& joined) {
  const v1::ReductionSample& sample = joined.items[0].evidence->reduction().sample();
  const v1::Tensor& output = sample.output();
  if (output.shape_size() != 2 || output.shape(0) < 2) return std::nullopt;
  const std::vector<int64_t> shape(output.shape().begin(), output.shape().end());
  if (!CheckTensor("output", output, shape, true).ok()) return std::nullopt;
  Rows all{{}, static_cast<DType>(output.dtype()), shape[1], &sample};
  for (int64_t r = 0; all.count > 0 && r < shape[0]; ++r)
    all.rows.push_back(
        {static_cast<uint32_t>(r), output.data().data() + static_cast<size_t>(r) * all.bytes()});
  return all;
}

std::optional<Rows> RowsOf(const JoinedReduction& joined) {
  if (joined.items.empty() || !joined.ambiguous.empty()) return std::nullopt;
  if (HoldsAllRanks(joined.items[0].evidence->reduction())) return RowsOfOne(joined);
  Rows all;
  for (const Item& item : joined.items) {
    const v1::Reduction& reduction = item.evidence->reduction();
    if (!reduction.has_sample()) continue;
    const v1::ReductionSample& sample = reduction.sample();
    if (!sample.has_output()) continue;  // only another rank has the output
    const v1::Tensor& output = sample.output();
    const auto dtype = static_cast<DType>(output.dtype());
    if (all.rows.empty()) {
      all.dtype = dtype;
      all.count = output.shape_size() == 1 ? output.shape(0) : 0;
      all.sample = &sample;
    }
    if (dtype != all.dtype || !SamePlaces(sample, *all.sample) ||
        !CheckTensor("output", output, {all.count}, true).ok())
      return std::nullopt;
    all.rows.push_back({item.source->rank(), output.data().data()});
  }
  return all;
}

struct Comparison {
  uint64_t non_zero = 0;  // number of values that are not zero in the first row
  uint64_t agree = 0;     // number of these that agree
  uint64_t differ = 0;
  int64_t first = -1;
};

Comparison Compare(const Rows& all, size_t a, size_t b) {
  Comparison c;
  if (std::memcmp(all.rows[a].data, all.rows[b].data, all.bytes()) == 0) return c;
  for (int64_t i = 0; i < all.count; ++i) {
    const double x = all.Value(a, i), y = all.Value(b, i);
    const bool same = SameResult(x, y);
    const bool non_zero = x != 0 && std::isfinite(x);
    c.non_zero += non_zero ? 1 : 0;
    c.agree += non_zero && same ? 1 : 0;
    if (same) continue;
    ++c.differ;
    if (c.first < 0) c.first = i;
  }
  return c;
}

// Returns true if half of the differences are large. Otherwise all elements may differ by a little,
// most of them by less than their rounding. A part of one size in all elements changes the smallest
// of them first.
bool HalfAreLarge(const Rows& all, size_t a, size_t b, double least_units) {
  std::vector<double> units;
  for (int64_t i = 0; i < all.count; ++i) {
    const double x = all.Value(a, i);
    if (x != 0 && std::isfinite(x) && SameResult(x, all.Value(b, i)))
      units.push_back(UlpOf(x, all.dtype));
  }
  const size_t smaller = std::max(kFewestSmaller, units.size() / 16);
  if (units.size() <= smaller) return false;
  const auto least = units.begin() + static_cast<std::ptrdiff_t>(smaller);
  std::nth_element(units.begin(), least, units.end());
  uint64_t large = 0, small = 0;
  for (int64_t i = 0; i < all.count; ++i) {
    const double x = all.Value(a, i), y = all.Value(b, i);
    if (SameResult(x, y)) continue;
    const double unit = std::max(*least, std::min(UlpOf(x, all.dtype), UlpOf(y, all.dtype)));
    ++(std::fabs(x - y) < least_units * unit ? small : large);
  }
  return large >= small;
}

// Returns, per rank, the index into `rows` of the first rank with the same result. If there are too
// many results, returns nullopt.
std::optional<std::vector<size_t>> Classes(const Rows& all) {
  std::vector<size_t> first_of, results;
  for (size_t r = 0; r < all.rows.size(); ++r) {
    const auto found = std::find_if(results.begin(), results.end(), [&](size_t other) {
      return Compare(all, other, r).differ == 0;
    });
    first_of.push_back(found == results.end() ? r : *found);
    if (found != results.end()) continue;
    if (results.size() == kMostResults) return std::nullopt;
    results.push_back(r);
  }
  return first_of;
}

uint64_t ElementOf(const Rows& all, int64_t i) {
  if (!all.sample->has_offsets()) return static_cast<uint64_t>(i);
  const v1::Tensor& offsets = all.sample->offsets();
  if (!CheckTensor("offsets", offsets, {all.count}, false).ok()) return static_cast<uint64_t>(i);
  return static_cast<uint64_t>(
      LoadInt64(offsets.data().data(), static_cast<DType>(offsets.dtype()), i));
}

}  // namespace

std::optional<OutputSplit> SplitOutputs(const JoinedReduction& joined) {
  const std::optional<Rows> all = RowsOf(joined);
  if (!all || all->rows.size() < 2 || all->count == 0) return std::nullopt;
  const auto classes = Classes(*all);
  if (!classes) return std::nullopt;
  const auto usual = std::max_element(classes->begin(), classes->end(), [&](size_t a, size_t b) {
    return std::count(classes->begin(), classes->end(), a) <
           std::count(classes->begin(), classes->end(), b);
  });
  const size_t reference = *usual;
  OutputSplit split;
  split.compared = static_cast<uint64_t>(all->count);
  const auto alike = static_cast<size_t>(std::count(classes->begin(), classes->end(), reference));
  split.majority = 2 * alike > classes->size();
  bool found = false;
  const bool one_odd = split.majority && alike + 1 == classes->size();
  const double units = one_odd ? kLargeUnitsOfOne : kLargeUnits;
  for (size_t r = 0; r < classes->size(); ++r) {
    split.ranks.push_back(all->rows[r].rank);
    if ((*classes)[r] == reference) continue;
    const Comparison c = Compare(*all, reference, r);
    if (c.non_zero < kFewestNonZero || 2 * c.agree < c.non_zero) return std::nullopt;
    split.odd.push_back(all->rows[r].rank);
    split.clear = split.clear && HalfAreLarge(*all, reference, r, units);
    if (std::exchange(found, true)) continue;
    split.differ = c.differ;
    split.element = ElementOf(*all, c.first);
    split.rank_a = all->rows[reference].rank;
    split.rank_b = all->rows[r].rank;
    split.value_a = all->Value(reference, c.first);
    split.value_b = all->Value(r, c.first);
  }
  if (!split.odd.empty() && !split.majority) split.odd = split.ranks;
  return split;
}

}  // namespace plumbline::analysis
