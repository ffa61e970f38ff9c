#include "analysis/drift/recurrence.h"

#include <bit>
#include <cmath>

#include "analysis/statistics/statistics.h"

namespace plumbline::analysis {

void Recurrence::BeginSequence(const RolloutSequence& sequence) {
  constexpr double kExact = 1e-6;  // coarser values are often equal by chance
  index_ = 0;
  usable_ = !sequence.rollout_grid.sixteen_bit() && sequence.rollout_grid.decimal <= kExact;
}

void Recurrence::Add(const RolloutToken& token, int64_t step) {
  constexpr double kSure = -0.05;  // values near 0 have few bits
  constexpr int64_t kForgotten = 64;
  if (!usable_ || index_++ >= kTokens || !(token.rollout < kSure)) return;
  const uint64_t key = ContextKeyOf(ContextKeyOf(static_cast<uint64_t>(token.token)) ^
                                    std::bit_cast<uint64_t>(token.rollout));
  if (slots_.empty()) slots_.resize(kSlots);
  Slot& slot = slots_[(key >> 20) % kSlots];
  if (slot.key != key) {
    const bool old = slot.hits == 0 ? step > slot.step : step > slot.step + kForgotten;
    if (slot.key == 0 || old) slot = {key, step, token.train, 0};
    return;
  }
  ++slot.hits;
  const double difference = token.train - slot.train;
  const double square = difference * difference;
  if (slot.step == step) {
    within_.Add(square);
    const double d = token.train - token.rollout;
    within_drift_.Add(d * d);
  } else {
    across_.Add(square);
  }
}

}  // namespace plumbline::analysis
