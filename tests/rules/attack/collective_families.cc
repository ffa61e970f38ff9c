#include "tests/rules/attack/collective_families.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tests/rules/support/spec_values.h"

namespace plumbline::rules::testing {
namespace {

using Values = std::vector<double>;

double Round(double x, DType t) { return RoundToFormat(x, t); }

// Returns the sequential sum in the order of `rows`. Each partial sum is rounded by `round`.
template <typename Rounding>
double Chain(const Values& x, const std::vector<int>& rows, Rounding round) {
  double sum = x[static_cast<size_t>(rows[0])];
  for (size_t i = 1; i < rows.size(); ++i) sum = round(sum + x[static_cast<size_t>(rows[i])]);
  return sum;
}

std::vector<int> Shuffled(int n, Dice& dice) {
  std::vector<int> rows(static_cast<size_t>(n));
  std::iota(rows.begin(), rows.end(), 0);
  std::shuffle(rows.begin(), rows.end(), dice.engine());
  return rows;
}

std::vector<int> Ring(int n, int start, int step) {
  std::vector<int> rows;
  for (int i = 0; i < n; ++i) rows.push_back(((start + step * i) % n + n) % n);
  return rows;
}

// Returns the tree sum, which adds `ways` adjacent values per node.
double Tree(Values level, DType t, size_t ways) {
  while (level.size() > 1) {
    Values next;
    for (size_t i = 0; i < level.size(); i += ways) {
      double sum = level[i];
      for (size_t j = i + 1; j < std::min(i + ways, level.size()); ++j)
        sum = Round(sum + level[j], t);
      next.push_back(sum);
    }
    level = next;
  }
  return level[0];
}

double Exact(const Values& x) {
  long double sum = 0;
  for (const double v : x) sum += v;
  return static_cast<double>(sum);
}

double Compensated(const Values& x, DType t, bool neumaier) {
  double sum = x[0], lost = 0;
  for (size_t i = 1; i < x.size(); ++i) {
    const double y = neumaier ? x[i] : Round(x[i] - lost, t), next = Round(sum + y, t);
    if (!neumaier) {
      lost = Round(Round(next - sum, t) - y, t);
    } else if (std::fabs(sum) >= std::fabs(y)) {
      lost = Round(lost + Round(Round(sum - next, t) + y, t), t);
    } else {
      lost = Round(lost + Round(Round(y - next, t) + sum, t), t);
    }
    sum = next;
  }
  return neumaier ? Round(sum + lost, t) : sum;
}

// Returns one column of data of the given kind: noise, a common part, few distinct values, wide
// spreads or zeros.
Values Column(const Recorded& call, int kind, double center, Dice& dice) {
  Values x;
  for (int r = 0; r < call.ranks; ++r) {
    double v = dice.Normal();
    if (kind == 1) v = center * (1 + 0.3 * v);
    if (kind == 2) v *= std::exp2(10 * dice.Normal());
    if (kind == 3) v = dice.Uniform() < 0.9 ? 0 : v;
    if (kind == 4) v = dice.Below(7) - 3;
    if (kind == 5) v = center;
    x.push_back(Round(std::clamp(v, -200.0, 200.0), call.input));  // no fp16 overflow with 64 ranks
  }
  return x;
}

}  // namespace

double StochasticRound(double x, DType t, Dice& dice) {
  const double low = RoundToFormat(x, t, RoundingMode::kDown);
  const double high = RoundToFormat(x, t, RoundingMode::kUp);
  if (low == high || !std::isfinite(low) || !std::isfinite(high)) return RoundToFormat(x, t);
  return dice.Uniform() < (x - low) / (high - low) ? high : low;
}

Recorded DrawCall(Dice& dice) {
  Recorded call;
  call.ranks = dice.One({2, 3, 4, 5, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256});
  call.samples = dice.One({64, 128, 256});
  call.input = dice.One({DType::kBF16, DType::kF16, DType::kF32});
  call.kind = dice.Below(6);
  return call;
}

Recorded Filled(Recorded call, const Sum& sum, Dice& dice) {
  for (int i = 0; i < call.samples; ++i) {
    call.columns.push_back(Column(call, call.kind, std::exp(dice.Normal()), dice));
    call.output.push_back(Round(sum(call.columns.back(), call, dice), call.input));
  }
  return call;
}

double BiasOf(Recorded call, const Sum& sum) {
  Dice dice(4711);
  call.columns.clear();
  call.output.clear();
  call.samples = 2000;
  call = Filled(std::move(call), sum, dice);
  const DType unit = call.input == DType::kF32 ? DType::kBF16 : call.input;
  double errors = 0;
  int n = 0;
  for (size_t i = 0; i < call.columns.size(); ++i) {
    const double s = Exact(call.columns[i]);
    double squares = 0;
    for (const double x : call.columns[i]) squares += x * x;
    if (s == 0 || !std::isfinite(call.output[i])) continue;
    const double ulp = std::max(UlpOf(s, unit), UlpOf(std::sqrt(squares), unit));
    errors += (call.output[i] - Round(s, call.input)) / ulp * (s < 0 ? -1 : 1);
    ++n;
  }
  return n == 0 ? 0 : errors / n;
}

namespace {

ArithmeticFamily Plain(const std::string& name, Sum sum) {
  const auto make = [sum](Dice& dice) -> Attempt {
    const Recorded call = Filled(DrawCall(dice), sum, dice);
    return {BatchOf(call), [call, sum] { return BiasOf(call, sum); }};
  };
  return {name, make, "", false};
}

// Returns a family with one random order, fixed for the whole call.
ArithmeticFamily Ordered(const std::string& name, std::function<std::vector<int>(int, Dice&)> order,
                         RoundingMode mode) {
  const auto make = [order, mode](Dice& dice) -> Attempt {
    Recorded call = DrawCall(dice);
    const std::vector<int> rows = order(call.ranks, dice);
    const Sum sum = [rows, mode](const Values& x, const Recorded& c, Dice&) {
      return Chain(x, rows, [&](double v) { return RoundToFormat(v, c.input, mode); });
    };
    call = Filled(call, sum, dice);
    return {BatchOf(call), [call, sum] { return BiasOf(call, sum); }};
  };
  return {name, make, "", false};
}

// Returns a family of f32 sums. Applies `what` to all results of a call.
ArithmeticFamily After(const std::string& name, std::function<void(Recorded&, Dice&)> what) {
  const auto make = [what](Dice& dice) -> Attempt {
    Recorded call = DrawCall(dice);
    const auto exact = [](const Values& x, const Recorded&, Dice&) {
      return Round(Exact(x), DType::kF32);
    };
    call = Filled(call, exact, dice);
    what(call, dice);
    for (double& y : call.output) y = Round(y, call.input);
    return BatchOf(call);
  };
  return {name, make, "", false};
}

// Replaces the results with sums of values quantised to 8 bits with one common scale.
void Quantise(Recorded& call, double steps, Dice& dice) {
  for (size_t i = 0; i < call.output.size(); ++i) call.output[i] = 0;
  for (int r = 0; r < call.ranks; ++r) {
    double amax = 0;
    for (const Values& column : call.columns)
      amax = std::max(amax, std::fabs(column[static_cast<size_t>(r)]));
    const double unit = amax == 0 ? 1 : amax / steps;
    for (size_t i = 0; i < call.columns.size(); ++i)
      call.output[i] +=
          std::floor(call.columns[i][static_cast<size_t>(r)] / unit + dice.Uniform()) * unit;
  }
}

void Sparsify(Recorded& call, Dice&) {
  Values sizes;
  for (const double y : call.output) sizes.push_back(std::fabs(y));
  std::sort(sizes.begin(), sizes.end());
  const double least = sizes[sizes.size() * 9 / 10];
  for (double& y : call.output) y = std::fabs(y) < least ? 0 : y;
}

void LowRank(Recorded& call, Dice& dice) {
  // One common direction: the rank-1 PowerSGD approximation of a matrix with eight columns.
  for (size_t row = 0; row + 8 <= call.output.size(); row += 8) {
    double norm = 0, along = 0;
    Values q;
    for (int i = 0; i < 8; ++i) q.push_back(dice.Normal());
    for (size_t i = 0; i < 8; ++i) {
      norm += q[i] * q[i];
      along += q[i] * call.output[row + i];
    }
    for (size_t i = 0; i < 8; ++i) call.output[row + i] = along / norm * q[i];
  }
}

void OneBit(Recorded& call, Dice&) {
  double mean = 0;
  for (const double y : call.output) mean += std::fabs(y) / static_cast<double>(call.output.size());
  for (double& y : call.output) y = y < 0 ? -mean : mean;
}

std::function<void(Recorded&, Dice&)> Named(const char* algorithm,
                                            std::function<void(Recorded&, Dice&)> what) {
  return [=](Recorded& call, Dice& dice) {
    what(call, dice);
    call.algorithm = algorithm;
  };
}

void Scale(Recorded& call, double factor) {
  for (double& y : call.output) y *= factor;
}

std::vector<ArithmeticFamily> Orders() {
  constexpr auto kNearest = RoundingMode::kNearestEven;
  return {
      Ordered(
          "ring", [](int n, Dice&) { return Ring(n, 0, 1); }, kNearest),
      Ordered(
          "ring-start", [](int n, Dice& d) { return Ring(n, d.Below(n), 1); }, kNearest),
      Ordered(
          "ring-down", [](int n, Dice& d) { return Ring(n, d.Below(n), -1); }, kNearest),
      Ordered("order-unknown", Shuffled, kNearest),
      Plain("order-of-each-element",
            [](const Values& x, const Recorded& c, Dice& d) {
              return Chain(x, Shuffled(c.ranks, d), [&](double v) { return Round(v, c.input); });
            }),
      Plain("stochastic-hops",
            [](const Values& x, const Recorded& c, Dice& d) {
              return Chain(x, Shuffled(c.ranks, d),
                           [&](double v) { return StochasticRound(v, c.input, d); });
            }),
      Plain("tree", [](const Values& x, const Recorded& c, Dice&) { return Tree(x, c.input, 2); }),
      Plain("tree-of-three",
            [](const Values& x, const Recorded& c, Dice&) { return Tree(x, c.input, 3); }),
      Plain("tree-of-eight",
            [](const Values& x, const Recorded& c, Dice&) { return Tree(x, c.input, 8); }),
      Plain("kahan", [](const Values& x, const Recorded& c,
                        Dice&) { return Compensated(x, c.input, false); }),
      Plain("neumaier", [](const Values& x, const Recorded& c,
                           Dice&) { return Compensated(x, c.input, true); }),
      Plain("fp32",
            [](const Values& x, const Recorded& c, Dice&) {
              return Chain(x, Ring(c.ranks, 0, 1), [](double v) { return Round(v, DType::kF32); });
            }),
      Plain("exact", [](const Values& x, const Recorded&, Dice&) { return Exact(x); }),
      Plain("fp32-stored-stochastically",
            [](const Values& x, const Recorded& c, Dice& d) {
              return StochasticRound(Round(Exact(x), DType::kF32), c.input, d);
            }),
      Plain("nodes-of-eight",
            [](const Values& x, const Recorded& c, Dice&) {
              Values nodes;
              for (size_t i = 0; i < x.size(); i += 8) {
                double sum = 0;
                for (size_t j = i; j < std::min(i + 8, x.size()); ++j)
                  sum = Round(sum + x[j], DType::kF32);
                nodes.push_back(Round(sum, c.input));
              }
              return Chain(nodes, Ring(static_cast<int>(nodes.size()), 0, 1),
                           [&](double v) { return Round(v, c.input); });
            }),
      Plain("flushed",
            [](const Values& x, const Recorded& c, Dice&) {
              const double least = PowerOfTwo(FormatOf(c.input).min_exponent);
              return Chain(x, Ring(c.ranks, 0, 1), [&](double v) {
                const double y = Round(v, c.input);
                return std::fabs(y) < least ? 0 : y;
              });
            }),
  };
}

}  // namespace

v1::Batch BatchOf(const Recorded& call) {
  v1::Batch batch;
  const int records = call.outputs.empty() ? 1 : call.ranks;
  const auto m = static_cast<int64_t>(call.columns.size());
  for (int r = 0; r < records; ++r) {
    AddTrainer(r, records, &batch);
    v1::Evidence& e = *batch.add_evidence();
    e.set_source(static_cast<uint32_t>(r));
    e.mutable_site()->set_layer("gradients");
    e.mutable_site()->set_op(call.average ? "avg" : "sum");
    v1::ReductionCall& facts = *e.mutable_reduction()->mutable_call();
    facts.set_op(call.average ? v1::ReductionCall::OP_AVG : v1::ReductionCall::OP_SUM);
    if (call.wire_stated) facts.set_wire_dtype(static_cast<v1::DType>(call.input));
    facts.set_algorithm(call.algorithm);
    facts.set_group_size(static_cast<uint32_t>(call.ranks));
    facts.set_group_rank(static_cast<uint32_t>(r));
    facts.set_postscale(call.postscale);
    Values inputs;
    for (int row = records == 1 ? 0 : r; row < (records == 1 ? call.ranks : r + 1); ++row) {
      for (const Values& column : call.columns) inputs.push_back(column[static_cast<size_t>(row)]);
    }
    v1::ReductionSample& sample = *e.mutable_reduction()->mutable_sample();
    const std::vector<int64_t> shape =
        records == 1 ? std::vector<int64_t>{call.ranks, m} : std::vector<int64_t>{m};
    *sample.mutable_inputs() = TensorOf(inputs, call.input, shape);
    *sample.mutable_output() = TensorOf(
        records == 1 ? call.output : call.outputs[static_cast<size_t>(r)], call.input, {m});
  }
  return batch;
}

Recorded CleanCall(Dice& dice) {
  Recorded call = DrawCall(dice);
  call.input = dice.One({DType::kBF16, DType::kF16});
  call.ranks = dice.One({4, 8, 16});
  for (int i = 0; i < call.samples; ++i) {
    call.columns.push_back(Column(call, 0, 1, dice));
    const std::vector<int> ring = Ring(call.ranks, 0, 1);
    call.output.push_back(
        Chain(call.columns.back(), ring, [&](double v) { return Round(v, call.input); }));
  }
  return call;
}

std::vector<ArithmeticFamily> BiasedCollectives() {
  constexpr auto kZero = RoundingMode::kTowardZero;
  const auto biased = [](const std::string& name, int kind, const std::vector<int>& sizes,
                         const std::vector<DType>& inputs, bool error, const auto& order,
                         const Sum& sum) {
    const auto make = [=](Dice& dice) -> Attempt {
      Recorded call;
      call.kind = kind;
      call.samples = 512;
      call.ranks = sizes[static_cast<size_t>(dice.Below(static_cast<int>(sizes.size())))];
      call.input = inputs[static_cast<size_t>(dice.Below(static_cast<int>(inputs.size())))];
      const std::vector<int> rows = order(call.ranks, dice);
      const Sum ordered = [rows, sum](const Values& x, const Recorded& c, Dice& d) {
        Values y;
        for (const int r : rows) y.push_back(x[static_cast<size_t>(r)]);
        return sum(y, c, d);
      };
      return BatchOf(Filled(call, ordered, dice));
    };
    return ArithmeticFamily{name, make, "precision/collective-sum", !error};
  };
  const auto chain = [](RoundingMode mode) -> Sum {
    return [mode](const Values& x, const Recorded& c, Dice&) {
      return Chain(x, Ring(c.ranks, 0, 1),
                   [&](double v) { return RoundToFormat(v, c.input, mode); });
    };
  };
  const auto ascending = [](int n, Dice&) { return Ring(n, 0, 1); };
  const Sum stored = [](const Values& x, const Recorded& c, Dice&) {
    return RoundToFormat(Exact(x), c.input, kZero);
  };
  const Sum stored_away = [](const Values& x, const Recorded& c, Dice&) {
    const double sum = Exact(x);
    return RoundToFormat(sum, c.input, sum < 0 ? RoundingMode::kDown : RoundingMode::kUp);
  };
  const std::vector<DType> half = {DType::kBF16, DType::kF16};
  return {
      biased("stored-away-from-zero", 0, {4, 8, 64, 256}, half, false, ascending, stored_away),
      biased("stored-away-from-zero-alike", 1, {4, 8, 64, 256}, half, false, Shuffled, stored_away),
      biased("stored-toward-zero", 0, {4, 8, 64, 256}, half, false, ascending, stored),
      biased("hops-toward-zero", 0, {8, 16, 64, 256}, half, false, ascending, chain(kZero)),
      biased("hops-toward-zero-alike", 1, {8, 16, 64, 256}, half, true, ascending, chain(kZero)),
      biased("hops-toward-zero-any-order", 1, {16, 64, 256}, half, true, Shuffled, chain(kZero)),
      biased("hops-upward", 1, {16, 64, 256}, half, true, Shuffled, chain(RoundingMode::kUp)),
      biased("ring-of-many-alike", 1, {512, 1024}, {DType::kBF16}, true, ascending,
             chain(RoundingMode::kNearestEven)),
      biased("ring-of-many-alike-any-order", 1, {512, 1024}, {DType::kBF16}, true, Shuffled,
             chain(RoundingMode::kNearestEven)),
  };
}

std::vector<ArithmeticFamily> PoisonedArithmetics() {
  const auto poisoned = [](const std::string& name, double value, double share) {
    const auto make = [=](Dice& dice) -> Attempt {
      Recorded call = DrawCall(dice);
      for (int i = 0; i < call.samples; ++i) {
        call.columns.push_back(Column(call, 0, 1, dice));
        Values& x = call.columns.back();
        if (i == 0 || dice.Uniform() < share)
          x[static_cast<size_t>(dice.Below(call.ranks))] = value;
        double sum = x[0];
        for (size_t r = 1; r < x.size(); ++r) sum = Round(sum + x[r], call.input);
        call.output.push_back(sum);
      }
      return BatchOf(call);
    };
    return ArithmeticFamily{name, make, "precision/non-finite", false};
  };
  return {poisoned("one-nan", NAN, 0.02), poisoned("nan-in-half", NAN, 0.5),
          poisoned("all-nan", NAN, 1), poisoned("infinite", INFINITY, 0.1),
          poisoned("minus-infinite", -INFINITY, 0.1)};
}

std::vector<ArithmeticFamily> CleanCollectives() {
  std::vector<ArithmeticFamily> all = Orders();
  all.push_back(After("average", [](Recorded& c, Dice&) {
    Scale(c, 1.0 / c.ranks);
    c.average = true;
  }));
  all.push_back(After("average-multiplied", [](Recorded& c, Dice&) {
    Scale(c, Round(1.0 / c.ranks, DType::kF32));
    c.average = true;
  }));
  all.push_back(After("divided-after", [](Recorded& c, Dice&) { Scale(c, 1.0 / c.ranks); }));
  all.push_back(After("divided-after-declared", [](Recorded& c, Dice&) {
    Scale(c, 1.0 / c.ranks);
    c.postscale = 1.0 / c.ranks;
  }));
  all.push_back(After("loss-scale-undone", [](Recorded& c, Dice&) { Scale(c, 1.0 / 65536); }));
  all.push_back(
      After("norm-clipped", [](Recorded& c, Dice& d) { Scale(c, 0.05 + 0.9 * d.Uniform()); }));
  all.push_back(After("values-clipped", [](Recorded& c, Dice&) {
    double amax = 0;
    for (const double y : c.output) amax = std::max(amax, std::fabs(y));
    const double limit = Round(amax / 3, c.input);
    for (double& y : c.output) y = std::clamp(y, -limit, limit);
  }));
  all.push_back(After("powersgd", Named("powersgd", LowRank)));
  all.push_back(After("one-bit", Named("one-bit", OneBit)));
  all.push_back(After("top-k", Named("top-k", Sparsify)));
  all.push_back(
      After("int8", Named("int8-scaled", [](Recorded& c, Dice& d) { Quantise(c, 127, d); })));
  all.push_back(
      After("fp8", Named("fp8-scaled", [](Recorded& c, Dice& d) { Quantise(c, 16, d); })));
  all.push_back(After("powersgd-undeclared", LowRank));
  all.push_back(After("one-bit-undeclared", OneBit));
  all.push_back(After("top-k-undeclared", Sparsify));
  all.push_back(After("int8-undeclared", [](Recorded& c, Dice& d) { Quantise(c, 127, d); }));
  all.push_back(After("16-bit-hook-undeclared", [](Recorded& c, Dice& d) {
    const DType wire = d.One({DType::kBF16, DType::kF16});
    for (size_t i = 0; i < c.output.size(); ++i) {
      double sum = 0;
      for (const double x : c.columns[i]) sum = Round(sum + Round(x, wire), wire);
      c.output[i] = sum;
    }
    c.wire_stated = false;
  }));
  all.push_back(After("reduced-to-one-rank", [](Recorded& c, Dice& d) {
    c.outputs.assign(static_cast<size_t>(c.ranks), Values(c.output.size(), 0));
    c.outputs[static_cast<size_t>(d.Below(c.ranks))] = c.output;
    for (Values& row : c.outputs) {
      for (double& y : row) y = Round(y, c.input);
    }
  }));
  all.push_back(After("left-in-place-elsewhere", [](Recorded& c, Dice&) {
    c.outputs.assign(static_cast<size_t>(c.ranks), {});
    for (size_t r = 0; r < c.outputs.size(); ++r) {
      for (const Values& column : c.columns) c.outputs[r].push_back(column[r]);
    }
    for (size_t i = 0; i < c.output.size(); ++i) c.outputs[0][i] = Round(c.output[i], c.input);
  }));
  return all;
}

}  // namespace plumbline::rules::testing
