#include "analysis/sums/fprev.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "absl/strings/str_cat.h"
#include "analysis/sums/random.h"

namespace plumbline::sums {
namespace {

using Leaves = std::vector<int>;

class Revealer {
 public:
  Revealer(Prober* prober, const ProbeScale& scale, const RevealOptions& options)
      : prober_(*prober),
        scale_(scale),
        options_(options),
        n_(prober->target().n),
        capacity_(1 << std::min(scale.capacity_log2, 30)),
        random_(options.seed),
        start_(prober->calls()),
        tree_(n_) {}

  absl::StatusOr<Revealed> Run() {
    Leaves all(static_cast<size_t>(n_));
    std::iota(all.begin(), all.end(), 0);
    const auto parts = Build(all, -1, 0);
    if (!parts.ok()) return parts.status();
    return Revealed{std::move(tree_), prober_.calls() - start_, trusted_};
  }

 private:
  // Returns the subtrees that `group` consists of: one subtree, or the children that join a parent
  // of `parent` leaves at once. `outside` is a leaf of the parent that is not in the group; at the
  // root it is -1.
  absl::StatusOr<std::vector<int>> Build(Leaves group, int outside, int parent) {
    std::vector<int> children;
    const size_t whole = group.size();
    // Blocks repeat. If a block of this size was taken for single addends, one pivot less is
    // enough.
    const int enough = std::max(options_.trusted_pivots - (repeated_.count(whole) != 0 ? 1 : 0), 1);
    int blind = 0;
    while (!group.empty()) {
      const size_t at = Pick(group.size());
      const int pivot = group[at];
      group.erase(group.begin() + static_cast<std::ptrdiff_t>(at));
      const auto sizes = SizesWith(pivot, group, outside, parent);
      if (!sizes.ok()) return sizes.status();
      std::map<int, Leaves> met;
      Leaves rest;
      for (size_t k = 0; k < group.size(); ++k) {
        if ((*sizes)[k] == parent) {
          rest.push_back(group[k]);
        } else {
          met[(*sizes)[k]].push_back(group[k]);
        }
      }
      size_t largest = rest.size();
      for (const auto& [size, leaves] : met) largest = std::max(largest, leaves.size());
      Learn(group.size(), largest);
      const auto node = Climb(pivot, met);
      if (!node.ok()) return node.status();
      children.push_back(*node);
      group = std::move(rest);
      blind = met.empty() ? blind + 1 : 0;
      if (options_.trusted_pivots > 0 && blind >= enough) {
        if (!group.empty()) repeated_.insert(whole);
        trusted_ += static_cast<int>(group.size());
        children.insert(children.end(), group.begin(), group.end());
        break;
      }
    }
    return children;
  }

  // Returns which element of a group to probe. Sums mostly begin at one end. A probe of the leaf at
  // that end distinguishes most other leaves at once, while a random leaf leaves half of a fold. If
  // the first end does not distinguish them, tries the other end, then random leaves, which work
  // for any order, then the first end again.
  size_t Pick(size_t count) {
    if (way_ == Way::kFirst) return 0;
    if (way_ == Way::kLast) return count - 1;
    return static_cast<size_t>(random_.Below(static_cast<int>(count)));
  }
  void Learn(size_t count, size_t largest) {
    constexpr size_t kMany = 64;
    if (count < kMany || 2 * largest <= count) return;
    way_ = way_ == Way::kFirst ? Way::kLast : way_ == Way::kLast ? Way::kRandom : Way::kFirst;
  }

  // Joins the subtrees that are added to the pivot's, in order of size.
  absl::StatusOr<int> Climb(int pivot, const std::map<int, Leaves>& met) {
    int node = pivot;
    int size = 1;
    for (const auto& [expected, leaves] : met) {
      if (size + static_cast<int>(leaves.size()) != expected) {
        return absl::FailedPreconditionError(
            absl::StrCat("the counts fit no tree: addend ", pivot, " meets ", leaves.size(),
                         " others (", leaves[0], " is one) under a node of ", expected,
                         " addends, of which it had met ", size));
      }
      auto parts = Build(leaves, pivot, expected);
      if (!parts.ok()) return parts.status();
      parts->push_back(node);
      node = tree_.Join(std::move(*parts));
      size = expected;
    }
    return node;
  }

  // Returns, for each of `others`, the number of leaves under its lowest common ancestor with the
  // pivot.
  absl::StatusOr<std::vector<int>> SizesWith(int pivot, const Leaves& others, int outside,
                                             int parent) {
    std::vector<int> sizes(others.size(), 0);
    if (others.empty()) return sizes;
    Leaves ones;
    const bool whole = n_ <= capacity_;
    if (whole) {
      ones.resize(static_cast<size_t>(n_));
      std::iota(ones.begin(), ones.end(), 0);
    } else {
      ones = others;
      ones.push_back(pivot);
      if (outside >= 0) ones.push_back(outside);
    }
    const auto part = static_cast<size_t>(capacity_);
    for (size_t from = 0; from < ones.size(); from += part) {
      const size_t to = std::min(ones.size(), from + part);
      const absl::Status s = Count({ones.begin() + static_cast<std::ptrdiff_t>(from),
                                    ones.begin() + static_cast<std::ptrdiff_t>(to)},
                                   pivot, others, &sizes);
      if (!s.ok()) return s;
    }
    // Ones are on the group alone. If the leaf outside the group is lost too, the whole parent is
    // lost.
    if (!whole && outside >= 0) {
      for (int& size : sizes) {
        if (size == static_cast<int>(ones.size())) size = parent;
      }
    }
    return sizes;
  }

  // Adds to sizes[k] how many of `ones` are lost between the pivot and others[k].
  absl::Status Count(const Leaves& ones, int pivot, const Leaves& others, std::vector<int>* sizes) {
    prober_.Fill(0);
    std::vector<uint8_t> is_one(static_cast<size_t>(n_), 0);
    for (const int i : ones) {
      prober_.Set(i, scale_.unit);
      is_one[static_cast<size_t>(i)] = 1;
    }
    prober_.Set(pivot, scale_.big);
    for (size_t k = 0; k < others.size(); ++k) {
      prober_.Set(others[k], -scale_.big);
      const auto y = Call();
      if (!y.ok()) return y.status();
      const int count = scale_.CountIn(*y, static_cast<int>(ones.size()));
      if (count < 0) {
        return absl::FailedPreconditionError(absl::StrCat(
            "expected a whole count between 0 and ", ones.size(), " with a large value at addend ",
            pivot, " and its negative at ", others[k], ", found ", *y / scale_.unit));
      }
      (*sizes)[k] += static_cast<int>(ones.size()) - count;
      prober_.Set(others[k], is_one[static_cast<size_t>(others[k])] != 0 ? scale_.unit : 0);
    }
    return absl::OkStatus();
  }

  absl::StatusOr<double> Call() {
    if (prober_.calls() - start_ >= options_.most_calls) {
      return absl::ResourceExhaustedError(
          absl::StrCat("the order was not found within ", options_.most_calls, " calls"));
    }
    return prober_.Call();
  }

  Prober& prober_;
  const ProbeScale& scale_;
  const RevealOptions& options_;
  const int n_;
  const int capacity_;
  Random random_;
  const int64_t start_;
  SummationTree tree_;
  int trusted_ = 0;
  enum class Way { kFirst, kLast, kRandom };
  Way way_ = Way::kFirst;
  std::set<size_t> repeated_;  // sizes of groups that were trusted
};

}  // namespace

absl::StatusOr<Revealed> RevealTree(Prober* prober, const ProbeScale& scale,
                                    const RevealOptions& options) {
  return Revealer(prober, scale, options).Run();
}

}  // namespace plumbline::sums
