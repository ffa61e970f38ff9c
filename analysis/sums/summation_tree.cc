#include "analysis/sums/summation_tree.h"

#include <algorithm>
#include <cstdio>

namespace plumbline::sums {
namespace {

// splitmix64's finalizer.
uint64_t Mixed(uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

// Joins parts[from, to) by halves.
int JoinHalves(SummationTree* tree, const std::vector<int>& parts, size_t from, size_t to) {
  if (to - from == 1) return parts[from];
  const size_t middle = from + (to - from + 1) / 2;
  const int left = JoinHalves(tree, parts, from, middle);
  return tree->Join({left, JoinHalves(tree, parts, middle, to)});
}

}  // namespace

int SummationTree::Join(std::vector<int> children) {
  std::sort(children.begin(), children.end(),
            [this](int x, int y) { return FirstOf(x) < FirstOf(y); });
  Node node;
  for (const int child : children) node.size += SizeOf(child);
  node.first = FirstOf(children.front());
  node.children = std::move(children);
  nodes_.push_back(std::move(node));
  return root();
}

std::vector<int> SummationTree::Parents() const {
  std::vector<int> parents(static_cast<size_t>(leaves_ + nodes()), -1);
  for (int i = leaves_; i <= root(); ++i) {
    for (const int child : node(i).children) parents[static_cast<size_t>(child)] = i;
  }
  return parents;
}

int SummationTree::WidestNode() const {
  size_t most = 0;
  for (const Node& node : nodes_) most = std::max(most, node.children.size());
  return static_cast<int>(most);
}

std::string SummationTree::Hash() const {
  std::vector<uint64_t> hashes(static_cast<size_t>(leaves_ + nodes()));
  for (int i = 0; i < leaves_; ++i)
    hashes[static_cast<size_t>(i)] = Mixed(static_cast<uint64_t>(i));
  for (int i = leaves_; i <= root(); ++i) {
    uint64_t sum = 0;  // does not depend on the children's order
    for (const int child : node(i).children) sum += hashes[static_cast<size_t>(child)];
    hashes[static_cast<size_t>(i)] = Mixed(sum ^ Mixed(node(i).children.size()));
  }
  char text[20];
  std::snprintf(text, sizeof(text), "%016llx",
                static_cast<unsigned long long>(hashes.empty() ? 0 : hashes.back()));
  return text;
}

SummationTree LeftFold(int n) {
  SummationTree tree(n);
  int sum = 0;
  for (int i = 1; i < n; ++i) sum = tree.Join({sum, i});
  return tree;
}

SummationTree Pairwise(int n) {
  SummationTree tree(n);
  std::vector<int> parts(static_cast<size_t>(n));
  for (int i = 0; i < n; ++i) parts[static_cast<size_t>(i)] = i;
  JoinHalves(&tree, parts, 0, parts.size());
  return tree;
}

SummationTree Lanes(int n, int lanes) {
  SummationTree tree(n);
  std::vector<int> parts;
  lanes = std::min(lanes, n);
  for (int lane = 0; lane < lanes; ++lane) {
    int sum = lane;
    for (int i = lane + lanes; i < n; i += lanes) sum = tree.Join({sum, i});
    parts.push_back(sum);
  }
  JoinHalves(&tree, parts, 0, parts.size());
  return tree;
}

}  // namespace plumbline::sums
