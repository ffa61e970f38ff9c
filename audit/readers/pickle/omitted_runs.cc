#include "audit/readers/pickle/omitted_runs.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/printable.h"

namespace plumbline::audit {
namespace {

constexpr size_t kMostCallsReported = 8;
constexpr size_t kMostOfName = 60;  // limit of the bytes of a key

// Visits each value once, from the root on, and records where it was first found.
class RunSearch {
 public:
  explicit RunSearch(const PickleTree& tree) : tree_(tree), met_(tree.size()) {}

  std::string Reported() {
    uint64_t values = 0, places = 0;
    std::string names;
    Meet(tree_.root(), kNoPickle, kNoPickle, 0);
    while (!open_.empty()) {
      const PickleId id = open_.back();
      open_.pop_back();
      if (!tree_.Is(id, PickleKind::kRun)) {
        MeetParts(id);
        continue;
      }
      values += tree_.run(id).values;
      if (met_[id].parent == reported_) continue;  // this list was reported last
      reported_ = met_[id].parent;
      if (++places <= kMostCallsReported) names += (names.empty() ? "" : ", ") + Place(reported_);
    }
    if (values == 0) return "";
    if (places > kMostCallsReported) names += ", ...";
    return "counted but not stored: " + std::to_string(values) + " plain values of " + names;
  }

 private:
  struct Met {
    PickleId parent = kNoPickle, key = kNoPickle;  // for a value in a dict: its key
    uint32_t index = 0;                            // for an item in a list: its index
    bool met = false;
  };

  void Meet(PickleId id, PickleId parent, PickleId key, size_t index) {
    if (id == kNoPickle || met_[id].met) return;
    met_[id] = {parent, key, static_cast<uint32_t>(index), true};
    open_.push_back(id);
  }

  // Pushes parts in reverse, so that they are visited in order.
  void MeetParts(PickleId id) {
    switch (tree_.kind(id)) {
      case PickleKind::kDict: {
        const std::vector<PickleId>& pairs = tree_.items(id);
        for (size_t i = pairs.size(); i >= 2; i -= 2) Meet(pairs[i - 1], id, pairs[i - 2], 0);
        return;
      }
      case PickleKind::kList:
      case PickleKind::kTuple:
      case PickleKind::kSet:
      case PickleKind::kPersistent: {
        const std::vector<PickleId>& items = tree_.items(id);
        for (size_t i = items.size(); i-- > 0;) Meet(items[i], id, kNoPickle, i);
        return;
      }
      case PickleKind::kCall: {
        const PickleCall& call = tree_.call(id);
        for (const PickleId part :
             {call.entries, call.items, call.state, call.keywords, call.arguments})
          Meet(part, id, kNoPickle, UINT32_MAX);
        return;
      }
      default:
        return;
    }
  }

  // Returns the path from the root: "trainer.losses".
  std::string Place(PickleId id) const {
    std::vector<std::string> names;
    for (; id != kNoPickle && met_[id].parent != kNoPickle; id = met_[id].parent) {
      const Met& met = met_[id];
      if (met.key != kNoPickle && tree_.Is(met.key, PickleKind::kText)) {
        names.push_back(Printable(tree_.text(met.key).substr(0, kMostOfName)));
      } else if (met.key != kNoPickle && tree_.Is(met.key, PickleKind::kInt)) {
        names.push_back(std::to_string(tree_.whole(met.key)));
      } else if (tree_.Is(met.parent, PickleKind::kList)) {
        names.push_back(std::to_string(met.index));
      }
    }
    std::string out;
    for (size_t i = names.size(); i-- > 0;) out += (out.empty() ? "" : ".") + names[i];
    return out.empty() ? "the outermost value" : out;
  }

  const PickleTree& tree_;
  std::vector<Met> met_;
  std::vector<PickleId> open_;
  PickleId reported_ = kNoPickle - 1;  // the container whose runs were listed last
};

}  // namespace

std::string OmittedRuns(const PickleTree& tree) {
  return tree.has_runs() ? RunSearch(tree).Reported() : "";
}

}  // namespace plumbline::audit
