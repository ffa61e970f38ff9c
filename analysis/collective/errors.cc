#include "analysis/collective/errors.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "analysis/collective/case/case.h"

namespace plumbline::analysis {
namespace {

// The addends of one element, as they enter the wire: their exact sum and sum of squares.
struct ExactColumn {
  ExactSum sum;
  double squares = 0;
  bool finite = true;
};

ExactColumn ExactOf(const ReductionCase& c, int column, std::vector<double>* addends = nullptr) {
  ExactColumn out;
  for (int r = 0; r < c.ranks; ++r) {
    const double x = RoundToFormat(c.input(r, column), c.wire_dtype);
    out.finite &= std::isfinite(x);
    if (!out.finite) break;
    out.sum.Add(x);
    out.squares += x * x;
    if (addends != nullptr) addends->push_back(x);
  }
  return out;
}

uint32_t DivisorOf(const ReductionCase& c) {
  return c.average() ? static_cast<uint32_t>(c.ranks) : 1;
}

// Returns the error in the unit in which biases are judged.
SumError Judged(double y, const ExactColumn& exact, DType result, uint32_t divisor) {
  SumError error = ErrorOf(y, exact.sum, exact.squares, result, divisor);
  error.e *= BiasUnitScale(result);
  return error;
}

// What an arithmetic would do: the mean error of elements whose bias is judged, and the root mean
// square of all that are not set aside.
class ErrorMean {
 public:
  void Take(const SumError& error) {
    if (error.kind == SumError::Kind::kAside) return;
    ++drawn_;
    squares_ += error.e * error.e;
    misrounded_ += error.misrounded;
    if (error.kind != SumError::Kind::kJudged) return;
    ++judged_;
    sum_ += error.e;
  }
  WhatIf Get(std::string model) const {
    const auto n = static_cast<double>(drawn_);
    return {std::move(model), judged_, judged_ > 0 ? sum_ / static_cast<double>(judged_) : 0,
            drawn_ > 0 ? std::sqrt(squares_ / n) : 0,
            drawn_ > 0 ? static_cast<double>(misrounded_) / n : 0};
  }

 private:
  uint64_t drawn_ = 0, judged_ = 0, misrounded_ = 0;
  double sum_ = 0, squares_ = 0;
};

// The arithmetics to compare, with the words that name them.
struct Option {
  std::string words;
  SumMachine machine;
};

std::vector<Option> ComparedOptions(const ReductionCase& c, const SumTree& tree) {
  SumMachine base;
  base.ranks = c.ranks;
  base.arithmetic.wire = c.wire_dtype;
  base.arithmetic.store = c.result_dtype();
  base.arithmetic.averaging = c.average() ? Averaging::kPostDivided : Averaging::kNone;
  std::vector<Option> options;
  const auto add = [&](DType partial, SumMachine::Order order, const std::string& words) {
    SumMachine m = base;
    m.arithmetic.partial = partial;
    m.arithmetic.through_wire = false;
    m.order = order;
    m.tree = order == SumMachine::Order::kTree ? &tree : nullptr;
    options.push_back({words, m});
  };
  const std::string wire = DTypeName(c.wire_dtype);
  add(c.wire_dtype, SumMachine::Order::kRing, wire + " ring");
  add(c.wire_dtype, SumMachine::Order::kTree, wire + " tree");
  if (FormatOf(c.wire_dtype).precision < 24) {
    add(DType::kF32, SumMachine::Order::kRing, "fp32 accumulation, rounded once");
  }
  return options;
}

}  // namespace

SumErrors ErrorsOfOutputs(const ReductionCase& c) {
  SumErrors errors;
  const std::vector<int32_t> kinds = KindsOf(c);
  std::vector<double> sizes(kinds.size());  // sizes of the judged samples, by kind
  for (int i = 0; i < c.samples; ++i) {
    const ExactColumn exact = ExactOf(c, i);
    if (!exact.finite) {
      errors.TakeAside();
      continue;
    }
    const size_t at = static_cast<size_t>(i);
    const SumError error = Judged(c.output[at], exact, c.result_dtype(), DivisorOf(c));
    if (error.kind == SumError::Kind::kJudged) ++sizes[static_cast<size_t>(kinds[at])];
    errors.Take(error);
  }
  for (const double size : sizes) errors.alike += size * size;
  return errors;
}

void RelativeErrorSum::Take(const ReductionCase& c) {
  // Ignores larger values, because their products would make the sums infinite for the rest of the
  // run.
  constexpr double kLargest = 0x1p480;
  for (int i = 0; i < c.samples; ++i) {
    const ExactColumn exact = ExactOf(c, i);
    const double y = c.output[static_cast<size_t>(i)];
    if (!exact.finite || !(std::fabs(y) <= kLargest)) continue;
    const double s = exact.sum.RoundTo(DType::kF64, RoundingMode::kNearestEven, DivisorOf(c));
    const double size = std::fabs(s);
    if (!(size > 0) || !(size <= kLargest)) continue;
    const double d = (s < 0 ? -y : y) - size;
    ++n_;
    d_ += d;
    s_ += size;
    dd_ += d * d;
    ds_ += d * size;
    ss_ += size * size;
  }
}

RelativeError RelativeErrorSum::Get() const {
  RelativeError out;
  out.samples = n_;
  if (n_ == 0) {
    out.mean = out.standard_error = NAN;
    return out;
  }
  out.mean = d_ / s_;
  const double residuals = dd_ - 2 * out.mean * ds_ + out.mean * out.mean * ss_;
  out.standard_error = std::sqrt(std::max(residuals, 0.0)) / s_;
  return out;
}

double SumMachine::Run(std::span<const double> addends, int start, double* largest,
                       LostMass* lost) const {
  const auto n = static_cast<int>(addends.size());
  const auto watch = [&](double v) {
    if (largest != nullptr && !(std::fabs(v) <= *largest)) *largest = std::fabs(v);
    return v;
  };
  const auto enter = [&](int row) {
    return EnterSum(arithmetic, addends[static_cast<size_t>(row)], ranks);
  };
  double sum = 0;
  if (order == Order::kTree) {
    std::vector<double> stack;
    for (const int32_t op : tree->code) {
      if (op != SumTree::kAdd) {
        stack.push_back(enter(op));
        continue;
      }
      const double top = stack.back();
      stack.pop_back();
      stack.back() = watch(HopSum(arithmetic, stack.back(), top));
    }
    sum = stack.back();
  } else {
    sum = enter(start % n);
    for (int i = 1; i < n; ++i) {
      const double before = sum;
      const double x = enter((start + i) % n);
      sum = watch(HopSum(arithmetic, sum, x));
      if (lost != nullptr) lost->Take(before, x, sum);
    }
  }
  return LeaveSum(arithmetic, sum, ranks);
}

std::vector<WhatIf> WhatIfTable(const ReductionCase& c, std::span<const int32_t> columns) {
  constexpr size_t kColumns = 1024;
  constexpr int64_t kValues = 1 << 18;
  const size_t most = std::clamp<size_t>(static_cast<size_t>(kValues / c.ranks), 16, kColumns);
  const auto used = columns.first(std::min(columns.size(), most));
  const std::vector<NamedTree> trees = CandidateTrees(c.ranks);
  const std::vector<Option> options = ComparedOptions(c, trees.front().tree);
  std::vector<ErrorMean> means(options.size());
  std::vector<LostMass> lost(options.size());
  for (const int32_t column : used) {
    std::vector<double> addends;
    const ExactColumn exact = ExactOf(c, column, &addends);
    if (!exact.finite) continue;
    for (size_t i = 0; i < options.size(); ++i) {
      const double y = options[i].machine.Run(addends, column % c.ranks, nullptr, &lost[i]);
      means[i].Take(Judged(y, exact, c.result_dtype(), DivisorOf(c)));
    }
  }
  std::vector<WhatIf> table;
  for (size_t i = 0; i < options.size(); ++i) {
    table.push_back(means[i].Get(options[i].words));
    table.back().lost_mass = lost[i].mass_share();
  }
  return table;
}

}  // namespace plumbline::analysis
