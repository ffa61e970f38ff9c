// The logits probe: compares a sample of rows of the trainer's and the rollout's logits completely.
// A few small rows are copied on the caller's thread and measured on the drain thread; large ones
// are measured in place, on the caller's thread. Steps without a sample measure nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "kernels/logits/pair.h"
#include "plumbline/v1/evidence.pb.h"
#include "probes/calls/carried.h"
#include "probes/calls/measure.h"

namespace plumbline::probes {

// As the trainer declared it (plumbline_logits_t); views are borrowed.
struct LogitsCall {
  LogitInput input;  // the whole tensors or, if `gathered`, only the rows; absent if no row is
                     // measured
  TensorView rows;   // [m] u64, of the whole: the measured rows; absent: none
  struct Fields {
    double temperature = 0;  // NaN: not given
    uint64_t vocabulary = 0;
    uint64_t rows_seen = 0;  // number of rows of the whole tensors
    int32_t mode = 0;        // v1::LogprobMode
    int32_t train_dtype = 0, rollout_dtype = 0;
    bool gathered = false;
    bool exercised = false;  // there are rows
  } fields;
};

// Rows that one call measures: at most 64, and so few that they have at most 2^20 logits per side
// (some 30 ms: bench_logit_pair).
inline constexpr uint32_t kLogitRows = 64;
inline constexpr int64_t kLogitsMeasured = int64_t{1} << 20;
// Bytes of raw rows that a call also keeps.
inline constexpr uint64_t kLogitWitnessBytes = uint64_t{128} << 10;

// Checks a call. Returns InvalidArgument with the tensor and what was expected.
absl::Status CheckCall(const LogitsCall& call);

// Memory that a sampled call refers to; reused from call to call.
struct LogitScratch {
  std::vector<uint64_t> rows;
  std::vector<std::byte> memory;
};

// Replaces the call's tensors by those that the step measures. If the step keeps no sample, the
// call then has none. CheckCall was OK. The call then refers to `scratch`.
void Sample(const MeasureOptions& options, LogitScratch* scratch, LogitsCall* call);

// Does the same for logits on a device: the call has only the rows, and `copies` bring them
// (calls/carried.h).
void Carry(const MeasureOptions& options, LogitScratch* scratch, LogitsCall* call,
           std::vector<CarriedCopy>* copies);

// For a checked call, before Sample.
uint64_t SampleBytes(const LogitsCall& call);
uint64_t SummaryBytes(const LogitsCall& call);

size_t SlotBytes(const LogitsCall& call);
void StoreCall(const LogitsCall& call, std::byte* slot);
LogitsCall LoadLogitsCall(const std::byte* slot);

// Fills logits, sample_size (rows measured) and exercised. Returns InvalidArgument for a token
// beyond the vocabulary.
absl::Status Measure(const LogitsCall& call, const MeasureOptions& options, v1::Evidence* out);

}  // namespace plumbline::probes
