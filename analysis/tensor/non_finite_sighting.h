// The first non-finite value of a step and what is known about it. Kept until it is known whether a
// loss scale backed off because of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "analysis/frame/frame.h"
#include "analysis/tensor/non_finite_trace.h"
#include "base/archive.h"

namespace plumbline::analysis {

struct NonFiniteSighting {
  int64_t step = 0;
  Observation first;
  std::optional<Observation> before;  // the previous observation of its rank
  std::vector<uint32_t> ranks;
  size_t finite_ranks = 0;
  bool ordered = false;
  bool apart = false;
  size_t sites = 0;
  std::optional<int64_t> finite_step;    // the last step in which this site was observed and finite
  std::optional<int64_t> finite_weight;  // the same for the whole weight at a step's end
  // Which values were observed before it, and which were not. For a weight: which of its moments
  // have such a value too.
  std::string in_front;

  void Persist(Archive& a) {
    a(step, first, before, ranks, finite_ranks, ordered, apart, sites, finite_step);
    a(finite_weight, in_front);
  }

  // Returns "rank 3 was" or "ranks 0-3 were alike".
  std::string WhoText() const;
  // Returns sentences about the other ranks, what came before, and what is not known.
  std::string HistoryText() const;
  // Returns "unknown" if nothing indicates a cause.
  std::string Cause(bool backed_off) const;
  double Confidence(bool backed_off) const;
  // Fills the place, witness, details and assumptions of the finding.
  void Fill(v1::Verdict& verdict) const;

 private:
  bool WrittenBetweenSteps() const;
};

}  // namespace plumbline::analysis
