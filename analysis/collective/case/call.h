// One collective, as its ranks saw it: what each handed in and what came back, at sampled elements.
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

namespace plumbline::rules {

// What is known of one call beside its values.
struct ReductionFrame {
  int ranks = 0;    // N
  int samples = 0;  // m
  DType input_dtype = DType::kUnspecified;
  DType output_dtype = DType::kUnspecified;
  DType wire_dtype = DType::kUnspecified;  // as declared, else the inputs'
  bool wire_declared = false;
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
  int64_t first_difference = -1;  // recorded sample
  std::vector<std::string> assumptions;

  bool average() const { return op == v1::ReductionCall::OP_AVG; }
  // The dtype whose one rounding nobody can avoid: the narrower of wire and output.
  DType result_dtype() const;

  void Persist(Archive& a) {
    a(ranks, samples, input_dtype, output_dtype, wire_dtype, wire_declared, offsets_given, count);
    a(count_given, op, ring_order, channels, chunk, algorithm, transport, differing_ranks);
    a(first_difference, assumptions);
  }
};

// Decoded samples of one call. Values are in the dtypes' own precision, held as doubles.
struct ReductionCase : ReductionFrame {
  std::vector<double> inputs;     // [N,m], rows by group rank
  std::vector<double> output;     // [m], of output_rank: the first
  std::vector<uint64_t> offsets;  // [m]
  // Results that are not `output`, of the first ranks that have one: what each of them got.
  struct Other {
    uint32_t rank = 0;
    std::vector<double> values;  // [m]
  };
  uint32_t output_rank = 0;
  static constexpr size_t kMostOthers = 64;
  std::vector<Other> others;
  // A strict majority of the ranks has this one of `others`; -1: none has, or `output` is theirs.
  int majority = -1;
  bool output_majority = false;  // a strict majority has `output`; false where one result came

  double input(int rank, int sample) const {
    return inputs[static_cast<size_t>(rank) * static_cast<size_t>(samples) +
                  static_cast<size_t>(sample)];
  }
};

// Words for what is no plain sum ("powersgd", "one-bit", "top-k", "int8-scaled", "fp8-scaled"), in
// any spelling of case and hyphens.
bool IsCompression(std::string_view algorithm);

// FailedPrecondition with an inconclusive reason ("short-id: sentence") where the call cannot be
// judged: missing ranks (named), ranks that disagree, malformed tensors, no samples; and where
// values travel compressed, unless these are wanted too.
absl::StatusOr<ReductionCase> DecodeReduction(const JoinedReduction& joined,
                                              bool compressed_too = false);

}  // namespace plumbline::rules
