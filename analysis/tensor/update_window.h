// Collects samples of a tensor's updates over steps until there are enough to judge. A live sample
// holds a few hundred elements, different ones at each step.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>

#include "analysis/frame/frame.h"
#include "analysis/sample/sample.h"
#include "base/archive.h"

namespace plumbline::analysis {

// Not thread-safe. Use one per rule object.
class UpdateWindow {
 public:
  struct Gathered {
    UpdateCase sample;
    int64_t step_first = 0;
    void Persist(Archive& a) { a(sample, step_first); }
  };

  // Adds the item's decoded sample to the collection of its site and rank. If the dtype, the
  // attempt or the tensors differ from before, starts again. Valid until the next call.
  Gathered& Add(const SiteStep& step, const Item& item, UpdateCase sample);

  // Discards the collection after it was judged.
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

}  // namespace plumbline::analysis
