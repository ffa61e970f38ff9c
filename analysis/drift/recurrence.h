// Compares log pi of tokens that the engine scored with the same bits: the same token in the same
// context. Within a step, a trainer without random layers gives equal values again. Over steps, an
// engine whose weights are updated rarely gives the same bits again, so that values of different
// steps show weights that stand in the engine while the trainer learns. Uses 160 KB. Not
// thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "analysis/drift/moments.h"
#include "analysis/rollout/rollout.h"
#include "base/archive.h"

namespace plumbline::analysis {

class Recurrence {
 public:
  static constexpr uint64_t kFewest = 64;

  void BeginSequence(const RolloutSequence& sequence);
  // Takes a judged token of lag 0 with finite values. Uses the first kTokens of a sequence, whose
  // contexts recur with the prompts, and only values that are rarely equal by chance.
  void Add(const RolloutToken& token, int64_t step);

  // Squared differences of log pi for one token and context within one step, and the d^2 of these
  // tokens.
  uint64_t within() const { return within_.count; }
  double within_square() const { return within_.count > 0 ? within_.mean : kNotRecorded; }
  double within_drift() const { return within_drift_.mean; }
  // The same for two different steps.
  uint64_t across() const { return across_.count; }
  double across_square() const { return across_.count > 0 ? across_.mean : kNotRecorded; }

  // index_ and usable_ belong to one sequence, so they are not stored.
  void Persist(Archive& a) { a(slots_, within_, within_drift_, across_); }

 private:
  static constexpr size_t kSlots = 4096, kTokens = 4;
  struct Slot {
    uint64_t key = 0;
    int64_t step = 0;
    double train = 0;
    uint64_t hits = 0;
    void Persist(Archive& a) { a(key, step, train, hits); }
  };

  std::vector<Slot> slots_;
  DriftCell within_, within_drift_, across_;
  size_t index_ = 0;     // of the open sequence
  bool usable_ = false;  // of the open sequence
};

}  // namespace plumbline::analysis
