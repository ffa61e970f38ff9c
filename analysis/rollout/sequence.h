// One sampled sequence with both sides' log-probabilities, joined token by token and checked.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/dtype.h"
#include "plumbline/v1/evidence.pb.h"

namespace plumbline::analysis {

inline constexpr int64_t kNoLag = std::numeric_limits<int64_t>::min();
inline constexpr int64_t kNoVersion = std::numeric_limits<int64_t>::min();
inline constexpr double kNotRecorded = std::numeric_limits<double>::quiet_NaN();

// The rounding of one column's logged values. If all finite values are on the grid of a 16-bit
// format, it is that format (the coarser one that holds them). Otherwise it may be text with a
// number of decimals, or unknown.
struct ValueGrid {
  DType format = DType::kUnspecified;  // kBF16, kF16, or kUnspecified if on neither grid
  // Half a unit of the text's last decimal; 0 if values are not from text.
  double decimal = 0;

  bool sixteen_bit() const { return format != DType::kUnspecified; }
  // Returns the largest change of `value` that rounding to nearest can cause.
  double HalfUnit(double value) const;
};

struct RolloutToken {
  int64_t token = -1;  // id; -1 if not recorded
  double train = 0;    // log pi; may be NaN or infinite, as in the record
  double rollout = 0;  // log mu; may be NaN or infinite
  // Log pi_v: log-probability by the trainer with the version that drew the token.
  double behaviour = kNotRecorded;
  double train_entropy = kNotRecorded;  // nats; NaN if not recorded, also for the next members
  double train_varentropy = kNotRecorded;
  double rollout_entropy = kNotRecorded;
  double rollout_varentropy = kNotRecorded;
  double advantage = kNotRecorded;
  int64_t lag = kNoLag;  // train version minus the version of the weights that drew the token
  int64_t version = kNoVersion;  // version of the weights that drew the token
  int64_t position = 0;
  int64_t turn = -1;   // turn of a conversation; -1 if not recorded
  bool judged = true;  // the token is not masked, and recorded on both sides
  // True if the token is masked, has values of both sides that are no placeholders (0, or equal in
  // neighbours), and is not in the prompt (a masked start of a sequence that has judged tokens). A
  // loss may have rejected it by its ratio.
  bool masked_with_values = false;
  bool same_token = true;  // false if the halves have different ids here
};

struct RolloutSequence {
  std::string id;
  std::string worker;
  int64_t step = 0;  // step of the trainer
  ValueGrid train_grid, rollout_grid;
  ValueGrid train_entropy_grid, rollout_entropy_grid;
  ValueGrid rollout_varentropy_grid;
  v1::LogprobMode mode = v1::LOGPROB_MODE_ABSENT;
  double temperature = kNotRecorded;  // NaN if not declared, like every number below
  double top_p = kNotRecorded;
  int64_t top_k = -1;  // -1 if not declared
  v1::LogprobsSequence::Selection selection = v1::LogprobsSequence::SELECTION_ABSENT;
  double kept_share = kNotRecorded;
  v1::LogprobsSequence::Source source = v1::LogprobsSequence::SOURCE_ABSENT;
  double rescore_k2 = kNotRecorded;
  double t_start = kNotRecorded, t_end = kNotRecorded;  // seconds
  int64_t cached_tokens = -1;
  int64_t train_version = kNoVersion;
  bool from_halves = false;          // the two sides arrived separately
  bool later_epoch = false;          // the same tokens were seen before in this run
  bool copy = false;                 // the same tokens were seen before with another id
  uint64_t unpaired = 0;             // positions that only one half has
  uint64_t judged = 0;               // number of tokens to judge
  uint64_t masked_with_values = 0;   // number of tokens with masked_with_values
  uint64_t differing_ids = 0;        // judged tokens whose halves have different ids
  std::vector<RolloutToken> tokens;  // in the order of the trainer's rows
};

// Joins two halves by position. For a whole sequence, `train` and `rollout` are the same message.
// Overwrites `out` but keeps its memory. The caller must set `step`, `later_epoch` and `copy`.
// Returns FailedPrecondition "bad-tensor: ..." if a tensor's dtype, shape and bytes do not agree.
// Pure, thread-safe.
absl::Status DecodeRollout(const v1::LogprobsSequence& train, const v1::LogprobsSequence& rollout,
                           RolloutSequence* out);

}  // namespace plumbline::analysis
