// Attack on the results of reductions in precision/replica-divergence: results that ranks keep
// apart by design from inputs that are nearly equal, and one all-reduce whose results were damaged.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/rules/attack/sums_lab.h"

namespace plumbline::rules::testing {
namespace {

constexpr auto kAnyDType = {DType::kF32, DType::kBF16, DType::kF16};
constexpr auto kAnyWorld = {2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64};
constexpr auto kGroupedWorlds = {4, 6, 8, 12, 16, 24, 32, 48, 64};

double LogUniform(Dice& dice, double low, double high) {
  return low * std::pow(high / low, dice.Uniform());
}

double Nearest(double x, DType t) { return std::isfinite(Rounded(x, t)) ? Rounded(x, t) : 0; }

// How ranks are grouped: `of[r]` is the group of rank r.
std::vector<int> Groups(int ranks, bool strided, Dice& dice) {
  const int size = 2 + dice.Below(ranks / 2 - 1), count = (ranks + size - 1) / size;
  std::vector<int> of;
  for (int r = 0; r < ranks; ++r) of.push_back(strided ? r % count : r / size);
  return of;
}

// What ranks keep apart.
struct Apart {
  bool grouped = false;  // groups reduce among themselves
  bool own = false;      // each rank adds a part of its own afterwards
  double shared = 1;     // share of elements with nearly equal inputs; others differ by group
};

// Values of all ranks: nearly equal, except in elements that belong to the group (the shards of
// tensors that are logged under one name).
void DrawAlike(Recorded& call, const Apart& apart, const std::vector<int>& of, Dice& dice) {
  const double spread = LogUniform(dice, 1e-7, 1e-2);
  for (SumValues& x : call.columns) {
    const double size = call.kind == 0 ? 1 : std::exp(dice.Normal());
    const double common = size * (call.kind == 0 ? dice.Normal() : 1);
    const bool shared = dice.Uniform() < apart.shared;
    SumValues of_group;
    for (int g = 0; g <= *std::max_element(of.begin(), of.end()); ++g)
      of_group.push_back(shared ? common : size * dice.Normal());
    for (size_t r = 0; r < x.size(); ++r)
      x[r] =
          Nearest(of_group[static_cast<size_t>(of[r])] * (1 + spread * dice.Normal()), call.input);
  }
}

Attempt KeptApart(Dice& dice, const Apart& apart) {
  Recorded call = apart.grouped ? Addends(dice, kGroupedWorlds, kAnyDType)
                                : Addends(dice, kAnyWorld, kAnyDType);
  call.wire_stated = dice.Below(2) == 0;
  std::vector<int> of(static_cast<size_t>(call.ranks), 0);
  if (apart.grouped) of = Groups(call.ranks, dice.Below(2) == 0, dice);
  DrawAlike(call, apart, of, dice);
  const double scale = apart.own ? LogUniform(dice, 1e-7, 1) : 0;
  const int kind = dice.Below(3);  // of the own part: its own input, a tensor alike, noise
  const bool chained = dice.Below(2) == 0;
  FillOutputs(call, [&](const SumValues& x, const Recorded& c, int r, int) {
    SumValues mine;
    for (size_t i = 0; i < x.size(); ++i) {
      if (of[i] == of[static_cast<size_t>(r)]) mine.push_back(x[i]);
    }
    const auto n = static_cast<int>(mine.size());
    double y =
        chained ? ChainOf(mine, OrderFrom(n, 0), c.input) : Rounded(Total(mine), DType::kF32);
    if (c.average) y = Rounded(y / n, c.input);
    const double size = kind == 0   ? x[static_cast<size_t>(r)]
                        : kind == 1 ? y * dice.Normal()
                                    : (c.average ? 1 : n) * dice.Normal();
    return Nearest(y + scale * size, c.input);
  });
  return BatchOf(call);
}

std::vector<ArithmeticFamily> ResultsKeptApart() {
  const auto family = [](const char* name, const Apart& apart) {
    return ArithmeticFamily{name, [=](Dice& d) { return KeptApart(d, apart); }, ""};
  };
  return {family("groups", {.grouped = true}), family("own-part", {.own = true}),
          family("groups-own-part", {.grouped = true, .own = true}),
          family("shards-alike-in-most", {.grouped = true, .shared = 0.98}),
          family("shards-alike-in-part", {.grouped = true, .shared = 0.75})};
}

// ---- one all-reduce ----

using Damage = std::function<void(Recorded& call, size_t rank, Dice& dice)>;

// Flips a bit of the significand, of the exponent (its lowest three) or the sign.
double WithFlippedBit(double x, DType t, Dice& dice) {
  const int bits = FormatOf(t).precision - 1, bit = dice.Below(bits + 4);
  if (bit == bits + 3) return -x;
  if (bit >= bits) return x * std::exp2((dice.Below(2) == 0 ? -1 : 1) << (bit - bits));
  const double unit = UlpOf(x, t);
  return std::copysign(
      static_cast<double>(static_cast<int64_t>(std::fabs(x) / unit) ^ (int64_t{1} << bit)) * unit,
      x);
}

void FlipBits(Recorded& call, size_t rank, Dice& dice) {
  const int n = dice.One({1, 2, 4, 8});
  for (int k = 0; k < n; ++k) {
    double& y = call.outputs[rank][static_cast<size_t>(dice.Below(call.samples))];
    y = WithFlippedBit(y, call.input, dice);
  }
}

// Replaces a run of elements: the rank's own values, zeros, or those of a transfer before it.
void ReplaceRun(Recorded& call, size_t rank, Dice& dice) {
  const int n = std::max(1, call.samples / dice.One({3, 4, 16, 64})), kind = dice.Below(3);
  const int first = dice.Below(call.samples - n);
  for (int k = first; k < first + n; ++k) {
    const auto i = static_cast<size_t>(k);
    double& y = call.outputs[rank][i];
    if (kind == 0) y = call.columns[i][rank];
    if (kind == 1) y = 0;
    if (kind == 2) y = call.output[(i + 77) % call.output.size()];
  }
}

Attempt Damaged(Dice& dice, const Damage& damage) {
  Recorded call = Addends(dice, kAnyWorld, kAnyDType);
  const bool ring = dice.Below(2) == 0;
  SumValues shared;
  for (const SumValues& x : call.columns) {
    const std::vector<int> rows = OrderFrom(call.ranks, 0);
    shared.push_back(
        Stored(ring ? ChainOf(x, rows, call.input) : Rounded(Total(x), DType::kF32), call));
  }
  FillOutputs(call, [&](const SumValues&, const Recorded&, int, int i) {
    return shared[static_cast<size_t>(i)];
  });
  damage(call, static_cast<size_t>(dice.Below(call.ranks)), dice);
  return BatchOf(call);
}

std::vector<ArithmeticFamily> DamagedResults() {
  constexpr char kRule[] = "precision/replica-divergence";
  return {{"bits-flipped", [](Dice& d) { return Damaged(d, FlipBits); }, kRule},
          {"run-replaced", [](Dice& d) { return Damaged(d, ReplaceRun); }, kRule}};
}

// Every rank gathers all values and adds them in an order that begins or ends with its own.
Attempt OwnStarts(Dice& dice, int step) {
  Recorded call = Addends(dice, {8, 9, 12, 16, 24, 32, 48, 64}, kAnyDType);
  FillOutputs(call, [step](const SumValues& x, const Recorded& c, int r, int) {
    std::vector<int> rows;
    for (int i = 0; i < c.ranks; ++i)
      rows.push_back(((r + step * i) % c.ranks + c.ranks) % c.ranks);
    return Stored(ChainOf(x, rows, c.input), c);
  });
  return BatchOf(call);
}

double TreeOf(const SumValues& x, size_t first, size_t n, DType t) {
  if (n == 1) return x[first];
  const size_t half = n / 2;
  return Rounded(TreeOf(x, first, half, t) + TreeOf(x, first + half, n - half, t), t);
}

// Every rank adds all values in a tree, or by nodes, that begins with its own. The orders of two
// ranks differ in more than the order of two addends.
Attempt OwnTrees(Dice& dice, int kind) {
  Recorded call = Addends(dice, {8, 16, 32, 64}, kAnyDType);
  FillOutputs(call, [kind](const SumValues& x, const Recorded& c, int r, int) {
    const auto n = static_cast<size_t>(c.ranks), own = static_cast<size_t>(r);
    SumValues mine;
    for (size_t i = 0; i < n; ++i)
      mine.push_back(kind == 1 ? x[(own / 4 * 4 + i / 4 * 4) % n + (i + own) % 4]
                               : x[(own + i) % n]);
    if (kind == 0) return Stored(TreeOf(mine, 0, n, c.input), c);
    SumValues nodes;
    for (size_t i = 0; i < n; i += 4) {
      const auto first = mine.begin() + static_cast<std::ptrdiff_t>(i);
      nodes.push_back(ChainOf(SumValues(first, first + 4), OrderFrom(4, 0), c.input));
    }
    return Stored(ChainOf(nodes, OrderFrom(static_cast<int>(nodes.size()), 0), c.input), c);
  });
  return BatchOf(call);
}

std::vector<ArithmeticFamily> SummedByRank() {
  constexpr char kRule[] = "precision/replica-divergence";
  return {{"own-tree", [](Dice& d) { return OwnTrees(d, 0); }, kRule},
          {"own-node-first", [](Dice& d) { return OwnTrees(d, 1); }, kRule},
          {"two-levels-from-own", [](Dice& d) { return OwnTrees(d, 2); }, kRule},
          {"own-start", [](Dice& d) { return OwnStarts(d, 1); }, kRule},
          {"own-start-down", [](Dice& d) { return OwnStarts(d, -1); }, kRule}};
}

// The order of a channel's ring or chain: a random permutation, begun at the segment's rank.
double ChannelSum(const SumValues& x, const Recorded& c,
                  const std::vector<std::vector<int>>& orders, int sample) {
  const auto channels = static_cast<int>(orders.size());
  const int channel = sample * channels / c.samples;
  const int segment = sample * channels * c.ranks / c.samples % c.ranks;
  const std::vector<int>& order = orders[static_cast<size_t>(channel)];
  std::vector<int> rows;
  for (int i = 0; i < c.ranks; ++i)
    rows.push_back(order[static_cast<size_t>((segment + i) % c.ranks)]);
  return Stored(ChainOf(x, rows, c.input), c);
}

// Sums over several channels that the recording does not declare. Each channel reduces a contiguous
// part of the buffer by a ring of its own.
Attempt OverChannels(Dice& dice, const Damage& damage) {
  Recorded call = Addends(dice, {4, 8, 16, 32}, kAnyDType);
  std::vector<std::vector<int>> orders(static_cast<size_t>(dice.One({2, 4, 8})));
  for (std::vector<int>& order : orders) {
    for (int r = 0; r < call.ranks; ++r) order.push_back(r);
    for (int r = call.ranks - 1; r > 0; --r)
      std::swap(order[static_cast<size_t>(r)], order[static_cast<size_t>(dice.Below(r + 1))]);
  }
  FillOutputs(call, [&](const SumValues& x, const Recorded& c, int, int i) {
    return ChannelSum(x, c, orders, i);
  });
  if (damage) damage(call, static_cast<size_t>(dice.Below(call.ranks)), dice);
  return BatchOf(call);
}

// Each rank gets a result of its own by design, of the same inputs: its own values, sums over its
// neighbours or over all but one rank, the partial sums that a scatter leaves, other factors.
Attempt OwnResults(Dice& dice, int kind) {
  Recorded call = Addends(dice, {8, 12, 16, 24, 32, 48, 64}, kAnyDType);
  const double spread = LogUniform(dice, 1e-7, 1);
  for (SumValues& x : call.columns) {
    const double mean = Total(x) / call.ranks;
    for (double& v : x) v = Nearest(mean + spread * (v - mean), call.input);
  }
  FillOutputs(call, [kind](const SumValues& x, const Recorded& c, int r, int i) {
    const int segment = i * c.ranks / c.samples;
    const int n = kind == 0   ? 1
                  : kind == 1 ? 3
                  : kind == 2 ? c.ranks - 1
                              : ((r - segment) % c.ranks + c.ranks) % c.ranks + 1;
    double sum = 0;
    for (int k = 0; k < n; ++k)
      sum =
          Rounded(sum + x[static_cast<size_t>(((kind == 3 ? segment : r) + k) % c.ranks)], c.input);
    if (kind == 4) sum = Total(x) * (1 + 0.001 * (r % 7));
    return Nearest(c.average ? sum / (kind < 3 ? n : c.ranks) : sum, c.input);
  });
  return BatchOf(call);
}

std::vector<ArithmeticFamily> ResultsOfEachRank() {
  std::vector<ArithmeticFamily> all;
  const auto names = {"own-values", "neighbours", "all-but-one", "partial", "scaled-by-rank"};
  for (size_t kind = 0; kind < names.size(); ++kind)
    all.push_back({names.begin()[kind],
                   [kind](Dice& d) { return OwnResults(d, static_cast<int>(kind)); }, ""});
  return all;
}

// All ranks record the same results, or one rank does.
std::vector<ArithmeticFamily> SharedResults() {
  return OrdinaryReductions([](Dice& d) { return Addends(d, kAnyWorld, kAnyDType); });
}

TEST(SummedByRank, IsFound) { ExpectFound(SummedByRank(), "summed-by-rank", 1); }
TEST(SummedByRank, OthersAreNot) {
  const std::vector<std::string> rules = {"precision/replica-divergence"};
  ExpectSilentOf(rules, ResultsOfEachRank(), 2);
  ExpectSilentOf(rules, SharedResults(), 1);
}
TEST(Channels, UndeclaredOnesAreNotAccused) {
  ExpectSilentOf({"precision/*"},
                 {{"channels", [](Dice& d) { return OverChannels(d, nullptr); }, ""}}, 4);
}
TEST(Channels, DamagedResultsAreFound) {
  constexpr char kRule[] = "precision/replica-divergence";
  ExpectFound(
      {{"channels-bits-flipped", [](Dice& d) { return OverChannels(d, FlipBits); }, kRule},
       {"channels-run-replaced", [](Dice& d) { return OverChannels(d, ReplaceRun); }, kRule}},
      "reduction-result", 4);
}
TEST(KeptApart, DamagedResultsAreFound) { ExpectFound(DamagedResults(), "reduction-result", 8); }
TEST(KeptApart, IsNoDivergence) { ExpectSilentOf({"precision/*"}, ResultsKeptApart(), 6); }

}  // namespace
}  // namespace plumbline::rules::testing
