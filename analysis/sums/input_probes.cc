// T5: finds which bits of the inputs are read, and how subnormal numbers are treated.
#include <algorithm>
#include <cmath>

#include "analysis/sums/node_view.h"
#include "analysis/sums/probes.h"
#include "base/half.h"

namespace plumbline::sums {
namespace {

// The operand that carries the tested value.
enum class Operand { kA, kB };

class InputProbe {
 public:
  InputProbe(Prober* prober, int leaf, int other) : prober_(*prober), leaf_(leaf), other_(other) {
    prober_.Fill(0);
  }

  // Returns value - 1, as the sum computes it.
  absl::StatusOr<double> Rest(Operand operand, double value) {
    prober_.SetFactors(leaf_, operand == Operand::kA ? value : 1,
                       operand == Operand::kA ? 1 : value);
    prober_.SetFactors(other_, -1, 1);
    return prober_.Call();
  }

  // Finds how many bits are read: 1 + 2^-k is still seen at k = bits - 1.
  absl::StatusOr<InputCut> CutOf(Operand operand, int precision) {
    int bits = 1;
    for (int k = 1; k < precision; ++k) {
      const auto y = Rest(operand, 1 + std::ldexp(1.0, -k));
      if (!y.ok()) return y.status();
      if (*y == std::ldexp(1.0, -k)) bits = k + 1;
    }
    if (bits >= precision) return InputCut{};
    // In units of the last bit that is read: a tie above an even value, a tie above an odd one, and
    // 3/4.
    const double unit = std::ldexp(1.0, 1 - bits);
    const auto tie = Rest(operand, 1 + .5 * unit);
    if (!tie.ok()) return tie.status();
    const auto odd = Rest(operand, 1 + 1.5 * unit);
    if (!odd.ok()) return odd.status();
    RoundingMode mode = RoundingMode::kTowardZero;
    if (*odd == 2 * unit) {
      mode = *tie == unit ? RoundingMode::kNearestAway : RoundingMode::kNearestEven;
    }
    return InputCut{bits, mode};
  }

 private:
  Prober& prober_;
  int leaf_;
  int other_;
};

// Returns true if a sum of one addend (or two) is zero although its value is not.
absl::StatusOr<bool> Vanishes(Prober* prober, int leaf, double a, double b, int other, double c) {
  prober->Fill(0);
  prober->SetFactors(leaf, a, b);
  prober->SetFactors(other, c, 1);
  const auto y = prober->Call();
  if (!y.ok()) return y.status();
  return *y == 0;
}

}  // namespace

absl::StatusOr<InputBits> TestInputs(Prober* prober, const SummationTree& tree) {
  const Target& target = prober->target();
  const FloatFormat in = FormatOf(target.input);
  const FloatFormat out = FormatOf(target.output);
  // The two addends that meet first.
  const int leaf = tree.FirstOf(tree.node(tree.leaves()).children[0]);
  const int other = tree.FirstOf(tree.node(tree.leaves()).children[1]);
  InputProbe probe(prober, leaf, other);
  InputBits result;
  const auto a = probe.CutOf(Operand::kA, in.precision);
  if (!a.ok()) return a.status();
  result.a = *a;
  const double subnormal = std::ldexp(1.0, in.min_exponent - 1);
  const double lift = HasProducts(target.kind) ? std::ldexp(1.0, std::min(8, in.max_exponent)) : 1;
  auto gone = Vanishes(prober, leaf, subnormal, lift, other, 0);
  if (!gone.ok()) return gone.status();
  result.flush_inputs = *gone && std::ldexp(lift, in.min_exponent - 1) >=
                                     std::ldexp(1.0, out.min_exponent - out.precision + 1);
  // 1.5 m - m = m / 2, a subnormal result of normal numbers, where m is the smallest normal number
  // of the output. Only a format of the input's range can show it.
  if (in.min_exponent <= out.min_exponent) {
    const double least = std::ldexp(1.0, std::max(in.min_exponent, out.min_exponent));
    gone = Vanishes(prober, leaf, 1.5 * least, 1, other, -least);
    if (!gone.ok()) return gone.status();
    result.flush_results = *gone;
  }
  if (HasProducts(target.kind)) {
    InputProbe again(prober, leaf, other);
    const auto b = again.CutOf(Operand::kB, in.precision);
    if (!b.ok()) return b.status();
    result.b = *b;
  }
  return result;
}

}  // namespace plumbline::sums
