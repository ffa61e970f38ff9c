// Structured probes of a sum whose order is known: how wide, how rounded, what is cut.
//
// Each looks at one node of the tree from outside: v gets 2^k from a leaf of one child and a small
// d from a leaf of another; a leaf that v's parent adds next brings -2^k, which leaves exactly what
// v kept of d. All other addends are zero.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "analysis/sums/arithmetic.h"
#include "analysis/sums/prober.h"
#include "analysis/sums/summation_tree.h"

namespace plumbline::sums {

// T0. Two calls with the same addends gave different results.
struct Determinism {
  int repeats = 0;
  bool holds = true;
  double first = 0;  // two results of one input that differ
  double second = 0;
  int call = 0;  // the repeat that differed
};
absl::StatusOr<Determinism> TestDeterminism(Prober* prober, uint64_t seed, int repeats);

// T1. Significand bits that each inner node keeps, in the order of the tree's nodes. The root has
// no parent: it gets its children's widest, or where they are all leaves what the output can show.
// 0: the node showed no precision that is one.
absl::StatusOr<std::vector<int>> NodePrecisions(Prober* prober, const SummationTree& tree);

// T2. What 2^p + d becomes, less 2^p, for d = .5 1 1.5 3 -.5 -1.5, and the same at -2^p with -d.
struct RoundingTable {
  std::array<double, 6> above{};
  std::array<double, 6> below{};
  bool operator==(const RoundingTable&) const = default;
};
inline constexpr std::array<double, 6> kRoundingSteps = {.5, 1, 1.5, 3, -.5, -1.5};
// What an adder of this precision gives.
RoundingTable TableOf(int precision, RoundingMode mode, const std::optional<Alignment>& aligned);
// At one node of two children; the root only where the output is as wide as it.
absl::StatusOr<RoundingTable> RoundingAt(Prober* prober, const SummationTree& tree, int node,
                                         int precision);
std::string TableText(const RoundingTable& table);

// T4. How far below the last bit of the larger addend a bit of the smaller one still decides a
// rounding: -1 all that was tried (a sticky bit), else so many guard bits. `away` true where the
// adder rounds to nearest (tried above a tie), false where it is directed (tried below the value).
absl::StatusOr<int> GuardBits(Prober* prober, const SummationTree& tree, int node, int precision,
                              bool nearest);
// The fraction bits of a node of three or more children; -1: every bit that was tried.
struct BlockBits {
  int fraction_bits = -1;
  bool floor = false;
};
absl::StatusOr<BlockBits> BlockAlignment(Prober* prober, const SummationTree& tree, int node);

// Which products enter their node unrounded: [n] of 0 and 1; empty where a product of the input
// format always fits (no difference to see) or nothing is multiplied.
absl::StatusOr<std::vector<uint8_t>> FusedProducts(Prober* prober, const SummationTree& tree,
                                                   const std::vector<int>& precisions);

// T5.
struct InputBits {
  InputCut a;
  InputCut b;
  bool flush_inputs = false;
  bool flush_results = false;
};
absl::StatusOr<InputBits> TestInputs(Prober* prober, const SummationTree& tree);

// T7. Does the watched result change with the number of rows?
struct BatchInvariance {
  bool tried = false;
  bool holds = true;
  int batch = 0;  // that changed it
  double alone = 0;
  double batched = 0;
};
absl::StatusOr<BatchInvariance> TestBatches(const Target& target, uint64_t seed);

}  // namespace plumbline::sums
