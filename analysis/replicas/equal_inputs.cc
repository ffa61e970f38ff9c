#include "analysis/replicas/equal_inputs.h"

#include <cmath>
#include <set>

namespace plumbline::analysis {
namespace {

constexpr size_t kFewElements = 64;
constexpr size_t kFewValues = 8;  // a tensor of ones is the same for every batch

// a tensor of ones is equal for every batch
struct Pair {
  bool equal = true;        // Comparison of two rows of one call.
  size_t informative = 0;   // finite and not zero
  std::set<double> values;  // of these: the first few magnitudes

  bool reports() const { return informative >= kFewElements && values.size() >= kFewValues; }
};

Pair CompareRows(const ReductionCase& c, int a, int b) {
  Pair pair;
  for (int i = 0; i < c.samples; ++i) {
    const double x = c.input(a, i), y = c.input(b, i);
    if (std::isfinite(x) != std::isfinite(y) || (std::isfinite(x) && x != y)) {
      pair.equal = false;
      return pair;
    }
    if (!std::isfinite(x) || x == 0) continue;
    ++pair.informative;
    if (pair.values.size() < kFewValues) pair.values.insert(std::fabs(x));
  }
  return pair;
}

}  // namespace

InputClasses ClassesOfInputs(const JoinedReduction& joined, const ReductionCase& c) {
  InputClasses step;
  const bool each = joined.items.size() == static_cast<size_t>(c.ranks);
  for (int r = 0; r < c.ranks; ++r) {
    step.ranks.push_back(each ? joined.items[static_cast<size_t>(r)].source->rank()
                              : static_cast<uint32_t>(r));
  }
  step.finite =
      std::any_of(c.inputs.begin(), c.inputs.end(), [](double x) { return std::isfinite(x); });
  std::vector<int> firsts;
  for (int r = 0; r < c.ranks; ++r) {
    int same = r;
    for (const int first : firsts) {
      const Pair pair = CompareRows(c, first, r);
      if (!pair.equal) continue;
      step.unclear |= !pair.reports();
      if (!pair.reports()) break;
      same = first;
      step.informative =
          step.informative == 0 ? pair.informative : std::min(step.informative, pair.informative);
      break;
    }
    if (same == r) firsts.push_back(r);
    step.classes.push_back(static_cast<uint32_t>(same));
  }
  return step;
}

void Refine(const InputClasses& next, InputClasses& step) {
  if (next.ranks != step.ranks) return;
  std::vector<std::pair<uint32_t, uint32_t>> keys;
  for (size_t i = 0; i < step.ranks.size(); ++i)
    keys.emplace_back(step.classes[i], next.classes[i]);
  for (size_t i = 0; i < step.ranks.size(); ++i) step.classes[i] = static_cast<uint32_t>(i);
  for (const auto& list : Alike(keys)) {
    for (const size_t i : list) step.classes[i] = static_cast<uint32_t>(list[0]);
  }
  step.informative += next.informative;
  step.unclear |= next.unclear;
  step.finite |= next.finite;
}

}  // namespace plumbline::analysis
