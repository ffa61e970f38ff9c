// One sampled sequence with both sides' log-probabilities, joined token by token and checked.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/dtype.h"
#include "plumbline/v1/evidence.pb.h"

namespace plumbline::rules {

inline constexpr int64_t kNoLag = std::numeric_limits<int64_t>::min();
inline constexpr int64_t kNoVersion = std::numeric_limits<int64_t>::min();
inline constexpr double kNotRecorded = std::numeric_limits<double>::quiet_NaN();

// What the logged values of one column were rounded to: a 16-bit format where all of its finite
// values lie on that format's grid (the coarser one that holds them), else text of so many
// decimals, else nothing that shows.
struct ValueGrid {
  DType format = DType::kUnspecified;  // kBF16, kF16, or kUnspecified: on neither grid
  double decimal = 0;                  // half a unit of the text's last decimal; 0: not from text

  bool sixteen_bit() const { return format != DType::kUnspecified; }
  // The furthest that rounding to nearest can have moved `value`.
  double HalfUnit(double value) const;
};

struct RolloutToken {
  int64_t token = -1;                   // id; -1: not recorded
  double train = 0;                     // log pi; NaN or infinite where the record says so
  double rollout = 0;                   // log mu, likewise
  double behaviour = kNotRecorded;      // log pi_v: the trainer's, at the version that drew it
  double train_entropy = kNotRecorded;  // nats; NaN: not recorded, here and below
  double train_varentropy = kNotRecorded;
  double rollout_entropy = kNotRecorded;
  double rollout_varentropy = kNotRecorded;
  double advantage = kNotRecorded;
  int64_t lag = kNoLag;  // train version less the version of the weights that drew the token
  int64_t version = kNoVersion;  // of the weights that drew the token
  int64_t position = 0;
  int64_t turn = -1;       // of a conversation; -1: not recorded
  bool judged = true;      // not masked, and recorded on both sides
  bool same_token = true;  // false: the halves name different ids here
};

struct RolloutSequence {
  std::string id;
  std::string worker;
  int64_t step = 0;  // the trainer's
  ValueGrid train_grid, rollout_grid;
  ValueGrid train_entropy_grid, rollout_entropy_grid;
  ValueGrid rollout_varentropy_grid;
  v1::LogprobMode mode = v1::LOGPROB_MODE_ABSENT;
  double temperature = kNotRecorded;  // NaN: not said, here and for every number below
  double top_p = kNotRecorded;
  int64_t top_k = -1;  // -1: not said
  v1::LogprobsSequence::Selection selection = v1::LogprobsSequence::SELECTION_ABSENT;
  double kept_share = kNotRecorded;
  v1::LogprobsSequence::Source source = v1::LogprobsSequence::SOURCE_ABSENT;
  double rescore_k2 = kNotRecorded;
  double t_start = kNotRecorded, t_end = kNotRecorded;  // seconds
  int64_t cached_tokens = -1;
  int64_t train_version = kNoVersion;
  bool from_halves = false;          // the sides came apart
  bool later_epoch = false;          // these very tokens were seen before in this run
  uint64_t unpaired = 0;             // positions that one half alone holds
  uint64_t judged = 0;               // tokens to be judged
  uint64_t differing_ids = 0;        // judged tokens whose halves name different ids
  std::vector<RolloutToken> tokens;  // by ascending row of the trainer's half
};

// Joins two halves by position; `train` and `rollout` are the same message where a sequence came
// whole. Overwrites `out` and keeps its memory. `step` and `later_epoch` are the caller's to fill.
// FailedPrecondition "bad-tensor: ..." where a tensor's dtype, shape or bytes do not agree.
// Pure, thread-safe.
absl::Status DecodeRollout(const v1::LogprobsSequence& train, const v1::LogprobsSequence& rollout,
                           RolloutSequence* out);

}  // namespace plumbline::rules
