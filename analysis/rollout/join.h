// Brings the two halves of sampled sequences together: the rollout process sends log mu, the
// trainer log pi, in steps of their own. What comes whole is passed at once.
//
// Batches come out in the order of the trainer's steps, sequences in the order of their ids: both
// are fixed before a token is drawn, which the sequential tests need, and neither depends on the
// order in which evidence arrives. A half meets the half of its id of the same step; failing that,
// of another step within 64 steps whose tokens are the same. A trainer's step is handed out when
// all of its halves have met, or the rollout's steps have passed it by 64.
//
// Several rules share one join: the first that is given a step does the work, the others find it in
// SiteStep::cache, with the state that the next steps need. Rules must all take every step.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "analysis/frame/frame.h"
#include "analysis/rollout/sequence.h"
#include "base/archive.h"

namespace plumbline::rules {

// One trainer step of one site. Valid during the call that handed it out.
class RolloutBatch {
 public:
  struct Entry {
    const v1::LogprobsSequence* train;
    const v1::LogprobsSequence* rollout;  // the same for a whole sequence
    bool later_epoch;
    std::vector<std::shared_ptr<const v1::LogprobsSequence>> owned;  // what waited
  };

  std::string layer, op;
  uint32_t attempt = 0;
  int64_t step = 0;
  std::vector<uint32_t> ranks;  // the trainer's that sent sequences, sorted
  std::vector<Entry> entries;   // by id
  uint64_t unmatched = 0;       // halves of this step that were given up

  // Decodes one sequence after the other into the same memory. Sequences that cannot be decoded are
  // left out; the first one's reason ("bad-tensor: ...") is returned, else "".
  std::string ForEach(const std::function<void(const RolloutSequence&)>& visit) const;
};

// Of a run so far.
struct RolloutJoinCounts {
  uint64_t sequences = 0;       // handed out
  uint64_t given_up_train = 0;  // halves without a counterpart, here and below
  uint64_t given_up_rollout = 0;
  uint64_t waiting_train = 0;
  uint64_t waiting_rollout = 0;
  uint64_t empty = 0;  // sequences without log-probabilities of either side
  // The two sides' ids are under different keys, or only one side's are hashed: halves cannot meet.
  bool keys_differ = false;
  // keys_differ is found again.
  void Persist(Archive& a) {
    a(sequences, given_up_train, given_up_rollout, waiting_train, waiting_rollout, empty);
  }
};

class RolloutJoin {
 public:
  using Batches = std::shared_ptr<const std::vector<RolloutBatch>>;

  RolloutJoin();

  // What this step completed. Steps without log-probabilities give nothing.
  Batches Take(const SiteStep& step);
  // The rest, once no more steps come; halves that never met are given up. Every sharer gets the
  // same.
  Batches Finish();

  RolloutJoinCounts counts(const std::string& layer, const std::string& op) const;

  void Persist(Archive& archive);

  class State;

 private:
  std::shared_ptr<State> state_;
};

}  // namespace plumbline::rules
