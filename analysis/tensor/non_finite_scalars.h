// Losses and gradient norms that are no numbers: they are logged every step, tensors are looked at
// in some. Not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "analysis/frame/frame.h"
#include "base/archive.h"

namespace plumbline::rules {

// A scalar that says something went wrong in training: a loss, or a norm of the gradient; not one
// of an evaluation, which is often NaN where there was none.
bool TellsOfTraining(const v1::Site& site);
bool IsGradientNorm(const v1::Site& site);

struct NonFiniteScalar {
  std::string layer, op;
  double value = 0;
  // Those that reported it so; empty where one rank of several reports it: it may be of them all.
  std::vector<uint32_t> ranks;
  void Persist(Archive& a) { a(layer, op, value, ranks); }
};

class NonFiniteScalars {
 public:
  // One step's scalars of one site. A series that never was a number is no evidence, but for a
  // loss by that very name.
  void Take(const SiteStep& step);
  // What Take and Clear make of steps in which the site's values are numbers; of those that tell of
  // training.
  void TakeFinite(const SiteStep& any);
  // The first of this step, by (layer, op); a loss before a norm. nullopt: none.
  std::optional<NonFiniteScalar> First() const;
  bool any() const { return any_; }  // such a scalar, finite or not, was in this step
  void Clear();

  // Between steps nothing is open: of_step_ and any_ are the next one's; known_ is found again.
  void Persist(Archive& a) {
    a(finite_);
    if (a.reading()) known_ = {};
  }

 private:
  struct Known {
    bool tells = false;   // of training
    bool finite = false;  // it is one of finite_
  };

  SiteMemo<Known> known_;
  std::set<std::pair<std::string, std::string>> finite_;  // series that were a number once
  std::vector<NonFiniteScalar> of_step_;
  bool any_ = false;
};

}  // namespace plumbline::rules
