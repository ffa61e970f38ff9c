// Finds the arithmetic of a result. Replays every candidate on the samples, keeps the candidates
// that explain all samples, and decides whether that is a proof.
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

namespace plumbline::analysis {

// The class of candidates that give the output's bits on every judged sample, and its rivals.
//
// Proof: every candidate of another family differs from the output on k >= ln(C 10^6) distinct
// samples, where C is the number of candidates (at least that of classes). An unlisted model that
// differs from the accepted one on as many samples matches by chance with probability at most C
// e^-k. A parameter (start, direction, rounding, ...) is claimed if all candidates of the class
// have the same value, and every candidate with another value differs on as many samples. The claim
// is only "the only match among the candidates": nothing is known about arithmetics that are not
// listed.
struct ReductionReplay {
  std::string name = "unexplained";  // a family, "indistinguishable" or "unexplained"
  bool proved = false;
  // Proved up to compensated sums: it is a wide accumulation, or a compensated sum in the wire's
  // dtype. Results of the latter differ from the exact sum, rounded once, only on a share of about
  // .2 / sqrt N (Kahan) or N 2^-p (Neumaier) of the samples. So they seldom differ on k samples.
  // Both are equally accurate.
  bool class_proved = false;
  Parameters parameters;  // claimed parameters; empty values are left out
  // Parameters that are equal in all members of the class, claimed or not.
  Parameters shared;
  std::set<std::string> families;  // families in the class
  std::vector<int32_t> columns;    // judged samples, which have finite inputs
  int32_t aside = 0;               // number of samples with a non-finite input
  int32_t distinct = 0;            // number of distinct columns; repeated ones add no information
  int32_t matches = 0;
  int32_t discriminating = 0;  // number of samples on which the closest other family differs
  int32_t needed = 0;          // k
  uint64_t candidates = 0;     // C
  std::string runner_up;       // name of the closest other candidate; empty if there is none
  int32_t runner_up_matches = 0;
  std::string compensated;          // the closest compensated sum, if accumulation is wide
  int32_t compensated_differs = 0;  // number of distinct samples on which this sum differs
  // There are too many ranks to try rings and groups, so nothing is proved.
  bool without_rings = false;
  // True if every member rounds partial sums of more than two addends to 16 bits or fewer.
  bool narrow_partials = false;

  // For simulations: the first member of the class, and the data that it refers to. Not set if
  // `explained` is false.
  bool explained = false;
  Arithmetic arithmetic;
  SumShape shape;
  std::shared_ptr<const SumShapes> shapes;

  std::string Words() const;  // Returns a text such as "bf16 ring starting at rank 3".
  // Adds the keys of the contract: model {name, dtype, ...}, matches, samples, discriminating,
  // runner_up, runner_up_matches. Also adds needed, candidates and proved.
  void AddDetails(google::protobuf::Struct& details) const;
  // Stores all members except the shapes, which belong to the call's values.
  void Persist(Archive& a) {
    a(name, proved, class_proved, parameters, shared, families, columns, aside, distinct, matches);
    a(discriminating, needed, candidates, runner_up, runner_up_matches, compensated);
    a(compensated_differs, without_rings, narrow_partials, explained, arithmetic, shape);
  }
};

ReductionReplay ReplayReduction(const ReductionCase& c);

// Returns the judged columns, without a replay.
ReductionReplay JudgedColumns(const ReductionCase& c);

}  // namespace plumbline::analysis
