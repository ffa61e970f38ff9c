// The first value that is no number of a step, with all that is told of it: kept until it is known
// whether a loss scale backed off from it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "analysis/frame/frame.h"
#include "analysis/tensor/non_finite_trace.h"
#include "base/archive.h"

namespace plumbline::rules {

struct NonFiniteSighting {
  int64_t step = 0;
  Observation first;
  std::optional<Observation> before;  // what its rank observed last before it
  std::vector<uint32_t> ranks;
  size_t finite_ranks = 0;
  bool ordered = false;
  bool apart = false;
  size_t sites = 0;
  std::optional<int64_t> finite_step;    // when this site was last looked at before, and finite
  std::optional<int64_t> finite_weight;  // the same of the whole weight at a step's end
  // What was looked at before it, and what was not; of a weight, which of its moments have it too.
  std::string in_front;

  void Persist(Archive& a) {
    a(step, first, before, ranks, finite_ranks, ordered, apart, sites, finite_step);
    a(finite_weight, in_front);
  }

  // "rank 3 was", "ranks 0-3 were alike".
  std::string WhoText() const;
  // Who else was there, what came before it, and what is not known of that: sentences.
  std::string HistoryText() const;
  // "unknown" where nothing tells.
  std::string Cause(bool backed_off) const;
  double Confidence(bool backed_off) const;
  // Place, witness, details and assumptions of its finding.
  void Fill(v1::Verdict& verdict) const;

 private:
  bool WrittenBetweenSteps() const;
};

}  // namespace plumbline::rules
