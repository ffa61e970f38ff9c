// The order of a sum: which addends meet where.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace plumbline::sums {

// Leaves 0 .. n-1 are the addends. Inner nodes are numbered from n on, children before parents, so
// the last is the root. A node of two children is an addition; of more, one that adds several
// values at once. Copyable; const calls are thread-safe.
class SummationTree {
 public:
  struct Node {
    std::vector<int> children;  // by least leaf
    int size = 0;               // leaves below
    int first = 0;              // least leaf below
  };

  SummationTree() = default;
  explicit SummationTree(int leaves) : leaves_(leaves) {}

  // Children are leaves or nodes made before; sorted here. Returns the node's number.
  int Join(std::vector<int> children);

  int leaves() const { return leaves_; }
  int nodes() const { return static_cast<int>(nodes_.size()); }
  int root() const { return leaves_ + nodes() - 1; }
  bool IsLeaf(int i) const { return i < leaves_; }
  const Node& node(int i) const { return nodes_[static_cast<size_t>(i - leaves_)]; }
  int SizeOf(int i) const { return IsLeaf(i) ? 1 : node(i).size; }
  int FirstOf(int i) const { return IsLeaf(i) ? i : node(i).first; }
  std::vector<int> Parents() const;  // of leaves and nodes; -1 for the root
  int WidestNode() const;            // most children of a node

  // Of the tree's shape and leaves, not of the order in which it was built. 16 hexadecimal digits.
  std::string Hash() const;

 private:
  int leaves_ = 0;
  std::vector<Node> nodes_;
};

// Whole trees, for tests and as models to compare with. n >= 2.
SummationTree LeftFold(int n);
SummationTree Pairwise(int n);  // halves, the first the larger
// n split in `lanes` strided folds (addend i in lane i mod lanes), joined pairwise; lanes <= n.
SummationTree Lanes(int n, int lanes);

// The order in words: "left fold of 4096 terms", "pairwise join of 8 parts (first terms 0, 1, ...),
// each a left fold of 512 terms, stride 8". What has no pattern is cut after some lines.
std::string TreeInWords(const SummationTree& tree);
// Indented, one node a line, at most `lines` lines.
std::string TreeAsOutline(const SummationTree& tree, int lines);

}  // namespace plumbline::sums
