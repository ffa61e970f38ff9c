// The steps in which a rule looked at anything, for the pass that it gives at the end of a run.
#pragma once

#include <cstdint>

#include "base/archive.h"
#include "plumbline/v1/finding.pb.h"

namespace plumbline::analysis {

class StepLooks {
 public:
  // Steps come in ascending order, except in a later attempt: a step that is repeated counts once.
  void See(int64_t step) {
    if (count_ == 0) first_ = step;
    if (count_ > 0 && step <= last_) return;
    last_ = step;
    ++count_;
  }
  bool any() const { return count_ > 0; }
  // Sets the verdict's steps and its number of looks.
  void Put(v1::Verdict* verdict) const {
    verdict->mutable_site()->set_step_first(first_);
    verdict->mutable_site()->set_step_last(last_);
    verdict->set_looks(count_);
  }
  void Persist(Archive& archive) { archive(first_, last_, count_); }

 private:
  int64_t first_ = 0, last_ = 0;
  uint64_t count_ = 0;
};

}  // namespace plumbline::analysis
