#include "analysis/sums/probes.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "analysis/sums/node_view.h"
#include "analysis/sums/replay_data.h"
#include "base/half.h"

namespace plumbline::sums {
namespace {

bool SameResult(double x, double y) { return x == y || (std::isnan(x) && std::isnan(y)); }

// Tests whether the node keeps one unit next to 2^k of them.
absl::StatusOr<bool> Keeps(Prober* prober, const NodeView& view, const ProbeUnit& scale, int k) {
  const auto y = view.Kept(prober, std::ldexp(scale.unit, k), scale.unit);
  if (!y.ok()) return y.status();
  return *y == scale.unit;
}

// Returns the smallest k at which the unit is lost: the precision in every rounding mode.
absl::StatusOr<int> PrecisionAt(Prober* prober, const NodeView& view, const ProbeUnit& scale,
                                int guess) {
  const auto boundary = [&](int p) -> absl::StatusOr<bool> {
    auto inside = Keeps(prober, view, scale, p - 1);
    if (!inside.ok() || !*inside || p > scale.room) return inside;
    const auto outside = Keeps(prober, view, scale, p);
    if (!outside.ok()) return outside.status();
    return !*outside;
  };
  if (guess > 0) {
    const auto same = boundary(std::min(guess, scale.room + 1));
    if (!same.ok()) return same.status();
    if (*same) return guess;
  }
  for (int k = 1; k <= std::min(scale.room, 53); ++k) {
    const auto kept = Keeps(prober, view, scale, k);
    if (!kept.ok()) return kept.status();
    if (!*kept) return k;
  }
  return 53;  // as wide as can be measured
}

}  // namespace

ProbeUnit UnitOf(const Target& target) {
  const FloatFormat in = FormatOf(target.input);
  const FloatFormat out = FormatOf(target.output);
  const bool products = HasProducts(target.kind);
  const int least = std::max(products ? 2 * in.min_exponent : in.min_exponent, out.min_exponent);
  const int most = products ? 2 * std::ilogb(in.max_finite) : std::ilogb(in.max_finite);
  // The sum reaches 2^k in formats of at least the output's range.
  const int top = std::min(most, std::max(out.max_exponent, 15));
  const int unit = std::max(least + 2, std::min(0, top - 30));
  return {std::ldexp(1.0, unit), top - unit};
}

absl::StatusOr<Determinism> TestDeterminism(Prober* prober, uint64_t seed, int repeats) {
  Random random(seed);
  Determinism result{.repeats = repeats};
  for (int distribution : {0, 2}) {  // ordinary data, and data whose order matters most
    const Addends addends = DrawAddends(prober->target(), distribution, &random);
    for (int call = 0; call < repeats / 2; ++call) {
      const auto y = prober->Call(addends.a, addends.b);
      if (!y.ok()) return y.status();
      if (call == 0) result.first = *y;
      if (SameResult(*y, result.first)) continue;
      result.holds = false;
      result.second = *y;
      result.call = call + 1;
      return result;
    }
  }
  return result;
}

absl::StatusOr<std::vector<int>> NodePrecisions(Prober* prober, const SummationTree& tree) {
  const ProbeUnit scale = UnitOf(prober->target());
  const std::vector<int> parents = tree.Parents();
  std::vector<int> precisions(static_cast<size_t>(tree.nodes()), 0);
  prober->Fill(0);
  int guess = 0;
  for (int i = tree.leaves(); i < tree.root(); ++i) {
    const auto p = PrecisionAt(prober, NodeView(tree, parents, i), scale, guess);
    if (!p.ok()) return p.status();
    guess = precisions[static_cast<size_t>(i - tree.leaves())] = *p;
  }
  int widest = 0;
  for (const int child : tree.node(tree.root()).children) {
    if (!tree.IsLeaf(child)) {
      widest = std::max(widest, precisions[static_cast<size_t>(child - tree.leaves())]);
    }
  }
  if (widest == 0) widest = FormatOf(prober->target().output).precision;
  precisions.back() = widest;
  return precisions;
}

RoundingTable TableOf(int precision, RoundingMode mode, const std::optional<Alignment>& aligned) {
  SumFormat format = SumFormatOf(DType::kF64);
  format.precision = std::min(precision, 40);
  const double big = std::ldexp(1.0, format.precision);
  const auto add = [&](double x, double y) {
    if (!aligned) return RoundBits(x + y, format, mode);
    const double unit = std::ldexp(1.0, format.precision - aligned->fraction_bits);
    return RoundBits(CutTo(x, unit, aligned->floor) + CutTo(y, unit, aligned->floor), format, mode);
  };
  RoundingTable table;
  for (size_t i = 0; i < kRoundingSteps.size(); ++i) {
    table.above[i] = add(big, kRoundingSteps[i]) - big;
    table.below[i] = add(-big, -kRoundingSteps[i]) + big;
  }
  return table;
}

absl::StatusOr<RoundingTable> RoundingAt(Prober* prober, const SummationTree& tree, int node,
                                         int precision) {
  const ProbeUnit scale = UnitOf(prober->target());
  const NodeView view(tree, tree.Parents(), node);
  prober->Fill(0);
  RoundingTable table;
  for (const bool mirrored : {false, true}) {
    for (size_t i = 0; i < kRoundingSteps.size(); ++i) {
      const double sign = mirrored ? -1 : 1;
      const auto y = view.Kept(prober, sign * std::ldexp(scale.unit, precision),
                               sign * kRoundingSteps[i] * scale.unit);
      if (!y.ok()) return y.status();
      (mirrored ? table.below : table.above)[i] = *y / scale.unit;
    }
  }
  return table;
}

std::string TableText(const RoundingTable& table) {
  std::string text;
  for (const double x : table.above) absl::StrAppend(&text, text.empty() ? "" : " ", x);
  absl::StrAppend(&text, ", mirror");
  for (const double x : table.below) absl::StrAppend(&text, " ", x);
  return text;
}

absl::StatusOr<int> GuardBits(Prober* prober, const SummationTree& tree, int node, int precision,
                              bool nearest) {
  const ProbeUnit scale = UnitOf(prober->target());
  const NodeView view(tree, tree.Parents(), node);
  prober->Fill(0);
  const int in = FormatOf(prober->target().input).precision;
  // In units, the last bit of 2^p is 2. A tie is 1, and 1 + 2^-g breaks it. If the mode is
  // directed, -2^-g moves 2^p down.
  const int most = std::min({12, in - 1, precision});
  for (int g = 1; g <= most; ++g) {
    const double small = std::ldexp(1.0, -g);
    for (const double sign :
         {1.0, -1.0}) {  // if the cut is downwards, one of the two signs always shows
      const auto y = view.Kept(prober, sign * std::ldexp(scale.unit, precision),
                               sign * scale.unit * (nearest ? 1 + small : -small));
      if (!y.ok()) return y.status();
      const bool seen = nearest ? *y == sign * 2 * scale.unit : *y != 0;
      if (!seen) return g - 1;
    }
  }
  return -1;
}

absl::StatusOr<BlockBits> BlockAlignment(Prober* prober, const SummationTree& tree, int node) {
  const ProbeUnit scale = UnitOf(prober->target());
  const NodeView view(tree, tree.Parents(), node);
  prober->Fill(0);
  const auto kept = [&](int k, double small) -> absl::StatusOr<double> {
    const double big = std::ldexp(scale.unit, k);
    prober->Set(view.leaf(0), big);
    prober->Set(view.leaf(1), small * scale.unit);
    prober->Set(view.leaf(2), -big);
    return prober->Call();
  };
  BlockBits bits;
  for (int k = 1; k <= std::min(scale.room, 60); ++k) {
    const auto y = kept(k, 1);
    if (!y.ok()) return y.status();
    if (*y == scale.unit) continue;
    bits.fraction_bits = k - 1;
    const auto negative = kept(k, -1);
    if (!negative.ok()) return negative.status();
    bits.floor = *negative < 0;
    return bits;
  }
  return bits;
}

absl::StatusOr<std::vector<uint8_t>> FusedProducts(Prober* prober, const SummationTree& tree,
                                                   const std::vector<int>& precisions) {
  const Target& target = prober->target();
  const int in = FormatOf(target.input).precision;
  const int narrowest = *std::min_element(precisions.begin(), precisions.end());
  std::vector<uint8_t> fused;
  // A product has at most 2 * in bits. If all nodes hold that many, rounding makes no difference.
  if (!HasProducts(target.kind) || (2 * in <= narrowest && in < 24)) return fused;
  const int h = in / 2 + (in < 24 ? 2 : 1);
  const double factor = 1 + std::ldexp(1.0, -h);
  const double rest = std::ldexp(1.0, -2 * h);
  const std::vector<int> parents = tree.Parents();
  prober->Fill(0);
  for (int i = 0; i < tree.leaves(); ++i) {
    int other = -1;
    for (const int child : tree.node(parents[static_cast<size_t>(i)]).children) {
      if (child != i) other = tree.FirstOf(child);
    }
    prober->SetFactors(i, factor, factor);
    prober->SetFactors(other, -(1 + std::ldexp(1.0, 1 - h)), 1);
    const auto y = prober->Call();
    if (!y.ok()) return y.status();
    fused.push_back(*y == rest ? 1 : 0);
    prober->Set(i, 0);
    prober->Set(other, 0);
  }
  return fused;
}

absl::StatusOr<BatchInvariance> TestBatches(const Target& target, uint64_t seed) {
  BatchInvariance result;
  if (!target.batched) return result;
  result.tried = true;
  Random random(seed);
  constexpr int kInputs = 12;  // few sums differ in one input
  for (int k = 0; k < kInputs; ++k) {
    const Addends addends = DrawAddends(target, k % 4, &random);
    bool first = true;
    for (const int batch : {1, 2, 3, 4, 8, 16, 17, 64, 128}) {
      double y = 0;
      if (absl::Status s = target.batched(batch, addends.a, addends.b, &y); !s.ok()) return s;
      if (first) result.alone = y;
      first = false;
      if (SameResult(y, result.alone)) continue;
      result.holds = false;
      result.batch = batch;
      result.batched = y;
      return result;
    }
  }
  return result;
}

}  // namespace plumbline::sums
