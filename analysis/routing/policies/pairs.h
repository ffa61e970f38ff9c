// Inversions: a token refused by a full expert that admitted a later one, and how much the pairs
// are worth against every cause but capacity. docs/rules/causality/moe-future-leak.md.
#pragma once

#include <cstdint>
#include <vector>

#include "analysis/routing/call/call.h"

namespace plumbline::rules {

// Refused token n, admitted token m, same expert and pool.
struct RefusalPair {
  int32_t refused = -1;
  int32_t admitted = -1;
  int32_t expert = -1;
  int16_t rank = -1;
  bool found() const { return refused >= 0; }
};

struct Inversions {
  int64_t inversions = 0;      // refused choices with a later admission there in their own sequence
  int64_t cross_sequence = 0;  // refused choices at an expert that kept another sequence's token
  RefusalPair any;    // same sequence, refused earlier than admitted, whatever the choice ranks
  RefusalPair batch;  // of two sequences
  double batch_bits = 0;
};

// Needs c.ordered().
Inversions FindInversions(const RoutingCase& c, const Saturation& s);

// A pair of one choice rank, and the bits against refusals of the token's own.
struct PairCertificate {
  RefusalPair pair;
  double bits = 0;
  double raw_bits = 0;  // no refusal left out
};

// -N log2(1 - f): a cause other than capacity would have hit the N choices of experts below
// capacity (all kept) at the rate f at which it refused the choices of full experts that precede a
// later admission in their own sequence. Refusals below every admission of their cell by a score
// may be an own threshold's and do not count; each score is one hypothesis, the one that leaves
// least is granted. The choice rank with most bits. Needs c.ordered().
PairCertificate CertifyPairs(const RoutingCase& c, const Saturation& s);

}  // namespace plumbline::rules
