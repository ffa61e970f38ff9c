// Describes a summation tree in words: folds, halves, lanes and blocks, nested.
#include <algorithm>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "analysis/sums/summation_tree.h"

namespace plumbline::sums {
namespace {

constexpr size_t kMostRuns = 12;
constexpr size_t kMostText = 500;
constexpr size_t kMostFirsts = 16;

// A subtree in words that do not depend on the place of its terms. A single term has no text.
struct Part {
  std::string text;
  int first = 0;
};

// Equal parts at equal distances.
struct Run {
  std::string text;
  int first = 0;
  int step = 0;
  int count = 1;
};

std::string Stride(int step) {
  if (step == 1) return "";
  if (step == -1) return ", last first";
  if (step < 0) return absl::StrCat(", stride ", -step, ", last first");
  return absl::StrCat(", stride ", step);
}

std::vector<Run> RunsOf(const std::vector<Part>& parts) {
  std::vector<Run> runs;
  for (const Part& part : parts) {
    if (!runs.empty() && runs.back().text == part.text) {
      Run& run = runs.back();
      const int step = part.first - (run.first + (run.count - 1) * run.step);
      if (run.count == 1) run.step = step;
      if (step == run.step) {
        ++run.count;
        continue;
      }
    }
    runs.push_back({part.text, part.first});
  }
  return runs;
}

std::string RunText(const Run& run) {
  if (run.text.empty()) {
    return run.count == 1 ? "1 term" : absl::StrCat(run.count, " terms", Stride(run.step));
  }
  if (run.count == 1) return absl::StrCat("a ", run.text);
  return absl::StrCat(run.count, " parts ", std::abs(run.step), " apart",
                      run.step < 0 ? ", last first" : "", ", each: ", run.text);
}

class TreeWriter {
 public:
  explicit TreeWriter(const SummationTree& tree) : tree_(tree) {}

  Part Describe(int v) const {
    if (tree_.IsLeaf(v)) return {"", v};
    Part part{"", tree_.FirstOf(v)};
    if (tree_.SizeOf(v) > 3 && IsHalving(v)) {
      part.text = absl::StrCat("pairwise sum of ", tree_.SizeOf(v), " terms");
      return part;
    }
    std::vector<std::vector<int>> items;  // addends of the start, the last one first
    const int start = Spine(v, &items);
    std::reverse(items.begin(), items.end());
    part.text = items.empty() ? Joined(v) : Fold(start, items, &part.first);
    if (part.text.size() > kMostText) {
      part.text = absl::StrCat("irregular tree of ", tree_.SizeOf(v), " terms");
    }
    return part;
  }

 private:
  const std::vector<int>& Children(int v) const { return tree_.node(v).children; }

  // Returns true for contiguous halves of halves, down to the terms.
  bool IsHalving(int v) const {
    if (tree_.SizeOf(v) < 3 && !tree_.IsLeaf(v)) return Children(v)[1] == Children(v)[0] + 1;
    if (tree_.IsLeaf(v)) return true;
    const std::vector<int>& c = Children(v);
    if (c.size() != 2 || std::abs(tree_.SizeOf(c[0]) - tree_.SizeOf(c[1])) > 1) return false;
    if (tree_.FirstOf(c[0]) + tree_.SizeOf(c[0]) != tree_.FirstOf(c[1])) return false;
    return IsHalving(c[0]) && IsHalving(c[1]);
  }

  // Returns the one child that is larger than each other child, or -1 if there is none.
  int Trunk(int v) const {
    int best = -1;
    bool tied = true;
    for (const int child : Children(v)) {
      if (best >= 0 && tree_.SizeOf(child) == tree_.SizeOf(best)) tied = true;
      if (best < 0 || tree_.SizeOf(child) > tree_.SizeOf(best)) {
        best = child;
        tied = false;
      }
    }
    return tied ? -1 : best;
  }

  // Follows the trunk from v. Returns the node where it ends.
  int Spine(int v, std::vector<std::vector<int>>* items) const {
    while (!tree_.IsLeaf(v)) {
      const std::vector<int>& children = Children(v);
      const int trunk = Trunk(v);
      if (children.size() == 2 && trunk < 0) {
        // Handles two halves, or the first two parts of a fold if the next part has their size.
        const int half = tree_.SizeOf(children[0]);
        if (items->empty() || tree_.SizeOf(items->back()[0]) != half) return v;
        // The direction is that of the remaining fold.
        const int next = tree_.FirstOf(items->back()[0]);
        const bool up = next > tree_.FirstOf(children[1]);
        items->push_back({children[up ? 1 : 0]});
        return children[up ? 0 : 1];
      }
      if (trunk < 0) return v;
      std::vector<int> others;
      for (const int child : children) {
        if (child != trunk) others.push_back(child);
      }
      items->push_back(std::move(others));
      v = trunk;
    }
    return v;
  }

  // Describes several values that are added at once, without the sum to which they are added.
  Part AtOnce(const std::vector<int>& values) const {
    if (values.size() == 1) return Describe(values[0]);
    std::vector<Part> parts;
    for (const int value : values) parts.push_back(Describe(value));
    const std::vector<Run> runs = RunsOf(parts);
    Part part{"", parts[0].first};
    for (size_t i = 0; i < runs.size() && i < kMostRuns; ++i) {
      absl::StrAppend(&part.text, i == 0 ? "" : " and ", RunText(runs[i]));
    }
    absl::StrAppend(&part.text, " at once");
    return part;
  }

  std::string Fold(int start, const std::vector<std::vector<int>>& items, int* first) const {
    std::vector<Part> parts = {Describe(start)};
    for (const std::vector<int>& item : items) parts.push_back(AtOnce(item));
    const std::vector<Run> runs = RunsOf(parts);
    if (runs.size() > kMostRuns) {
      return absl::StrCat("irregular fold of ", parts.size(), " parts");
    }
    const int origin = *first;
    if (runs.size() == 1) {
      const char* name = runs[0].step < 0 ? "right fold of " : "left fold of ";
      return absl::StrCat(name, RunText(runs[0]));
    }
    std::string text = "fold of ";
    for (size_t i = 0; i < runs.size(); ++i) {
      absl::StrAppend(&text, i == 0 ? "" : ", then ", RunText(runs[i]), " from ",
                      runs[i].first - origin);
    }
    return absl::StrCat("(", text, ")");
  }

  void Split(int v, std::vector<int>* parts) const {
    if (!tree_.IsLeaf(v)) {
      const std::vector<int>& c = Children(v);
      if (c.size() == 2 && tree_.SizeOf(c[0]) == tree_.SizeOf(c[1])) {
        Split(c[0], parts);
        Split(c[1], parts);
        return;
      }
    }
    parts->push_back(v);
  }

  // Describes a node without a trunk: halves, or several equal values.
  std::string Joined(int v) const {
    if (Children(v).size() > 2) return AtOnce(Children(v)).text;
    std::vector<int> nodes;
    Split(v, &nodes);
    std::vector<Part> parts;
    for (const int node : nodes) parts.push_back(Describe(node));
    const std::vector<Run> runs = RunsOf(parts);
    if (runs.size() == 1) {
      if (runs[0].text.empty()) {
        return absl::StrCat("pairwise sum of ", runs[0].count, " terms", Stride(runs[0].step));
      }
      return absl::StrCat("pairwise join of ", RunText(runs[0]));
    }
    const bool alike = std::all_of(parts.begin(), parts.end(),
                                   [&](const Part& p) { return p.text == parts[0].text; });
    std::string text = absl::StrCat("pairwise join of ", parts.size(), " parts (first terms ");
    for (size_t i = 0; i < parts.size() && i < kMostFirsts; ++i) {
      absl::StrAppend(&text, i == 0 ? "" : ", ", parts[i].first - tree_.FirstOf(v));
    }
    absl::StrAppend(&text, parts.size() > kMostFirsts ? ", ...)" : ")");
    if (alike) return absl::StrCat(text, parts[0].text.empty() ? "" : ", each: ", parts[0].text);
    for (size_t i = 0; i < parts.size() && i < 4; ++i) {
      absl::StrAppend(&text, i == 0 ? ": " : "; ",
                      parts[i].text.empty() ? "1 term" : parts[i].text);
    }
    return absl::StrCat(text, parts.size() > 4 ? "; ..." : "");
  }

  const SummationTree& tree_;
};

void Outline(const SummationTree& tree, int v, int depth, int* lines, std::string* text) {
  if (*lines <= 0) return;
  --*lines;
  text->append(static_cast<size_t>(2 * depth), ' ');
  if (tree.IsLeaf(v)) {
    absl::StrAppend(text, v, "\n");
    return;
  }
  absl::StrAppend(text, "+ ", tree.SizeOf(v), " terms\n");
  for (const int child : tree.node(v).children) Outline(tree, child, depth + 1, lines, text);
}

}  // namespace

std::string TreeInWords(const SummationTree& tree) {
  if (tree.nodes() == 0) return "";
  return TreeWriter(tree).Describe(tree.root()).text;
}

std::string TreeAsOutline(const SummationTree& tree, int lines) {
  std::string text;
  int left = lines;
  if (tree.nodes() > 0) Outline(tree, tree.root(), 0, &left, &text);
  if (left <= 0) text += "...\n";
  return text;
}

}  // namespace plumbline::sums
