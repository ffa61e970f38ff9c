// Finds inversions: a full expert refused a token and admitted a later one. Computes how strong the
// pairs are as evidence against every cause but capacity. docs/rules/causality/moe-future-leak.md.
#pragma once

#include <cstdint>
#include <vector>

#include "analysis/routing/call/call.h"

namespace plumbline::analysis {

// Refused token n and admitted token m of the same expert and pool.
struct RefusalPair {
  int32_t refused = -1;
  int32_t admitted = -1;
  int32_t expert = -1;
  int16_t rank = -1;
  bool found() const { return refused >= 0; }
};

struct Inversions {
  // Refused choices with a later admission at that expert in their own sequence.
  int64_t inversions = 0;
  int64_t cross_sequence = 0;  // refused choices at an expert that kept another sequence's token
  RefusalPair any;             // same sequence, refused earlier than admitted, for any choice ranks
  RefusalPair batch;           // the same, of two sequences
  double batch_bits = 0;
};

// Requires c.ordered().
Inversions FindInversions(const RoutingCase& c, const Saturation& s);

// A pair of one choice rank, and the bits against a token's own refusals.
struct PairCertificate {
  RefusalPair pair;
  double bits = 0;
  double raw_bits = 0;  // without excused refusals
};

// Computes -N log2(1 - f). Full experts refused choices at the rate f, counting choices that
// precede a later admission in their own sequence. A cause other than capacity would have refused
// the N choices of experts below capacity at that rate too, but all were kept. If a score puts a
// refusal below every admission of its cell, an own threshold may explain it, so it does not count.
// Each score is one hypothesis; the one that leaves fewest bits is assumed. Returns the choice rank
// with most bits. Requires c.ordered().
PairCertificate CertifyPairs(const RoutingCase& c, const Saturation& s);

}  // namespace plumbline::analysis
