// Finds the order of a sum from its outputs alone.
//
// All addends are one unit, except +M at i and -M at j. Units that meet M before it cancels are
// lost. So n minus the output is the number of leaves under the lowest common ancestor of i and j
// (Xie et al., "FPRev: Revealing the Order of Floating-Point Summation", 2024). The counts of one
// pivot with all other leaves split these into the subtrees that are added to the pivot's one after
// the other. Each subtree is then split in the same way. Pivots are drawn at random: with a fixed
// first one, a fold in the other direction costs n^2 / 2 probes. If a group's pivot sees only the
// size of the group's parent, the group joins that parent at once with others: a node of many
// children.
#pragma once

#include "analysis/sums/prober.h"
#include "analysis/sums/summation_tree.h"

namespace plumbline::sums {

struct RevealOptions {
  uint64_t seed = 1;
  // Number of pivots of one group whose counts may all be the parent's size. After these, the
  // remaining leaves of the group count as single addends of the parent. If it is 0, every addend
  // is probed: m^2 / 2 probes for m of them.
  int trusted_pivots = 3;
  int64_t most_calls = 20'000'000;
};

struct Revealed {
  SummationTree tree;
  int64_t calls = 0;
  int trusted = 0;  // addends that were taken for single ones without a probe
};

// Returns FailedPrecondition if counts are not integers or fit no tree; the message has the two
// addends and the counts. Returns ResourceExhausted after most_calls. Requires n >= 2 and
// scale.masks. If more units must be counted than the scale's capacity, ones are placed on parts of
// the group in turn, with zeros elsewhere, and the counts are added.
absl::StatusOr<Revealed> RevealTree(Prober* prober, const ProbeScale& scale,
                                    const RevealOptions& options);

}  // namespace plumbline::sums
