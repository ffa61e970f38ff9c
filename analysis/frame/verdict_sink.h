// Where verdicts go.
#pragma once

#include "plumbline/v1/finding.pb.h"

namespace plumbline::rules {

// Where a rule puts its verdicts. Verdict.rule, site.run and finding's rule, site and fingerprint
// are filled by the engine, and so are layer, op, steps and ranks where the rule leaves them empty:
// a rule that looks back over a window says which steps it speaks of.
class VerdictSink {
 public:
  virtual ~VerdictSink() = default;
  virtual void Add(v1::Verdict verdict) = 0;
};

}  // namespace plumbline::rules
