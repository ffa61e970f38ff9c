#include "analysis/collective/replay/trees.h"

#include <algorithm>
#include <bit>
#include <memory>
#include <set>
#include <utility>

namespace plumbline::analysis {
namespace {

// A subtree: its code, the number of values it needs, and a text that is equal for equal
// expressions.
struct Part {
  std::vector<int32_t> code;
  int depth = 0;
  std::string text;
};

Part Leaf(int row) { return {{row}, 1, std::to_string(row)}; }

Part Sum(const Part& a, const Part& b) {
  Part out;
  out.code = a.code;
  out.code.insert(out.code.end(), b.code.begin(), b.code.end());
  out.code.push_back(SumTree::kAdd);
  out.depth = std::max(a.depth, b.depth + 1);
  const bool ordered = a.text < b.text;
  out.text = "(" + (ordered ? a.text : b.text) + "+" + (ordered ? b.text : a.text) + ")";
  return out;
}

std::vector<Part> Leaves(int rows) {
  std::vector<Part> parts;
  for (int r = 0; r < rows; ++r) parts.push_back(Leaf(r));
  return parts;
}

// Adds nearest values first: value r adds value r + distance, with distances 1, 2, 4, ...
Part Binomial(int rows) {
  std::vector<Part> parts = Leaves(rows);
  for (int distance = 1; distance < rows; distance *= 2) {
    for (int r = 0; r + distance < rows; r += 2 * distance) {
      parts[static_cast<size_t>(r)] =
          Sum(parts[static_cast<size_t>(r)], parts[static_cast<size_t>(r + distance)]);
    }
  }
  return parts[0];
}

// Adds the sums of contiguous halves. An odd row belongs to the first or the second half.
Part Halves(int first, int last, bool larger_first) {
  if (last - first == 1) return Leaf(first);
  const int middle = first + (last - first + (larger_first ? 1 : 0)) / 2;
  return Sum(Halves(first, middle, larger_first), Halves(middle, last, larger_first));
}

// Adds farthest values first. The number of parts is a power of two.
Part Halving(std::vector<Part> parts) {
  for (size_t n = parts.size() / 2; n >= 1; n /= 2) {
    for (size_t i = 0; i < n; ++i) parts[i] = Sum(parts[i], parts[i + n]);
    parts.resize(n);
    if (n == 1) break;
  }
  return parts[0];
}

// Adds nearest values first. The number of parts is a power of two.
Part Doubling(std::vector<Part> parts) {
  while (parts.size() > 1) {
    for (size_t i = 0; 2 * i + 1 < parts.size(); ++i)
      parts[i] = Sum(parts[2 * i], parts[2 * i + 1]);
    parts.resize(parts.size() / 2);
  }
  return parts[0];
}

enum class Fold { kNeighbours, kEnd };

// Adds the rows beyond the power of two to other rows first.
std::vector<Part> Folded(int rows, Fold fold) {
  const auto power = static_cast<int>(std::bit_floor(static_cast<unsigned>(rows)));
  const int rest = rows - power;
  std::vector<Part> parts;
  if (fold == Fold::kNeighbours) {
    for (int i = 0; i < rest; ++i) parts.push_back(Sum(Leaf(2 * i), Leaf(2 * i + 1)));
    for (int r = 2 * rest; r < rows; ++r) parts.push_back(Leaf(r));
  } else {
    for (int r = 0; r < power; ++r)
      parts.push_back(r < rest ? Sum(Leaf(r), Leaf(r + power)) : Leaf(r));
  }
  return parts;
}

// Divides the rows into blocks of decreasing powers of two. Halves each separately, and adds
// smaller blocks to larger ones.
Part BinaryBlocks(int rows) {
  std::vector<Part> blocks;
  int first = 0;
  for (int rest = rows; rest > 0;) {
    const auto size = static_cast<int>(std::bit_floor(static_cast<unsigned>(rest)));
    std::vector<Part> parts;
    for (int r = first; r < first + size; ++r) parts.push_back(Leaf(r));
    blocks.push_back(Halving(std::move(parts)));
    first += size;
    rest -= size;
  }
  Part sum = blocks.back();
  for (size_t i = blocks.size() - 1; i > 0; --i) sum = Sum(blocks[i - 1], sum);
  return sum;
}

// The children of a node in the in-order binary tree over [0, rows) with root 0.
struct Children {
  int first = -1;
  int second = -1;
};

Children ChildrenOf(int node, int rows) {
  if (node == 0) {
    int bit = 1;
    while (bit < rows) bit *= 2;
    return {-1, rows > 1 ? bit / 2 : -1};
  }
  int low = (node & -node) / 2;
  Children c;
  if (low == 0) return c;
  c.first = node - low;
  c.second = node + low;
  while (low > 0 && c.second >= rows) {
    low /= 2;
    c.second = low == 0 ? -1 : node + low;
  }
  return c;
}

enum class NodeOrder { kOwnFirst, kOwnFirstSwapped, kChildrenFirst };

// Maps a node of the tree to its row: unchanged, mirrored (even counts) or shifted by one (odd
// counts).
struct Relabel {
  int rows = 0;
  bool second = false;
  int operator()(int node) const {
    if (!second) return node;
    return rows % 2 == 0 ? rows - 1 - node : (node + 1) % rows;
  }
};

Part Node(int node, const Relabel& row, NodeOrder order) {
  const Children c = ChildrenOf(node, row.rows);
  Part own = Leaf(row(node));
  std::vector<Part> below;
  for (const int child : {c.first, c.second}) {
    if (child >= 0) below.push_back(Node(child, row, order));
  }
  if (below.empty()) return own;
  if (below.size() == 1) return Sum(own, below[0]);
  switch (order) {
    case NodeOrder::kOwnFirst:
      return Sum(Sum(own, below[0]), below[1]);
    case NodeOrder::kOwnFirstSwapped:
      return Sum(Sum(own, below[1]), below[0]);
    case NodeOrder::kChildrenFirst:
      return Sum(own, Sum(below[0], below[1]));
  }
  return own;
}

SumTree ToTree(const Part& part) { return {part.code, part.depth}; }

constexpr std::pair<NodeOrder, const char*> kNodeOrders[] = {
    {NodeOrder::kOwnFirst, "own value first"},
    {NodeOrder::kOwnFirstSwapped, "own value first, far child before near"},
    {NodeOrder::kChildrenFirst, "children first"}};

class TreeList {
 public:
  void Take(const char* family, std::string variant, const Part& part) {
    if (seen_.insert(part.text).second) list_.push_back({family, std::move(variant), ToTree(part)});
  }
  std::vector<NamedTree> Done() { return std::move(list_); }

 private:
  std::set<std::string> seen_;
  std::vector<NamedTree> list_;
};

}  // namespace

std::vector<NamedTree> CandidateTrees(int rows) {
  TreeList list;
  if (rows < 2) return list.Done();
  const bool power = std::has_single_bit(static_cast<unsigned>(rows));
  list.Take("tree", "neighbours first", Binomial(rows));
  list.Take("tree", "halves", Halves(0, rows, true));
  list.Take("tree", "halves, smaller first", Halves(0, rows, false));
  if (power) {
    list.Take("halving", "farthest first", Halving(Leaves(rows)));
  } else {
    list.Take("halving", "neighbours folded, farthest first",
              Halving(Folded(rows, Fold::kNeighbours)));
    list.Take("halving", "neighbours folded, nearest first",
              Doubling(Folded(rows, Fold::kNeighbours)));
    list.Take("halving", "end folded, farthest first", Halving(Folded(rows, Fold::kEnd)));
    list.Take("halving", "end folded, nearest first", Doubling(Folded(rows, Fold::kEnd)));
    list.Take("halving", "binary blocks", BinaryBlocks(rows));
  }
  for (const auto& [order, words] : kNodeOrders) {
    list.Take("tree", std::string("double binary, first, ") + words,
              Node(0, Relabel{rows, false}, order));
    list.Take("tree", std::string("double binary, second, ") + words,
              Node(0, Relabel{rows, true}, order));
  }
  return list.Done();
}

std::vector<TreePair> DoubleBinaryTrees(int rows) {
  std::vector<TreePair> pairs;
  if (rows < 3) return pairs;
  for (const auto& [order, words] : kNodeOrders) {
    pairs.push_back({std::string("double binary, ") + words,
                     ToTree(Node(0, Relabel{rows, false}, order)),
                     ToTree(Node(0, Relabel{rows, true}, order))});
  }
  return pairs;
}

}  // namespace plumbline::analysis
