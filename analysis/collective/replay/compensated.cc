#include "analysis/collective/replay/compensated.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "analysis/collective/replay/values.h"

namespace plumbline::analysis {
namespace {

// A block of sums, each with the error that was lost so far.
template <typename T>
class Block {
 public:
  using Row = std::array<T, kBlockSamples>;

  Block(const ReductionValues<T>& values, int first, int n)
      : values_(values), first_(first), n_(n) {}

  // y = x - c; t = s + y; c = (t - s) - y
  void Kahan(int row) {
    Row y = Negated(lost_);
    Add(y, values_.Row(row, first_));
    Row t = sum_;
    Add(t, y.data());
    lost_ = t;
    Add(lost_, Negated(sum_).data());
    Add(lost_, Negated(y).data());
    sum_ = t;
  }

  // t = s + x; c += (larger - t) + smaller
  void Neumaier(int row) {
    const T* x = values_.Row(row, first_);
    Row t = sum_;
    Add(t, x);
    Row lost{}, small{};
    for (int i = 0; i < n_; ++i) {
      const auto at = static_cast<size_t>(i);
      const bool first = std::fabs(sum_[at]) >= std::fabs(x[i]);
      lost[at] = first ? sum_[at] : x[i];
      small[at] = first ? x[i] : sum_[at];
    }
    Add(lost, Negated(t).data());
    Add(lost, small.data());
    Add(lost_, lost.data());
    sum_ = t;
  }

  SampleMask Explained(Compensation method) {
    if (method == Compensation::kNeumaier) Add(sum_, lost_.data());
    return values_.Compare(sum_.data(), first_, n_);
  }

 private:
  void Add(Row& acc, const T* x) const { values_.Add(acc.data(), x, n_); }
  static Row Negated(Row v) {
    for (T& x : v) x = -x;
    return v;
  }

  const ReductionValues<T>& values_;
  int first_;
  int n_;
  Row sum_{};
  Row lost_{};
};

template <typename T>
void Count(const ReductionValues<T>& values, int enough, CompensatedSum& sum) {
  const int rows = values.rows();
  for (int first = 0; first < values.samples() && sum.missed < enough; first += kBlockSamples) {
    const int n = std::min(kBlockSamples, values.samples() - first);
    Block<T> block(values, first, n);
    for (int hop = 0; hop < rows; ++hop) {
      const int row = (sum.start + (sum.direction > 0 ? hop : rows - hop)) % rows;
      if (sum.method == Compensation::kKahan) {
        block.Kahan(row);
      } else {
        block.Neumaier(row);
      }
    }
    sum.tested += n;
    sum.missed += n - std::popcount(block.Explained(sum.method));
  }
}

// Both methods in both directions from each rank; from the first and the last one if there are
// many.
std::vector<CompensatedSum> All(int ranks) {
  constexpr int kMostStarts = 64;
  std::vector<CompensatedSum> all;
  for (const Compensation method : {Compensation::kKahan, Compensation::kNeumaier}) {
    for (const int direction : {1, -1}) {
      if (ranks > kMostStarts) {
        all.push_back({method, direction > 0 ? 0 : ranks - 1, direction});
        continue;
      }
      for (int start = 0; start < ranks; ++start) all.push_back({method, start, direction});
    }
  }
  return all;
}

template <typename T>
CompensatedSum Best(const ReductionCase& c, const Arithmetic& a, std::span<const int32_t> columns,
                    int enough) {
  const ReductionValues<T> values(c, a, columns);
  const auto share = [](const CompensatedSum& sum) {
    return static_cast<double>(sum.missed) / std::max(sum.tested, 1);
  };
  const auto worse = [&](const CompensatedSum& x, const CompensatedSum& y) {
    const bool x_up = x.missed >= enough;
    const bool y_up = y.missed >= enough;
    return x_up != y_up ? x_up : share(x) > share(y);
  };
  CompensatedSum best;
  for (CompensatedSum sum : All(c.ranks)) {
    Count(values, enough, sum);
    if (best.tested == 0 || worse(best, sum)) best = sum;
  }
  return best;
}

}  // namespace

std::string CompensatedSum::Words(DType dtype) const {
  return absl::StrCat(DTypeName(dtype), " compensated sum (",
                      method == Compensation::kKahan ? "Kahan" : "Neumaier", ") from rank ", start,
                      direction > 0 ? " up" : " down");
}

uint32_t CompensatedSums(int ranks) { return static_cast<uint32_t>(All(ranks).size()); }

CompensatedSum BestCompensatedSum(const ReductionCase& c, const Arithmetic& a,
                                  std::span<const int32_t> columns, int enough) {
  return a.partial == DType::kF64 ? Best<double>(c, a, columns, enough)
                                  : Best<float>(c, a, columns, enough);
}

}  // namespace plumbline::analysis
