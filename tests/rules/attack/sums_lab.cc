#include "tests/rules/attack/sums_lab.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace plumbline::rules::testing {

double Rounded(double x, DType t, RoundingMode mode) { return RoundToFormat(x, t, mode); }

double Total(const SumValues& x) {
  long double sum = 0;
  for (const double v : x) sum += v;
  return static_cast<double>(sum);
}

std::vector<int> OrderFrom(int n, int first) {
  std::vector<int> rows;
  for (int i = 0; i < n; ++i) rows.push_back((first + i) % n);
  return rows;
}

std::vector<int> AnyOrder(int n, Dice& dice) {
  std::vector<int> rows = OrderFrom(n, 0);
  std::shuffle(rows.begin(), rows.end(), dice.engine());
  return rows;
}

double ChainOf(const SumValues& x, const std::vector<int>& rows, DType t) {
  double sum = x[static_cast<size_t>(rows[0])];
  for (size_t i = 1; i < rows.size(); ++i) sum = Rounded(sum + x[static_cast<size_t>(rows[i])], t);
  return sum;
}

Recorded Addends(Dice& dice, std::initializer_list<int> ranks, std::initializer_list<DType> types) {
  Recorded call;
  call.ranks = dice.One(ranks);
  call.input = dice.One(types);
  call.samples = dice.One({128, 256, 512});
  call.kind = dice.Below(2);
  call.average = dice.Below(2) == 1;
  const Sum zero = [](const SumValues&, const Recorded&, Dice&) { return 0.0; };
  return Filled(call, zero, dice);
}

double Stored(double sum, const Recorded& call) {
  return Rounded(call.average ? sum / call.ranks : sum, call.input);
}

void FillOutputs(Recorded& call, const EachRank& result) {
  call.outputs.assign(static_cast<size_t>(call.ranks), {});
  for (int r = 0; r < call.ranks; ++r) {
    for (int i = 0; i < call.samples; ++i)
      call.outputs[static_cast<size_t>(r)].push_back(
          Rounded(result(call.columns[static_cast<size_t>(i)], call, r, i), call.input));
  }
  call.output = call.outputs[0];
}

namespace {

using Reducing = std::function<void(Recorded&, Dice&)>;
using OneSum = std::function<double(const SumValues& x, const Recorded& call, Dice& dice)>;

DType NarrowOf(const Recorded& call, Dice& dice) {
  return call.input == DType::kF32 ? dice.One({DType::kBF16, DType::kF16}) : call.input;
}

Reducing Every(OneSum sum) {
  return [sum = std::move(sum)](Recorded& call, Dice& dice) {
    for (size_t i = 0; i < call.columns.size(); ++i)
      call.output[i] = Rounded(sum(call.columns[i], call, dice), call.input);
  };
}

// Sums of nodes of `size` ranks, each rounded, then over the nodes; averages in both stages.
double InStages(const SumValues& x, const Recorded& call, size_t size) {
  SumValues nodes;
  for (size_t i = 0; i < x.size(); i += size) {
    const size_t n = std::min(size, x.size() - i);
    const auto first = x.begin() + static_cast<std::ptrdiff_t>(i);
    const double sum = Total(SumValues(first, first + static_cast<std::ptrdiff_t>(n)));
    nodes.push_back(Rounded(call.average ? sum / static_cast<double>(size) : sum, call.input));
  }
  const double all = Total(nodes);
  return call.average ? all * static_cast<double>(size) / static_cast<double>(x.size()) : all;
}

// What the last step left out is sent now: the recorded values are those before the correction.
void WithErrorFeedback(Recorded& call, Dice& dice) {
  const DType wire = call.input == DType::kF32 ? DType::kBF16 : DType::kE4M3;
  for (size_t i = 0; i < call.columns.size(); ++i) {
    double sum = 0;
    for (const double x : call.columns[i]) {
      const double kept = (dice.Uniform() - 0.5) * UlpOf(x, wire);
      sum += Rounded(x + kept, wire);
    }
    call.output[i] = Stored(sum, call);
  }
  call.algorithm = "fp8-scaled";
}

// The hook casts the buffer to 16 bits, reduces and casts it back, in place.
void CastInPlace(Recorded& call, Dice& dice) {
  const DType wire = NarrowOf(call, dice);
  call.wire_stated = call.input != DType::kF32;
  const std::vector<int> rows = AnyOrder(call.ranks, dice);
  for (size_t i = 0; i < call.columns.size(); ++i) {
    SumValues x;
    for (const double v : call.columns[i]) x.push_back(Rounded(v, wire));
    call.output[i] = Stored(ChainOf(x, rows, wire), call);
  }
}

void Padded(Recorded& call, Dice& dice) {
  const size_t full = call.columns.size() / 2 + static_cast<size_t>(dice.Below(16));
  const auto empty = static_cast<size_t>(dice.Below(call.ranks));  // a rank without this parameter
  for (size_t i = 0; i < call.columns.size(); ++i) {
    if (i >= full) call.columns[i].assign(call.columns[i].size(), 0);
    call.columns[i][empty] = 0;
    call.output[i] = Stored(Rounded(Total(call.columns[i]), DType::kF32), call);
  }
}

// A reduce-scatter in segments, each with its own start, then an all-gather.
void Scattered(Recorded& call, Dice& /*dice*/) {
  for (int i = 0; i < call.samples; ++i) {
    const int segment = i * call.ranks / call.samples;
    const SumValues& x = call.columns[static_cast<size_t>(i)];
    call.output[static_cast<size_t>(i)] =
        Stored(ChainOf(x, OrderFrom(call.ranks, segment), call.input), call);
  }
  const SumValues same = call.output;
  FillOutputs(call, [&](const SumValues&, const Recorded&, int, int i) {
    return same[static_cast<size_t>(i)];
  });
}

void LargestOnly(Recorded& call, Dice& /*dice*/) {
  call.algorithm = "top-k";
  SumValues sizes;
  for (size_t i = 0; i < call.columns.size(); ++i) {
    call.output[i] = Stored(Total(call.columns[i]), call);
    sizes.push_back(std::fabs(call.output[i]));
  }
  std::sort(sizes.begin(), sizes.end());
  for (double& y : call.output) y = std::fabs(y) < sizes[sizes.size() * 9 / 10] ? 0 : y;
}

double Halved(const SumValues& x, size_t first, size_t n, DType t) {
  if (n == 1) return x[first];
  const size_t half = n / 2;
  return Rounded(Halved(x, first, half, t) + Halved(x, first + half, n - half, t), t);
}

std::vector<std::pair<std::string, Reducing>> Ordinary() {
  const auto times = [](double factor) {
    return Every([factor](const SumValues& x, const Recorded& c, Dice&) {
      return Stored(Total(x), c) * factor;
    });
  };
  return {
      {"ring",
       [](Recorded& c, Dice& d) {
         const std::vector<int> rows = OrderFrom(c.ranks, d.Below(c.ranks));
         Every([&](const SumValues& x, const Recorded& call, Dice&) {
           return Stored(ChainOf(x, rows, call.input), call);
         })(c, d);
       }},
      {"order-unknown",
       [](Recorded& c, Dice& d) {
         const std::vector<int> rows = AnyOrder(c.ranks, d);
         Every([&](const SumValues& x, const Recorded& call, Dice&) {
           return Stored(ChainOf(x, rows, call.input), call);
         })(c, d);
       }},
      {"tree", Every([](const SumValues& x, const Recorded& c, Dice&) {
         return Stored(Halved(x, 0, x.size(), c.input), c);
       })},
      {"master-sums-cast-down", Every([](const SumValues& x, const Recorded& c, Dice&) {
         return Stored(Rounded(Total(x), DType::kF32), c);
       })},
      {"reduce-scatter-all-gather", Scattered},
      {"two-stages",
       Every([](const SumValues& x, const Recorded& c, Dice&) { return InStages(x, c, 8); })},
      {"scaled-before", Every([](const SumValues& x, const Recorded& c, Dice&) {
         double sum = 0;
         for (const double v : x) sum += Rounded(v / c.ranks, c.input);
         return sum;
       })},
      {"scaled-by-reciprocal", Every([](const SumValues& x, const Recorded& c, Dice&) {
         double sum = 0;
         for (const double v : x) sum += Rounded(v * Rounded(1.0 / c.ranks, DType::kF32), c.input);
         return sum;
       })},
      {"loss-scale-undone", times(1.0 / 1024)},
      {"stochastic-store", Every([](const SumValues& x, const Recorded& c, Dice& d) {
         return StochasticRound(Total(x) / (c.average ? c.ranks : 1), c.input, d);
       })},
      {"stochastic-hops", Every([](const SumValues& x, const Recorded& c, Dice& d) {
         double sum = 0;
         for (const double v : x) sum = StochasticRound(sum + v, c.input, d);
         return Stored(sum, c);
       })},
      {"error-feedback", WithErrorFeedback},
      {"top-k", LargestOnly},
      {"zero-padded", Padded},
      {"cast-in-place", CastInPlace},
  };
}

}  // namespace

std::vector<ArithmeticFamily> OrdinaryReductions(const Drawing& draw) {
  std::vector<ArithmeticFamily> all;
  for (const auto& [name, reduce] : Ordinary()) {
    all.push_back({name,
                   [draw, reduce = reduce](Dice& dice) -> Attempt {
                     Recorded call = draw(dice);
                     reduce(call, dice);
                     return BatchOf(call);
                   },
                   ""});
  }
  return all;
}

}  // namespace plumbline::rules::testing
