// One collective, as its ranks saw it: what each handed in and what came back, at sampled elements.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/dtype.h"
#include "rules/rule.h"

namespace plumbline::rules {

// The items of a step that are one call: equal (group, sequence number), or where no number is
// known equal (group, n-th call of the step). Sorted by group rank. Pointers as in the step.
struct JoinedReduction {
  std::string group;
  uint64_t sequence = 0;  // or the call's number
  bool sequence_known = false;
  uint32_t call = 0;  // of the first item
  std::vector<Item> items;
  uint32_t size = 0;                 // N; 0: not known
  std::vector<uint32_t> missing;     // group ranks that did not report; of the world: ranks
  std::vector<uint32_t> sampleless;  // ranks that reported without a sample
  std::string ambiguous;             // "short-id: sentence": items that cannot be one call

  const v1::ReductionCall& call_of(size_t i) const { return items[i].evidence->reduction().call(); }
  bool has_sample() const { return sampleless.size() < items.size(); }
};

// Every call of the step in the order (group, sequence), running sums of one rank left out.
// Computed once a step (step.shared).
std::shared_ptr<const std::vector<JoinedReduction>> JoinReductions(const SiteStep& step);

// Decoded samples of one call. Values are in the dtypes' own precision, held as doubles.
struct ReductionCase {
  int ranks = 0;    // N
  int samples = 0;  // m
  DType input_dtype = DType::kUnspecified;
  DType output_dtype = DType::kUnspecified;
  DType wire_dtype = DType::kUnspecified;  // as declared, else the inputs'
  bool wire_declared = false;
  std::vector<double> inputs;     // [N,m], rows by group rank
  std::vector<double> output;     // [m], of the first rank
  std::vector<uint64_t> offsets;  // [m]
  bool offsets_given = false;
  uint64_t count = 0;        // elements of the buffer; 0: not known
  bool count_given = false;  // else taken from m where all of the buffer seems to be here
  v1::ReductionCall::Op op = v1::ReductionCall::OP_SUM;
  std::vector<uint32_t> ring_order;  // N, or N a channel one after the other; empty: not said
  uint32_t channels = 0;
  uint64_t chunk = 0;
  std::string algorithm;
  std::string transport;
  // Ranks whose output is not the first one's (NaN equals NaN, zeros are equal), by number.
  std::vector<uint32_t> differing_ranks;
  int64_t first_difference = -1;  // sample
  std::vector<std::string> assumptions;

  bool average() const { return op == v1::ReductionCall::OP_AVG; }
  double input(int rank, int sample) const {
    return inputs[static_cast<size_t>(rank) * static_cast<size_t>(samples) +
                  static_cast<size_t>(sample)];
  }
  // The dtype whose one rounding nobody can avoid: the narrower of wire and output.
  DType result_dtype() const;
};

// FailedPrecondition with an inconclusive reason ("short-id: sentence") where the call cannot be
// judged: missing ranks (named), ranks that disagree, malformed tensors, no samples.
absl::StatusOr<ReductionCase> DecodeReduction(const JoinedReduction& joined);

// What ranks of one call disagree on: dtype, count, op or root; empty: nothing.
struct ReductionMismatch {
  std::string what;                 // "count"
  std::vector<std::string> values;  // of each item, in words
  std::vector<uint32_t> ranks;      // of each item
};
std::vector<ReductionMismatch> FindMismatches(const JoinedReduction& joined);

}  // namespace plumbline::rules
