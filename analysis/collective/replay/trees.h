// Summation trees that collectives use, as small programs over rows (ranks, or groups of ranks).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace plumbline::analysis {

// Postfix code: a row number pushes that row, kAdd replaces the two newest values by their rounded
// sum.
struct SumTree {
  static constexpr int32_t kAdd = -1;
  std::vector<int32_t> code;
  int depth = 0;  // largest number of values on the stack

  int rows() const { return static_cast<int>((code.size() + 1) / 2); }
};

struct NamedTree {
  const char* family;   // "halving" or "tree"
  std::string variant;  // "distances 4,2,1", "double binary, first", ...
  SumTree tree;
};

// Returns every candidate tree over `rows` >= 2 rows, one per expression (sums commute), in order
// of preference for the name:
// - "tree": nearest first (binomial; if rows is a power of two, the same expression as recursive
//   doubling), contiguous halves, the two complementary binary trees of NCCL (Sanders, Speck,
//   Traeff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan", 2009) with a
//   node's own value first or last and its children in either order;
// - "halving": farthest first (Rabenseifner's recursive halving). Rows beyond a power of two are
// first folded in, from neighbours or from the end, or form separate blocks (Thakur et al.,
//   "Optimization of collective communication operations in MPICH", 2005).
std::vector<NamedTree> CandidateTrees(int rows);

// A pair of complementary binary trees. In a collective, each tree of a pair sums half of the
// elements. DoubleBinaryTrees returns the pairs, in the order of variants in CandidateTrees: first,
// second. If rows < 3, it returns none.
struct TreePair {
  std::string variant;
  SumTree first;
  SumTree second;
};
std::vector<TreePair> DoubleBinaryTrees(int rows);

}  // namespace plumbline::analysis
