// Receives verdicts.
#pragma once

#include "plumbline/v1/finding.pb.h"

namespace plumbline::analysis {

// Interface to which a rule adds its verdicts. The engine sets Verdict.rule, site.run, and the
// finding's rule, site and fingerprint. If a rule leaves layer, op, steps and ranks empty, it also
// sets these. A rule that judges a window must set its steps.
class VerdictSink {
 public:
  virtual ~VerdictSink() = default;
  virtual void Add(v1::Verdict verdict) = 0;
};

}  // namespace plumbline::analysis
