// Keeps one side's sampled steps until the other side's arrive. Returns the comparison of a step's
// layers together, in the order of the layers' numbers.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "analysis/frame/frame.h"
#include "analysis/routing/train_infer/join.h"
#include "base/archive.h"

namespace plumbline::analysis {

// Ordered by the first number in the layer's name, then by name: layers.2 before layers.10.
struct LayerSite {
  std::string layer;
  std::string op;
  int64_t number = -1;
  auto operator<=>(const LayerSite& other) const {
    return std::tie(number, layer, op) <=> std::tie(other.number, other.layer, other.op);
  }
  bool operator==(const LayerSite& other) const { return (*this <=> other) == 0; }
  void Persist(Archive& a) { a(layer, op, number); }
};
LayerSite SiteOf(const v1::Site& site);

struct ComparedStep {
  int64_t step = 0;
  std::map<LayerSite, RoutingComparison> layers;
  void Persist(Archive& a) { a(step, layers); }
};

class TrainInferRuns {
 public:
  // Keeps at most `tokens` tokens per layer, step and side, and about 64 MiB in all.
  TrainInferRuns(size_t tokens, double factor) : tokens_(tokens), factor_(factor) {}

  // Returns the steps whose comparison became complete.
  std::vector<ComparedStep> Take(const SiteStep& step);
  // Returns the remaining steps.
  std::vector<ComparedStep> Finish();

  bool both_sides_seen() const { return seen_[0] && seen_[1]; }
  uint64_t given_up() const { return given_up_; }

  struct Steps {
    uint64_t count = 0;
    int64_t first = 0;
    int64_t last = 0;
  };
  // Returns the sampled steps that still wait, by layer.
  std::map<LayerSite, Steps> Unmatched() const;

  void Persist(Archive& a) {
    const uint32_t version = a.Version(4, 2);
    a(seen_, waiting_, bytes_, given_up_, compared_);
    for (auto& [at, waiting] : waiting_) {
      if (version >= 3) a(waiting.content.key);
      if (version >= 4) waiting.content.PersistRule(a);
    }
  }

 private:
  enum Side : uint8_t { kTrain = 0, kInfer = 1 };
  struct Waiting {
    Side side;
    RoutedSide content;
    void Persist(Archive& a) { a(side, content); }
  };
  struct Compared {
    v1::Role completed_by;
    ComparedStep step;
    void Persist(Archive& a) { a(completed_by, step); }
  };

  static Side SideOf(const Item& item);
  void Meet(int64_t step, const LayerSite& site, v1::Role role, Side side, RoutedSide content);
  void Compare(int64_t step, const LayerSite& site, v1::Role role, const RoutedSide& train,
               const RoutedSide& infer);
  void GiveUpOldest();

  size_t tokens_;
  double factor_;
  bool seen_[2] = {false, false};
  std::map<std::pair<int64_t, LayerSite>, Waiting> waiting_;
  size_t bytes_ = 0;
  uint64_t given_up_ = 0;
  std::map<int64_t, Compared> compared_;
};

}  // namespace plumbline::analysis
