// Finds which of the tensors observed in one step are zero in every element, per rank.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "analysis/frame/frame.h"
#include "base/archive.h"

namespace plumbline::analysis {

// One tensor of one rank, over all calls of the step.
struct ZeroLook {
  bool elements = false;  // some call had elements
  bool zero = true;       // all elements are zero, in all calls
  bool poisoned = false;
  uint64_t count = 0;
  // For its last call: its digest (0 if none was computed), and whether its format has 24 bits or
  // more.
  double amax = 0, l1 = 0;
  uint64_t digest = 0;
  bool fine = false;
  bool lives() const { return elements && !zero && !poisoned; }
};

class ZeroStep {
 public:
  using Place = std::pair<std::string, std::string>;  // layer, op
  struct Looks {
    std::string role;
    std::map<uint32_t, ZeroLook> ranks;
  };

  // Takes gradients, activations, weights and buffers; ignores others.
  void Take(const SiteStep& step, const Item& item);
  void Clear() { open_.clear(); }

  const std::map<Place, Looks>& open() const { return open_; }
  // Returns nullptr if it is not in this step.
  const ZeroLook* Find(const std::string& layer, const char* op, uint32_t rank) const;
  // Returns true if at least two gradients of the rank were observed, and all their elements are
  // zero.
  bool AllGradientsZero(uint32_t rank) const;
  // Returns true for a bias whose layer's weight ("weight" instead of "bias") has a gradient. A
  // bias sums the gradients of the layer's outputs. If a loss compares means (a critic's last
  // layer), that sum is 0 by algebra.
  bool IsBiasOfLiving(const std::string& layer, uint32_t rank) const;

 private:
  std::map<Place, Looks> open_;
};

// The minimum so far of each rank's losses. Not thread-safe.
class LeastLosses {
 public:
  void Take(const SiteStep& step, const Item& item);
  // Does what Take and Close do for the rows from `first` to `end`.
  void TakeRows(const ScalarColumn& column, size_t first, size_t end);
  // True if some losses were recorded in this step, and each is 0, or at most its previous minimum.
  bool AtLeast() const { return reported_ > 0 && low_ == reported_; }
  void Close() { reported_ = low_ = 0; }  // ends the step
  // Between steps reported_ and low_ are 0.
  void Persist(Archive& a) { a(least_); }

 private:
  std::map<std::tuple<v1::Role, std::string, uint32_t>, double> least_;  // by name and rank
  uint64_t reported_ = 0, low_ = 0;                                      // in this step
};

// Returns true for "experts.3.w1", "mlp.expert_12.weight": a word that begins so.
bool IsOfExpert(const std::string& layer);

// Returns true for gradients and activations, which are computed. Weights and buffers keep their
// initial values.
inline bool IsComputed(std::string_view role) { return role == "gradient" || role == "activation"; }

}  // namespace plumbline::analysis
