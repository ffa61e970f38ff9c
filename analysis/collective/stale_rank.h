// Finds the one rank that adds its values of an earlier step.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "analysis/collective/analysis.h"
#include "analysis/collective/replaced_rank.h"
#include "base/archive.h"
#include "plumbline/v1/batch.pb.h"

namespace plumbline::analysis {

struct StaleRank : ReplacedRank {
  int64_t step = 0;  // of the values
};

// The inputs of the last step of each call, up to 256 elements a call and 8 MiB in all; further
// calls are not kept.
class EarlierInputs {
 public:
  // Role, layer, op, group, and the number of the call in the group and step.
  using Place = std::tuple<v1::Role, std::string, std::string, std::string, uint32_t>;

  // Returns the rank whose values of the kept step, in place of the recorded ones, give every
  // result at the elements that both steps recorded.
  StaleRank Find(const Place& place, const ReductionAnalysis& a, int64_t step) const;
  void Keep(const Place& place, const ReductionAnalysis& a, int64_t step);

  void Persist(Archive& a) { a(kept_, values_); }

 private:
  static constexpr size_t kMostElements = 256;
  static constexpr uint64_t kMostValues = 1 << 21;

  struct Kept {
    int64_t step = 0;
    int ranks = 0;
    std::vector<uint64_t> offsets;
    std::vector<float> inputs;  // [N, elements]
    void Persist(Archive& a) { a(step, ranks, offsets, inputs); }
  };

  std::map<Place, Kept> kept_;
  uint64_t values_ = 0;
};

}  // namespace plumbline::analysis
