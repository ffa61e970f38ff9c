#include "analysis/collective/growth.h"

#include <algorithm>
#include <cmath>

#include "analysis/statistics/statistics.h"
#include "base/half.h"

namespace plumbline::analysis {
namespace {

constexpr int kMostRanks = 2048;
constexpr int kColumns = 256;

// Draws normal numbers with SplitMix64 and Box-Muller, so that they are equal on every host.
class Normals {
 public:
  explicit Normals(uint64_t seed) : state_(seed) {}
  double Next() {
    if (kept_) {
      kept_ = false;
      return other_;
    }
    const double radius = std::sqrt(-2 * std::log(1 - Uniform()));
    const double angle = 2 * M_PI * Uniform();
    kept_ = true;
    other_ = radius * std::sin(angle);
    return radius * std::cos(angle);
  }
  double Uniform() {
    state_ += 0x9e3779b97f4a7c15ull;
    uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return static_cast<double>((z ^ (z >> 31)) >> 11) * 0x1p-53;
  }

 private:
  uint64_t state_;
  bool kept_ = false;
  double other_ = 0;
};

// Mean and standard deviation of one element over the ranks.
struct Spread {
  double mean = 0;
  double sd = 0;
};

std::vector<Spread> SpreadsOf(const ReductionCase& c, std::span<const int32_t> columns) {
  std::vector<Spread> spreads;
  for (const int32_t column : columns) {
    double mean = 0;
    double squares = 0;
    for (int r = 0; r < c.ranks; ++r) {
      const double d = c.input(r, column) - mean;
      mean += d / (r + 1);
      squares += d * (c.input(r, column) - mean);
    }
    const double sd = std::sqrt(squares / (c.ranks - 1));
    if (std::isfinite(mean) && std::isfinite(sd) && (mean != 0 || sd > 0))
      spreads.push_back({mean, sd});
  }
  return spreads;
}

// Simulates the errors of columns of random addends.
template <typename Draw>
GrownBias Simulate(const SumMachine& machine, DType wire, DType result, uint32_t divisor, int ranks,
                   Draw draw) {
  std::vector<double> addends(static_cast<size_t>(ranks));
  double mean = 0;
  double squares = 0;
  double relative = 0;
  int n = 0;
  for (int i = 0; i < kColumns; ++i) {
    draw(i, addends);
    ExactSum exact;
    double sum_squares = 0;
    for (double& x : addends) {
      x = RoundToFormat(x, wire);
      if (!std::isfinite(x)) x = 0;
      exact.Add(x);
      sum_squares += x * x;
    }
    const double y = machine.Run(addends, i * (ranks / 8 + 1) % ranks);
    SumError error = ErrorOf(y, exact, sum_squares, result, divisor);
    error.e *= BiasUnitScale(result);
    if (error.kind != SumError::Kind::kJudged) continue;
    ++n;
    const double d = error.e - mean;
    mean += d / n;
    squares += d * (error.e - mean);
    relative += y / exact.RoundTo(DType::kF64, RoundingMode::kNearestEven, divisor) - 1;
  }
  GrownBias out;
  out.ranks = ranks;
  out.mean = n > 0 ? mean : NAN;
  out.half_width = n > 1 ? kBiasDeviations * std::sqrt(squares / (n - 1) / n) : INFINITY;
  out.relative = n > 0 ? relative / n : NAN;
  return out;
}

// Returns the sum of the accepted class, for another number of ranks.
SumMachine MachineFor(const ReductionReplay& replay, int ranks, std::vector<NamedTree>& trees) {
  SumMachine m;
  m.arithmetic = replay.arithmetic;
  m.ranks = ranks;
  m.arithmetic.group = 1;
  const std::string family = replay.name == "indistinguishable" ? "ring" : replay.name;
  if (family != "tree" && family != "halving") return m;
  trees = CandidateTrees(ranks);
  m.order = SumMachine::Order::kTree;
  for (const NamedTree& tree : trees) {
    if (tree.family == family) {
      m.tree = &tree.tree;
      break;
    }
  }
  if (m.tree == nullptr) m.tree = &trees.front().tree;
  return m;
}

}  // namespace

bool GrownBias::beyond_budget() const {
  return mean - half_width > kBiasBudgetUlp || mean + half_width < -kBiasBudgetUlp;
}

int RankGrowth::breaks_at() const {
  return !tried.empty() && tried.back().beyond_budget() ? tried.back().ranks : 0;
}

RankGrowth GrowReduction(const ReductionCase& c, const ReductionReplay& replay) {
  RankGrowth growth;
  const std::vector<Spread> spreads = SpreadsOf(c, replay.columns);
  if (spreads.empty()) return growth;
  // If groups of G ranks are summed first, only the sums of groups are narrow partial sums.
  const int group = std::max(1, replay.arithmetic.group);
  for (int ranks = 2 * c.ranks; ranks <= kMostRanks; ranks *= 2) {
    std::vector<NamedTree> trees;
    const int rows = ranks / group;
    const SumMachine machine = MachineFor(replay, ranks, trees);
    Normals normals(static_cast<uint64_t>(ranks));
    GrownBias bias = Simulate(machine, replay.arithmetic.wire, c.result_dtype(),
                              c.average() ? static_cast<uint32_t>(ranks) : 1, rows,
                              [&](int i, std::vector<double>& x) {
                                const Spread& s = spreads[static_cast<size_t>(i) % spreads.size()];
                                for (double& v : x)
                                  v = group * s.mean + std::sqrt(group) * s.sd * normals.Next();
                              });
    bias.ranks = ranks;
    growth.tried.push_back(bias);
    if (bias.beyond_budget()) break;
  }
  return growth;
}

GrownBias PredictRing(DType dtype, int ranks) {
  SumMachine m;
  m.arithmetic.wire = m.arithmetic.partial = m.arithmetic.store = dtype;
  m.ranks = ranks;
  Normals normals(static_cast<uint64_t>(ranks));
  return Simulate(m, dtype, dtype, 1, ranks, [&](int, std::vector<double>& x) {
    const double c = std::exp(normals.Next());
    for (double& v : x) v = c * (1 + .3 * normals.Next());
  });
}

}  // namespace plumbline::analysis
