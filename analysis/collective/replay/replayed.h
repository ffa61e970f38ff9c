// Which arithmetic made this result: every candidate replayed on the samples, the ones that explain
// all of them, and whether that proves it.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "analysis/collective/case/case.h"
#include "analysis/collective/replay/candidates.h"
#include "base/archive.h"
#include "plumbline/v1/finding.pb.h"

namespace plumbline::rules {

// The class of candidates that give the output's bits on every judged sample, and its rivals.
//
// Proof: every candidate of another family differs from the output on k >= ln(C 10^6) distinct
// samples, C the number of candidates (at least that of classes). A model that is not listed and
// differs from the accepted one on as many samples matches by luck with probability at most C e^-k.
// A parameter (start, direction, rounding, ...) is claimed when all of the class share it and every
// candidate with another value of it differs on as many samples. "The only match among the
// candidates" is all that is said: nothing is known of arithmetics that are not listed.
struct ReductionReplay {
  std::string name = "unexplained";  // a family, "indistinguishable" or "unexplained"
  bool proved = false;
  // The same but for compensated sums in the wire's dtype: a wide accumulation, or one of those.
  // Their results differ from the exact sum's, rounded once, on a share of about .2 / sqrt N
  // (Kahan) or less (Neumaier: N 2^-p) of samples, so that k of them seldom do; both are as good.
  bool class_proved = false;
  Parameters parameters;  // claimed; empty values are left out
  // The same of the class as a whole, claimed or not: what its members share.
  Parameters shared;
  std::set<std::string> families;  // in the class
  std::vector<int32_t> columns;    // samples judged: finite inputs
  int32_t aside = 0;               // samples with an input that is not finite
  int32_t distinct = 0;            // of the columns: those that repeat another tell nothing more
  int32_t matches = 0;
  int32_t discriminating = 0;  // samples on which the nearest other family differs
  int32_t needed = 0;          // k
  uint64_t candidates = 0;     // C
  std::string runner_up;       // in words; empty: there is none
  int32_t runner_up_matches = 0;
  std::string compensated;          // the nearest compensated sum, where accumulation is wide
  int32_t compensated_differs = 0;  // distinct samples on which it differs
  bool without_rings = false;       // too many ranks for rings and groups: nothing is proved
  // Every member of the class rounds partial sums of more than two addends to 16 bits or fewer.
  bool narrow_partials = false;

  // For simulations: one member, the first; and what it refers to. Unset where unexplained.
  bool explained = false;
  Arithmetic arithmetic;
  SumShape shape;
  std::shared_ptr<const SumShapes> shapes;

  std::string Words() const;  // "bf16 ring starting at rank 3"
  // Keys of the contract: model {name, dtype, ...}, matches, samples, discriminating, runner_up,
  // runner_up_matches; beside them needed, candidates, proved.
  void AddDetails(google::protobuf::Struct& details) const;
  // All but the shapes, which belong to the call's values.
  void Persist(Archive& a) {
    a(name, proved, class_proved, parameters, shared, families, columns, aside, distinct, matches);
    a(discriminating, needed, candidates, runner_up, runner_up_matches, compensated);
    a(compensated_differs, without_rings, narrow_partials, explained, arithmetic, shape);
  }
};

ReductionReplay ReplayReduction(const ReductionCase& c);

// The judged columns alone, nothing replayed.
ReductionReplay JudgedColumns(const ReductionCase& c);

}  // namespace plumbline::rules
