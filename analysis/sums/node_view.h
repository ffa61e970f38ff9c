// Finds the leaves by which probes reach one node of a tree.
#pragma once

#include <cmath>
#include <vector>

#include "analysis/sums/prober.h"
#include "analysis/sums/summation_tree.h"

namespace plumbline::sums {

class NodeView {
 public:
  NodeView(const SummationTree& tree, const std::vector<int>& parents, int node) {
    for (const int child : tree.node(node).children) leaves_.push_back(tree.FirstOf(child));
    parent_ = parents[static_cast<size_t>(node)];
    if (parent_ < 0) return;
    for (const int child : tree.node(parent_).children) {
      if (child != node) next_ = tree.FirstOf(child);
    }
  }

  int leaf(size_t child) const { return leaves_[child]; }
  int next() const { return next_; }  // a leaf that the parent adds to this node; -1 at the root

  // Returns the result if `first` and `second` enter by two children and -first is added next. At
  // the root, this function subtracts `first` itself.
  absl::StatusOr<double> Kept(Prober* prober, double first, double second) const {
    prober->Set(leaf(0), first);
    prober->Set(leaf(1), second);
    if (next_ >= 0) prober->Set(next_, -first);
    auto y = prober->Call();
    prober->Set(leaf(0), 0);
    prober->Set(leaf(1), 0);
    if (next_ >= 0) prober->Set(next_, 0);
    if (!y.ok()) return y;
    return next_ >= 0 ? *y : *y - first;
  }

 private:
  std::vector<int> leaves_;
  int parent_ = -1;
  int next_ = -1;
};

// Multiples 2^k of the unit can be probed if k <= room.
struct ProbeUnit {
  double unit = 1;
  int room = 0;
};
// Returns a unit such that half of it, and products of halves, are still normal numbers.
ProbeUnit UnitOf(const Target& target);

}  // namespace plumbline::sums
