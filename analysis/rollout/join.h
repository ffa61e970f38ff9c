// Joins the two halves of sampled sequences. The rollout process sends log mu and the trainer log
// pi, each in its own steps. A sequence that arrives whole is passed on at once.
//
// Batches are returned in the order of the trainer's steps, and sequences in the order of their
// ids. Both orders are fixed before a token is drawn, as the sequential tests require. Neither
// depends on the order in which evidence arrives. A half matches the half with its id in the same
// step. If there is none, it matches one of another step within 64 steps that has the same tokens.
// A trainer's step is released when all of its halves have matched, or when the rollout's steps are
// 64 ahead.
//
// Several rules share one join. The first rule that receives a step does the work. The others find
// the result in SiteStep::cache, with the state for the next steps. All rules must take every step.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "analysis/frame/frame.h"
#include "analysis/rollout/sequence.h"
#include "base/archive.h"

namespace plumbline::analysis {

// One step of the trainer at one site. Valid during the call that returned it.
class RolloutBatch {
 public:
  struct Entry {
    const v1::LogprobsSequence* train;
    const v1::LogprobsSequence* rollout;  // equal to `train` for a whole sequence
    bool later_epoch;
    bool copy;  // a copy of a sequence with another id
    std::vector<std::shared_ptr<const v1::LogprobsSequence>> owned;  // owns the halves that waited
  };

  std::string layer, op;
  uint32_t attempt = 0;
  int64_t step = 0;
  std::vector<uint32_t> ranks;  // trainer ranks that sent sequences, sorted
  std::vector<Entry> entries;   // sorted by id
  uint64_t unmatched = 0;       // halves of this step that were dropped

  // Decodes the sequences one after another into the same memory, and calls `visit`. Skips a
  // sequence that cannot be decoded. Returns the reason for the first such sequence ("bad-tensor:
  // ..."), or "".
  std::string ForEach(const std::function<void(const RolloutSequence&)>& visit) const;
};

// Counters over the run so far.
struct RolloutJoinCounts {
  uint64_t sequences = 0;       // number of released sequences
  uint64_t given_up_train = 0;  // halves without a counterpart, like the next members
  uint64_t given_up_rollout = 0;
  uint64_t waiting_train = 0;
  uint64_t waiting_rollout = 0;
  uint64_t empty = 0;  // sequences without log-probabilities on either side
  // True if the ids of the two sides are hashed with different keys, or if only one side's ids are
  // hashed. Halves then cannot match.
  bool keys_differ = false;
  // keys_differ is recomputed.
  void Persist(Archive& a) {
    a(sequences, given_up_train, given_up_rollout, waiting_train, waiting_rollout, empty);
  }
};

class RolloutJoin {
 public:
  using Batches = std::shared_ptr<const std::vector<RolloutBatch>>;

  RolloutJoin();

  // Returns the batches that this step completed. Returns none if the step has no
  // log-probabilities.
  Batches Take(const SiteStep& step);
  // Returns the remaining batches at the end of the run, and drops halves without a match. A second
  // call returns those that were added since.
  std::vector<RolloutBatch> Finish();

  // Returns (layer, op) of each site that had evidence.
  std::vector<std::pair<std::string, std::string>> sites() const;
  RolloutJoinCounts counts(const std::string& layer, const std::string& op) const;

  void Persist(Archive& archive);

  class State;

 private:
  std::shared_ptr<State> state_;
};

}  // namespace plumbline::analysis
