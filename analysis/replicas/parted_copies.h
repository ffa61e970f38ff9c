// Detects processes that train one model without a wrapper and never sum gradients. run.watch sends
// a checksum of all weights before the first update ("unsummed/before") and after the 4th, 8th,
// 16th, ... ("unsummed/after"). If some gradient was summed over the processes, run.watch sends
// "unsummed/summed".
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "analysis/frame/frame.h"
#include "base/archive.h"

namespace plumbline::analysis {

// Not thread-safe.
class PartedCopies {
 public:
  static bool Is(const v1::Site& site);

  void Take(const SiteStep& step);

  // Call at the end of a run. Returns a warning for each attempt in which ranks began with the same
  // weights and diverged.
  std::vector<v1::Verdict> Judge() const;

  void Persist(Archive& archive) { archive(ranks_); }

 private:
  struct Rank {
    std::optional<double> before;
    std::map<int64_t, double> after;  // by step
    bool summed = false;
    void Persist(Archive& a) { a(before, after, summed); }
  };
  using Key = std::tuple<uint32_t, v1::Role, uint32_t>;  // attempt, role, rank

  std::map<Key, Rank> ranks_;
};

}  // namespace plumbline::analysis
