// One step's observations in the order in which each rank made them, and which of them first held a
// value that is no number.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "analysis/frame/frame.h"
#include "base/archive.h"
#include "base/dtype.h"

namespace plumbline::rules {

// `what` of a weight as the step found it: role "parameter" (run.watch looks at them so when a loss
// or a gradient is no number), or an update's elements before it.
inline constexpr char kWeightBefore[] = "weight before its update";

// One tensor, update or reduction as a rank observed it.
struct Observation {
  std::string layer, op;
  std::string what;  // "activation", "weight", "update", "reduction input", ...
  uint32_t rank = 0;
  uint32_t call = 0;
  uint64_t order = 0;  // 0: not known
  DType dtype = DType::kUnspecified;
  uint64_t count = 0;  // values looked at
  uint64_t nan = 0, pos_inf = 0, neg_inf = 0;
  uint64_t unsorted = 0;    // values that are no numbers, not told apart
  double amax = 0;          // NaN: not measured
  uint64_t whole_rows = 0;  // rows of probabilities that may be NaN throughout, and nothing else is

  // Counts off the wire may be anything: a sum that would wrap stays at the largest.
  uint64_t non_finite() const;
  // -inf alone, where a mask would put it, or rows of probabilities that are masked throughout.
  bool mask_like() const;
  // Of the backward pass or the optimizer: what a loss scale that is too large overflows.
  bool gradient_like() const;
  // It was there before anything of the step was computed, whenever it was looked at.
  bool at_start() const { return what == kWeightBefore; }
  // Computed from the loss: a gradient, or what is made of it.
  bool behind_loss() const;
  void Persist(Archive& a) {
    a(layer, op, what, rank, call, order, dtype, count, nan, pos_inf, neg_inf, unsorted, amax);
    a(whole_rows);
  }
};

// The first observation of a step that holds a NaN or an infinity.
struct FirstSeen {
  const Observation* observation = nullptr;  // of the lowest rank that saw it there
  std::vector<uint32_t> ranks;               // all whose first it is, ascending
  size_t finite_ranks = 0;                   // that observed the same and saw finite values
  // Some rank's own first cannot be put in order with it: the two ranks share neither site (stages
  // of a pipeline).
  bool apart = false;
};

class NonFiniteTrace {
 public:
  // Every observation of this item; nothing for kinds without values.
  void Take(const SiteStep& step, const Item& item);

  // The first observation with a NaN or an infinity, those that look like masks aside. Each rank's
  // own first is a weight that had it at the step's start, else the one of the lowest order.
  // Between ranks numbers say nothing (one may observe more than another): what either rank saw of
  // the other's site decides; where they share none, forward values come before gradients, those by
  // name (numbers in names by value), these against it. Where some such observation has no order:
  // by name, call and rank. nullopt: there is none.
  std::optional<FirstSeen> First() const;
  bool ordered() const;

  // What the same rank observed last before it; nullptr: nothing, not known, or it was there at the
  // step's start.
  const Observation* Before(const Observation& first) const;

  uint64_t values() const { return values_; }
  uint64_t observations() const { return all_.size(); }
  // (layer, op) sites with such a value, masks aside.
  size_t sites() const;
  bool masks() const;
  // Every (layer, op) that was looked at: were all of its values finite, masks aside?
  std::map<std::pair<std::string, std::string>, bool> looked_at() const;
  // How many sites of weights and of activations the same rank looked at before `first`, which has
  // an order. All of them were finite, if it is the first.
  struct InFront {
    size_t weights = 0, activations = 0;
  };
  InFront LookedInFront(const Observation& first) const;
  // An optimizer's moments of a weight, as the step found them, that hold such a value.
  std::vector<const Observation*> MomentsOf(const Observation& weight) const;
  // Weights were looked at, at whatever time of the step, and all were finite.
  bool weights_finite() const;
  void Clear();

 private:
  class Precedence;
  void Add(Observation o);
  std::vector<const Observation*> FirstOfRanks(bool by_order) const;
  std::vector<Observation> all_;
  uint64_t values_ = 0;
};

}  // namespace plumbline::rules
