// The order of a sum: which addends are joined at which node.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace plumbline::sums {

// Leaves 0 .. n-1 are the addends. Inner nodes are numbered from n on, children before parents, so
// the last one is the root. A node of two children is an addition. A node of more children adds
// several values at once. Copyable; const calls are thread-safe.
class SummationTree {
 public:
  struct Node {
    std::vector<int> children;  // by smallest leaf
    int size = 0;               // number of leaves below
    int first = 0;              // smallest leaf below
  };

  SummationTree() = default;
  explicit SummationTree(int leaves) : leaves_(leaves) {}

  // Children must be leaves or existing nodes; they are sorted here. Returns the node's number.
  int Join(std::vector<int> children);

  int leaves() const { return leaves_; }
  int nodes() const { return static_cast<int>(nodes_.size()); }
  int root() const { return leaves_ + nodes() - 1; }
  bool IsLeaf(int i) const { return i < leaves_; }
  const Node& node(int i) const { return nodes_[static_cast<size_t>(i - leaves_)]; }
  int SizeOf(int i) const { return IsLeaf(i) ? 1 : node(i).size; }
  int FirstOf(int i) const { return IsLeaf(i) ? i : node(i).first; }
  std::vector<int> Parents() const;  // of leaves and nodes; -1 for the root
  int WidestNode() const;            // largest number of children of a node

  // Returns a hash of the tree's shape and leaves, independent of the order in which it was built.
  // 16 hexadecimal digits.
  std::string Hash() const;

 private:
  int leaves_ = 0;
  std::vector<Node> nodes_;
};

// Return complete trees, for tests and as models to compare with. n >= 2.
SummationTree LeftFold(int n);
SummationTree Pairwise(int n);  // halves, the first one larger
// Returns a tree in which n addends form `lanes` strided folds (addend i in lane i mod lanes),
// joined pairwise; lanes <= n.
SummationTree Lanes(int n, int lanes);

// Returns the order in words: "left fold of 4096 terms", "pairwise join of 8 parts (first terms 0,
// 1, ...), each a left fold of 512 terms, stride 8". If there is no pattern, the text is cut after
// some lines.
std::string TreeInWords(const SummationTree& tree);
// Returns an indented outline with one node per line, at most `lines` lines.
std::string TreeAsOutline(const SummationTree& tree, int lines);

}  // namespace plumbline::sums
