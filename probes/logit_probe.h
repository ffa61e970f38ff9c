// The logits probe: a sample of rows of the trainer's and the rollout's logits, compared whole. A
// few small rows are copied on the caller's thread and measured on the drain thread; large ones
// are measured where they are, on the caller's. Steps that keep no sample measure nothing.
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
  LogitInput input;  // whole, or, where `gathered`, the rows alone; absent where none is measured
  TensorView rows;   // [m] u64, of the whole: which are measured; absent: none
  struct Fields {
    double temperature = 0;  // NaN: not said
    uint64_t vocabulary = 0;
    uint64_t rows_seen = 0;  // of the whole
    int32_t mode = 0;        // v1::LogprobMode
    int32_t train_dtype = 0, rollout_dtype = 0;
    bool gathered = false;
    bool exercised = false;  // there are rows
  } fields;
};

// Rows that one call measures: at most 64, and so few that their logits are at most 2^20 a side
// (some 30 ms: bench_logit_pair).
inline constexpr uint32_t kLogitRows = 64;
inline constexpr int64_t kLogitsMeasured = int64_t{1} << 20;
// Bytes of raw rows that a call keeps beside them.
inline constexpr uint64_t kLogitWitnessBytes = uint64_t{128} << 10;

// InvalidArgument names the tensor and what was expected.
absl::Status CheckCall(const LogitsCall& call);

// What a sampled call refers to beyond its call: kept from call to call.
struct LogitScratch {
  std::vector<uint64_t> rows;
  std::vector<std::byte> memory;
};

// Makes the call's tensors those that the step measures; none where it keeps no sample. CheckCall
// was OK. The call then refers to `scratch`.
void Sample(const MeasureOptions& options, LogitScratch* scratch, LogitsCall* call);

// The same of logits on a device: the call becomes one of the rows alone, and `copies` what brings
// them (calls/carried.h).
void Carry(const MeasureOptions& options, LogitScratch* scratch, LogitsCall* call,
           std::vector<CarriedCopy>* copies);

// As of a checked call, before Sample.
uint64_t SampleBytes(const LogitsCall& call);
uint64_t SummaryBytes(const LogitsCall& call);

size_t SlotBytes(const LogitsCall& call);
void StoreCall(const LogitsCall& call, std::byte* slot);
LogitsCall LoadLogitsCall(const std::byte* slot);

// Fills logits, sample_size (rows measured) and exercised. InvalidArgument: a token beyond the
// vocabulary.
absl::Status Measure(const LogitsCall& call, const MeasureOptions& options, v1::Evidence* out);

}  // namespace plumbline::probes
