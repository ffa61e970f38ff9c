// One step's observations in the order in which each rank made them. Finds which of them first held
// a non-finite value.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "analysis/frame/frame.h"
#include "base/archive.h"
#include "base/dtype.h"

namespace plumbline::analysis {

// `what` of a weight at the start of the step: role "parameter" (run.watch observes parameters if a
// loss or a gradient is not finite), or an update's elements before it.
inline constexpr char kWeightBefore[] = "weight before its update";

// One tensor, update or reduction as a rank observed it.
struct Observation {
  std::string layer, op;
  std::string what;  // "activation", "weight", "update", "reduction input", ...
  uint32_t rank = 0;
  uint32_t call = 0;
  uint64_t order = 0;  // 0 if it is not known
  DType dtype = DType::kUnspecified;
  uint64_t count = 0;  // number of observed values
  uint64_t nan = 0, pos_inf = 0, neg_inf = 0;
  uint64_t unsorted = 0;  // non-finite values of unknown kind
  double amax = 0;        // NaN if not measured
  // Rows of probabilities that may be all NaN, if nothing else is non-finite.
  uint64_t whole_rows = 0;

  // Returns the sum of the counts. They come from the network, so if the sum overflows, returns the
  // largest value.
  uint64_t non_finite() const;
  // True for -inf alone where a mask would put it, or for fully masked rows of probabilities.
  bool mask_like() const;
  // True for values of the backward pass or the optimizer, which a too large loss scale overflows.
  bool gradient_like() const;
  // True if the value existed before the step computed anything, at whatever time it was observed.
  bool at_start() const { return what == kWeightBefore; }
  // True if it is computed from the loss: a gradient, or a value derived from a gradient.
  bool after_loss() const;
  void Persist(Archive& a) {
    a(layer, op, what, rank, call, order, dtype, count, nan, pos_inf, neg_inf, unsorted, amax);
    a(whole_rows);
  }
};

// The first observation of a step that holds a NaN or an infinity.
struct FirstSeen {
  const Observation* observation = nullptr;  // of the lowest rank that observed it there
  std::vector<uint32_t> ranks;               // all ranks whose first it is, ascending
  size_t finite_ranks = 0;  // ranks that made the same observation and found finite values
  // True if the first observation of some rank cannot be ordered relative to this one, because the
  // two ranks share no site (stages of a pipeline).
  bool apart = false;
};

class NonFiniteTrace {
 public:
  // Takes every observation of this item. Ignores kinds without values.
  void Take(const SiteStep& step, const Item& item);

  // Returns the first observation with a NaN or an infinity, ignoring those that look like masks.
  // Within a rank, a weight that was non-finite at the step's start comes first, else the
  // observation with the lowest order. Orders of different ranks are not comparable, because one
  // rank may observe more sites than another. Two ranks are compared by what each of them observed
  // at the other's site. If they share no site, forward values come before gradients; forward
  // values are ordered by name (numbers in names by value), gradients in reverse. If some
  // non-finite observation has no order, all are ordered by name, call and rank. If there is none,
  // returns nullopt.
  std::optional<FirstSeen> First() const;
  bool ordered() const;

  // Returns the previous observation of the same rank. If there is none, if it is not known, or if
  // the value existed at the step's start, returns nullptr.
  const Observation* Before(const Observation& first) const;

  uint64_t values() const { return values_; }
  uint64_t observations() const { return all_.size(); }
  // Returns the number of (layer, op) sites with such a value, ignoring masks.
  size_t sites() const;
  bool masks() const;
  // Returns every observed (layer, op), and whether all of its values were finite, ignoring masks.
  std::map<std::pair<std::string, std::string>, bool> looked_at() const;
  // Counts the sites of weights and of activations that the same rank observed before `first`,
  // which must have an order. If it is the first, all of them were finite.
  struct InFront {
    size_t weights = 0, activations = 0;
  };
  InFront LookedInFront(const Observation& first) const;
  // Returns the optimizer's moments of a weight, at the start of the step, that hold such a value.
  std::vector<const Observation*> MomentsOf(const Observation& weight) const;
  // True if weights were observed, at any time of the step, and all were finite.
  bool weights_finite() const;
  void Clear();

 private:
  class Precedence;
  void Add(Observation o);
  std::vector<const Observation*> FirstOfRanks(bool by_order) const;
  std::vector<Observation> all_;
  uint64_t values_ = 0;
};

}  // namespace plumbline::analysis
