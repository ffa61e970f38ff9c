// The rollout probe: log-probabilities of sampled tokens, by sequence, of one side or both.
//
// Whole sequences are kept, selected by a hash of their id only: trainer and rollout process select
// the same ones without communication. Each side keeps the ids whose hash is below its threshold,
// so both sides have the ids below the lower threshold.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "base/tensor_view.h"
#include "plumbline/v1/evidence.pb.h"
#include "probes/calls/carried.h"

namespace plumbline::probes {

// As the trainer declared it (plumbline_logprobs_t); views and texts are borrowed. Columns have one
// shape, [T] or [B,S]; sequence_id, advantages, cached_tokens and times may be [B] if others are
// [B,S].
struct LogprobsCall {
  TensorView tokens, sequence_id, position, mask, rollout, train;
  TensorView rollout_entropy, rollout_varentropy, train_entropy, train_varentropy;
  TensorView versions, advantages, turns, cached_tokens, t_start, t_end, behaviour;
  std::string_view worker;
  struct Fields {
    double temperature = 0;  // NaN: not given, here and below
    double top_p = 0;
    double kept_share = 0;
    double rescore_k2 = 0;
    int64_t top_k = -1;          // -1: not given
    int64_t train_version = -1;  // -1: not given
    int32_t mode = 0;            // v1::LogprobMode
    int32_t selection = 0;       // v1::LogprobsSequence::Selection
    int32_t source = 0;          // v1::LogprobsSequence::Source
  } fields;
};

// Checks a call: all columns must be on one device, or on the host. Returns InvalidArgument with
// the column and what was expected.
absl::Status CheckCall(const LogprobsCall& call);
// Returns the device of a checked call's columns, < 0: the host.
int DeviceOf(const LogprobsCall& call);

// A call on a device that is measured on the host: the arguments of Measure, stored with it.
struct CarriedLogprobs {
  LogprobsCall call;
  uint64_t key = 0, threshold = 0;
};
size_t SlotBytes(const CarriedLogprobs& carried);
void StoreCall(const CarriedLogprobs& carried, std::byte* slot);
CarriedLogprobs LoadLogprobs(const std::byte* slot);
// Returns the copies that bring its columns (calls/carried.h); false if one cannot be copied.
bool Carry(const CarriedLogprobs& carried, std::vector<CarriedCopy>* copies);

// Returns the bytes of the call's columns.
uint64_t ColumnBytes(const LogprobsCall& call);

// The bytes that a site may still send: a burst at the start, then the budget of each step.
// Thread-safe.
class LogprobsBudget {
 public:
  static constexpr int64_t kBurst = int64_t{4} << 20;

  // Returns the share of ids of a call of `bytes` that is kept at this step, as a threshold on
  // their hash. `per_step`: bytes, on average.
  uint64_t Threshold(int64_t step, uint64_t bytes, uint64_t per_step);

 private:
  std::atomic<int64_t> credit_{kBurst};
  std::atomic<int64_t> last_step_{-1};
};

// Returns the hash of a sequence's id under the key of its site (a SampleKey of run, layer and op,
// step 0).
uint64_t SequenceHash(uint64_t key, int64_t id);

// Fills logprobs, sample_size and exercised with the sequences whose hash is at most `threshold`,
// in the order of their first rows. Rows with a negative id are padding.
absl::Status Measure(const LogprobsCall& call, uint64_t key, uint64_t threshold, v1::Evidence* out);

}  // namespace plumbline::probes
