// Which of the tensors that one step shows are zero in every element, each rank by itself.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "analysis/frame/frame.h"
#include "base/archive.h"

namespace plumbline::rules {

// One tensor of one rank, over all calls of the step.
struct ZeroLook {
  bool elements = false;  // some call had any
  bool zero = true;       // all of them, in all calls
  bool poisoned = false;
  uint64_t count = 0;
  // Of its last call: its digest (0: none was taken), and whether its format is of 24 bits or more.
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

  // Of gradients, activations, weights and buffers; others are passed by.
  void Take(const SiteStep& step, const Item& item);
  void Clear() { open_.clear(); }

  const std::map<Place, Looks>& open() const { return open_; }
  // nullptr: not in this step.
  const ZeroLook* Find(const std::string& layer, const char* op, uint32_t rank) const;
  // Two gradients of the rank or more were observed, and none has an element that is not zero.
  bool AllGradientsZero(uint32_t rank) const;
  // A bias whose layer's weight ("weight" in the place of "bias") has a gradient. It adds up what
  // the layer's outputs get: 0 by algebra where a loss compares means (a critic's last layer).
  bool IsBiasOfLiving(const std::string& layer, uint32_t rank) const;

 private:
  std::map<Place, Looks> open_;
};

// Each rank's losses: the least that they ever were. Not thread-safe.
class LeastLosses {
 public:
  void Take(const SiteStep& step, const Item& item);
  // What Take and Close make of the rows from `first` to `end`.
  void TakeRows(const ScalarColumn& column, size_t first, size_t end);
  // Some were told in this step, and each is 0, or as low as it was before, or lower.
  bool AtLeast() const { return told_ > 0 && low_ == told_; }
  void Close() { told_ = low_ = 0; }  // the step
  // Between steps told_ and low_ are 0.
  void Persist(Archive& a) { a(least_); }

 private:
  std::map<std::tuple<v1::Role, std::string, uint32_t>, double> least_;  // by name and rank
  uint64_t told_ = 0, low_ = 0;                                          // in this step
};

// "experts.3.w1", "mlp.expert_12.weight": a word that begins so.
bool IsOfExpert(const std::string& layer);

// Weights and buffers hold what they were made with; gradients and activations are computed.
inline bool IsComputed(std::string_view role) { return role == "gradient" || role == "activation"; }

}  // namespace plumbline::rules
