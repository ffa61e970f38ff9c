// Samples of a tensor's updates, gathered over steps until there are enough to judge: a live sample
// holds a few hundred elements, other ones at each step.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>

#include "analysis/frame/frame.h"
#include "analysis/sample/sample.h"
#include "base/archive.h"

namespace plumbline::rules {

// Not thread-safe; one for each rule object.
class UpdateWindow {
 public:
  struct Gathered {
    UpdateCase sample;
    int64_t step_first = 0;
    void Persist(Archive& a) { a(sample, step_first); }
  };

  // Adds the item's decoded sample to what its site and rank has gathered. Another dtype, another
  // attempt, or other tensors than before start anew. Valid until the next call.
  Gathered& Add(const SiteStep& step, const Item& item, UpdateCase sample);

  // Judged: what comes next is gathered from nothing.
  void Forget(const SiteStep& step, const Item& item);

  void Persist(Archive& a) {
    a.Version(1);
    a(sites_);
  }

 private:
  using Key = std::tuple<v1::Role, std::string, std::string, uint32_t, uint32_t>;
  static Key KeyOf(const SiteStep& step, const Item& item);

  std::map<Key, Gathered> sites_;
};

}  // namespace plumbline::rules
