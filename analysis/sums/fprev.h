// The order of a sum from its outputs alone.
//
// All addends are one unit, but for +M at i and -M at j. Units that meet M before it cancels are
// lost, so n minus the output is the number of leaves under the lowest common ancestor of i and j
// (Xie et al., "FPRev: Revealing the Order of Floating-Point Summation", 2024). One pivot's counts
// with all others split the rest into the subtrees that it meets one after the other; each is then
// taken apart in the same way. Pivots are drawn at random: with a fixed first one a fold in the
// other direction costs n^2 / 2 probes. A group whose pivot sees only the size that the group's
// parent has joins that parent at once with others: a node of many children.
#pragma once

#include "analysis/sums/prober.h"
#include "analysis/sums/summation_tree.h"

namespace plumbline::sums {

struct RevealOptions {
  uint64_t seed = 1;
  // Pivots of one group that saw nothing but the parent's size, after which the rest of the group
  // counts as single addends of the parent. 0: every one is asked, m^2 / 2 probes for m of them.
  int trusted_pivots = 3;
  int64_t most_calls = 20'000'000;
};

struct Revealed {
  SummationTree tree;
  int64_t calls = 0;
  int trusted = 0;  // addends that were taken for single ones without being asked
};

// FailedPrecondition: counts that are not whole, or that fit no tree: the message has the two
// addends and the counts. ResourceExhausted: most_calls. n >= 2, scale.masks.
// When more than the scale's capacity of units would have to be counted, ones stand in turn on
// parts of the group under question, zeros elsewhere, and the counts are added.
absl::StatusOr<Revealed> RevealTree(Prober* prober, const ProbeScale& scale,
                                    const RevealOptions& options);

}  // namespace plumbline::sums
