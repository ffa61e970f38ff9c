// Checks the whole graph of a pickle: an iterative walk that follows each reference once.
#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "audit/readers/pickle/machine_state.h"

namespace plumbline::audit {
namespace {

// A value whose parts are being visited.
struct Open {
  PickleId id;
  int last_call;    // index of the last call on the path to here, inclusive; -1: none
  size_t next = 0;  // index of the next part
};

// Facts about a value, which are complete after all its parts were visited.
struct Extent {
  uint32_t spread = 0;  // number of values in it; 0: not visited yet
  uint16_t depth = 0;   // while open: its index on the path
  bool open = false;    // true while the value is on the current path from the root
};

}  // namespace

class PickleWalk {
 public:
  PickleWalk(PickleTree* tree, const PickleLimits& limits)
      : tree_(*tree), limits_(limits), extents_(tree->size()) {}

  std::optional<Problem> Walk() {
    Enter(tree_.root());
    while (!open_.empty()) {
      Open& top = open_.back();
      const size_t place = top.next++;
      PickleId* const slot = Part(top.id, place);
      if (slot == nullptr) {
        Leave();
        if (problem_) return problem_;
      } else if (*slot != kNoPickle && extents_[*slot].spread == 0) {
        const PickleId part = *slot;
        if (extents_[part].open) {
          if (top.last_call < extents_[part].depth)
            return At(part, "expected no value that contains itself, found one");
          Cut(part, top.id, place);
        } else {
          if (open_.size() > limits_.depth) return TooDeep(part);
          Enter(part);
        }
      }
    }
    return std::nullopt;
  }

  // Removes duplicate keys that are texts or integers. Keys of other types stay distinct by their
  // place.
  static void KeepLast(PickleTree* tree) {
    absl::flat_hash_map<std::string_view, size_t> texts;
    absl::flat_hash_map<int64_t, size_t> numbers;
    for (PickleId id = 0; id < tree->size(); ++id) {
      if (!tree->Is(id, PickleKind::kDict) || tree->items(id).size() < 4) continue;
      std::vector<PickleId>& pairs = tree->items_[tree->nodes_[id].span.at];
      texts.clear();
      numbers.clear();
      size_t kept = 0;
      for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
        size_t at = kept;
        if (tree->Is(pairs[i], PickleKind::kText)) {
          at = texts.try_emplace(tree->text(pairs[i]), kept).first->second;
        } else if (tree->Is(pairs[i], PickleKind::kInt)) {
          at = numbers.try_emplace(tree->whole(pairs[i]), kept).first->second;
        }
        pairs[at + 1] = pairs[i + 1];
        if (at < kept) continue;
        pairs[at] = pairs[i];
        kept += 2;
      }
      pairs.resize(kept);
    }
  }

 private:
  Problem At(PickleId id, std::string text) const { return {tree_.offset(id), std::move(text)}; }

  Problem TooDeep(PickleId id) const {
    return At(
        id, "expected at most " + std::to_string(limits_.depth) + " nested containers, found more");
  }

  // Returns part `i` of a value; nullptr if there are no more.
  PickleId* Part(PickleId id, size_t i) {
    const PickleKind kind = tree_.kind(id);
    if (kind == PickleKind::kCall) {
      PickleCall& c = CallOf(id);
      PickleId* const parts[] = {&c.callee, &c.arguments, &c.keywords,
                                 &c.state,  &c.items,     &c.entries};
      return i < std::size(parts) ? parts[i] : nullptr;
    }
    const bool items = kind == PickleKind::kList || kind == PickleKind::kTuple ||
                       kind == PickleKind::kSet || kind == PickleKind::kDict ||
                       kind == PickleKind::kPersistent;
    if (!items) return nullptr;
    std::vector<PickleId>& list = tree_.items_[tree_.nodes_[id].span.at];
    return i < list.size() ? &list[i] : nullptr;
  }

  void Enter(PickleId id) {
    const auto place = static_cast<int>(open_.size());
    const int before = open_.empty() ? -1 : open_.back().last_call;
    extents_[id].open = true;
    extents_[id].depth = static_cast<uint16_t>(place);
    open_.push_back({id, tree_.kind(id) == PickleKind::kCall ? place : before});
  }

  // Replaces a reference from part `place` of `holder` back to `outer`, if the path between them
  // contains a call. The result of a call is unknown anyway, so one value represents all references
  // that lead back through it.
  void Cut(PickleId outer, PickleId holder, size_t place) {
    const PickleId call = tree_.Is(outer, PickleKind::kCall)
                              ? outer
                              : open_[static_cast<size_t>(open_.back().last_call)].id;
    const auto [known, added] = circles_.try_emplace(call, kNoPickle);
    if (added) {
      known->second = Add(PickleKind::kCircle, call, tree_.circles_.size());
      tree_.circles_.push_back({call, 0});
    }
    const PickleId circle = known->second;
    ++tree_.circles_[tree_.nodes_[circle].span.at].count;
    PickleId* const slot = Part(holder, place);
    *slot = circle;
    // A call's arguments must stay a tuple.
    if (tree_.Is(holder, PickleKind::kCall) && slot == &CallOf(holder).arguments) {
      *slot = Add(PickleKind::kTuple, call, tree_.items_.size());
      tree_.items_.push_back({circle});
    }
  }

  // Adds a value with the offset of `call`. It is not visited.
  PickleId Add(PickleKind kind, PickleId call, size_t at) {
    const auto id = static_cast<PickleId>(tree_.size());
    const uint32_t offset = tree_.nodes_[call].offset;
    PickleTree::Node& node = tree_.nodes_.emplace_back();
    node.kind = kind;
    node.offset = offset;
    node.span = {static_cast<uint32_t>(at), 0};
    extents_.push_back({kind == PickleKind::kTuple ? 2u : 1u, 0, false});
    return id;
  }

  PickleCall& CallOf(PickleId id) { return tree_.calls_[tree_.nodes_[id].span.at]; }

  void Leave() {
    const PickleId id = open_.back().id;
    open_.pop_back();
    uint64_t spread = 1;
    uint32_t depth = 0;
    for (size_t i = 0;; ++i) {
      const PickleId* const part = Part(id, i);
      if (part == nullptr) break;
      if (*part == kNoPickle) continue;
      spread += extents_[*part].spread;
      depth = std::max<uint32_t>(depth, extents_[*part].depth + 1u);
    }
    if (spread > limits_.spread) {
      problem_ = At(id, "expected at most " + std::to_string(limits_.spread) +
                            " values after following each reference, found more");
    }
    if (depth > limits_.depth) problem_ = TooDeep(id);
    extents_[id] = {static_cast<uint32_t>(spread), static_cast<uint16_t>(depth), false};
  }

  PickleTree& tree_;
  const PickleLimits& limits_;
  std::vector<Extent> extents_;
  std::vector<Open> open_;
  // Call -> the value that represents references through it.
  absl::flat_hash_map<PickleId, PickleId> circles_;
  std::optional<Problem> problem_;
};

void KeepLastOfKeys(PickleTree* tree) { PickleWalk::KeepLast(tree); }

std::optional<Problem> CheckPickle(PickleTree* tree, const PickleLimits& limits) {
  return PickleWalk(tree, limits).Walk();
}

}  // namespace plumbline::audit
