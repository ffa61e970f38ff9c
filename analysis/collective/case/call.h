// One collective as its ranks observed it: inputs and outputs at sampled elements.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "analysis/collective/case/join.h"
#include "base/archive.h"
#include "base/dtype.h"

namespace plumbline::analysis {

// Facts about one call, without its values.
struct ReductionFrame {
  int ranks = 0;    // N
  int samples = 0;  // m
  DType input_dtype = DType::kUnspecified;
  DType output_dtype = DType::kUnspecified;
  // Declared dtype; if none is declared, the dtype of the inputs.
  DType wire_dtype = DType::kUnspecified;
  bool wire_declared = false;
  bool offsets_given = false;
  uint64_t count = 0;  // number of elements of the buffer; 0 if not known
  // If false, `count` is m if the record seems to have the whole buffer.
  bool count_given = false;
  v1::ReductionCall::Op op = v1::ReductionCall::OP_SUM;
  std::vector<uint32_t>
      // N entries, or N entries per channel, one channel after another; empty if not declared.
      ring_order;
  uint32_t channels = 0;
  uint64_t chunk = 0;
  std::string algorithm;
  std::string transport;
  // Ranks whose output differs from that of the first rank, ascending. NaN equals NaN, and +0
  // equals -0.
  std::vector<uint32_t> differing_ranks;
  int64_t first_difference = -1;  // index of the recorded sample with the first difference
  std::vector<std::string> assumptions;

  bool average() const { return op == v1::ReductionCall::OP_AVG; }
  // Returns the narrower dtype of wire and output. At least one rounding to it is unavoidable.
  DType result_dtype() const;

  void Persist(Archive& a) {
    a(ranks, samples, input_dtype, output_dtype, wire_dtype, wire_declared, offsets_given, count);
    a(count_given, op, ring_order, channels, chunk, algorithm, transport, differing_ranks);
    a(first_difference, assumptions);
  }
};

// Decoded samples of one call. Values have the precision of their dtypes, stored as doubles.
struct ReductionCase : ReductionFrame {
  std::vector<double> inputs;     // [N,m], rows by group rank
  std::vector<double> output;     // [m], of output_rank, the first rank
  std::vector<uint64_t> offsets;  // [m]
  // A result that differs from `output`, of the first rank that has it.
  struct Other {
    uint32_t rank = 0;
    std::vector<double> values;  // [m]
  };
  uint32_t output_rank = 0;
  static constexpr size_t kMostOthers = 64;
  std::vector<Other> others;
  // Index in `others` of the result that a strict majority of the ranks has. -1 if there is no
  // majority, or if it has `output`.
  int majority = -1;
  // True if a strict majority of the ranks has `output`. False if only one result was recorded.
  bool output_majority = false;

  double input(int rank, int sample) const {
    return inputs[static_cast<size_t>(rank) * static_cast<size_t>(samples) +
                  static_cast<size_t>(sample)];
  }
};

// Returns true if `algorithm` names something other than a plain sum ("powersgd", "one-bit",
// "top-k", "int8-scaled", "fp8-scaled"), in any case and with or without hyphens.
bool IsCompression(std::string_view algorithm);

// Decodes one call. If the call cannot be judged, returns FailedPrecondition with an inconclusive
// reason ("short-id: sentence"): missing ranks (named), ranks that disagree, malformed tensors, no
// samples. Compressed values are also such a reason, unless `compressed_too`.
absl::StatusOr<ReductionCase> DecodeReduction(const JoinedReduction& joined,
                                              bool compressed_too = false);

}  // namespace plumbline::analysis
