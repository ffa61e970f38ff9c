// What a pickle made, looked at as a whole: a walk in which nobody ends.
#include <algorithm>

#include "audit/readers/pickle/machine_state.h"

namespace plumbline::audit {
namespace {

// A value whose parts are being looked at.
struct Open {
  PickleId id;
  size_t next = 0;  // part
};

// What is known of a value when all its parts are.
struct Extent {
  uint32_t spread = 0;  // values in it, 0: not yet looked at
  uint16_t depth = 0;
  bool open = false;  // on the way from the root to here
};

class PickleWalk {
 public:
  PickleWalk(const PickleTree& tree, const PickleLimits& limits)
      : tree_(tree), limits_(limits), extents_(tree.size()) {}

  std::optional<Problem> Walk() {
    Enter(tree_.root());
    while (!open_.empty()) {
      Open& top = open_.back();
      const PickleId part = Part(top.id, top.next++);
      if (part == kEnd) {
        Leave();
        if (problem_) return problem_;
      } else if (part != kNoPickle && extents_[part].spread == 0) {
        if (extents_[part].open) return At(part, "expected no value inside of itself, found one");
        if (open_.size() > limits_.depth) return TooDeep(part);
        Enter(part);
      }
    }
    return std::nullopt;
  }

 private:
  static constexpr PickleId kEnd = kNoPickle - 1;

  Problem At(PickleId id, std::string text) const { return {tree_.offset(id), std::move(text)}; }

  Problem TooDeep(PickleId id) const {
    return At(id, "expected at most " + std::to_string(limits_.depth) +
                      " containers in each other, found more");
  }

  // Part `i` of a value; kEnd: there are no more.
  PickleId Part(PickleId id, size_t i) const {
    const PickleKind kind = tree_.kind(id);
    if (kind == PickleKind::kCall) {
      const PickleCall& c = tree_.call(id);
      const PickleId parts[] = {c.callee, c.arguments, c.keywords, c.state, c.items, c.entries};
      return i < std::size(parts) ? parts[i] : kEnd;
    }
    const bool items = kind == PickleKind::kList || kind == PickleKind::kTuple ||
                       kind == PickleKind::kSet || kind == PickleKind::kDict ||
                       kind == PickleKind::kPersistent;
    return items && i < tree_.items(id).size() ? tree_.items(id)[i] : kEnd;
  }

  void Enter(PickleId id) {
    extents_[id].open = true;
    open_.push_back({id});
  }

  void Leave() {
    const PickleId id = open_.back().id;
    open_.pop_back();
    uint64_t spread = 1;
    uint32_t depth = 0;
    for (size_t i = 0;; ++i) {
      const PickleId part = Part(id, i);
      if (part == kEnd) break;
      if (part == kNoPickle) continue;
      spread += extents_[part].spread;
      depth = std::max<uint32_t>(depth, extents_[part].depth + 1u);
    }
    if (spread > limits_.spread) {
      problem_ = At(id, "expected at most " + std::to_string(limits_.spread) +
                            " values when each reference is followed, found more");
    }
    if (depth > limits_.depth) problem_ = TooDeep(id);
    extents_[id] = {static_cast<uint32_t>(spread), static_cast<uint16_t>(depth), false};
  }

  const PickleTree& tree_;
  const PickleLimits& limits_;
  std::vector<Extent> extents_;
  std::vector<Open> open_;
  std::optional<Problem> problem_;
};

}  // namespace

std::optional<Problem> CheckPickle(const PickleTree& tree, const PickleLimits& limits) {
  return PickleWalk(tree, limits).Walk();
}

}  // namespace plumbline::audit
