// Structured probes of a sum whose order is known: precision, rounding, and which bits are cut.
//
// Each probe measures one node v of the tree from outside. A leaf under one child of v is 2^k, and
// a leaf under another child is a small d. A leaf that v's parent adds next is -2^k, so that
// exactly the part of d that v kept is left. All other addends are zero.
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

// T0. Whether two calls with the same addends gave different results.
struct Determinism {
  int repeats = 0;
  bool holds = true;
  double first = 0;  // two different results of one input
  double second = 0;
  int call = 0;  // the repeat that differed
};
absl::StatusOr<Determinism> TestDeterminism(Prober* prober, uint64_t seed, int repeats);

// T1. Returns the significand bits that each inner node keeps, in the order of the tree's nodes.
// The root has no parent, so it gets the widest precision of its children. If its children are all
// leaves, it gets the precision that the output can show. If a node showed no valid precision, its
// entry is 0.
absl::StatusOr<std::vector<int>> NodePrecisions(Prober* prober, const SummationTree& tree);

// T2. The result of 2^p + d, less 2^p, for d = .5 1 1.5 3 -.5 -1.5, and the same at -2^p with -d.
struct RoundingTable {
  std::array<double, 6> above{};
  std::array<double, 6> below{};
  bool operator==(const RoundingTable&) const = default;
};
inline constexpr std::array<double, 6> kRoundingSteps = {.5, 1, 1.5, 3, -.5, -1.5};
// Returns the table of an adder of this precision.
RoundingTable TableOf(int precision, RoundingMode mode, const std::optional<Alignment>& aligned);
// Measures one node of two children. The root can be measured only if the output is as wide.
absl::StatusOr<RoundingTable> RoundingAt(Prober* prober, const SummationTree& tree, int node,
                                         int precision);
std::string TableText(const RoundingTable& table);

// T4. Returns how far below the last bit of the larger addend a bit of the smaller one still
// decides a rounding: the number of guard bits. If all tested bits decide (a sticky bit), returns
// -1. `nearest` is true if the adder rounds to nearest (tested above a tie), false if it is
// directed (tested below the value).
absl::StatusOr<int> GuardBits(Prober* prober, const SummationTree& tree, int node, int precision,
                              bool nearest);
// The fraction bits of a node of three or more children. -1 means every bit that was tested.
struct BlockBits {
  int fraction_bits = -1;
  bool floor = false;
};
absl::StatusOr<BlockBits> BlockAlignment(Prober* prober, const SummationTree& tree, int node);

// Returns which products enter their node unrounded: [n] of 0 and 1. If a product of the input
// format always fits (no visible difference), or if there are no products, returns an empty vector.
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

// T7. Whether the observed result changes with the number of rows.
struct BatchInvariance {
  bool tried = false;
  bool holds = true;
  int batch = 0;  // batch size that changed it
  double alone = 0;
  double batched = 0;
};
absl::StatusOr<BatchInvariance> TestBatches(const Target& target, uint64_t seed);

}  // namespace plumbline::sums
