#include "analysis/batches/batch_history.h"

#include <algorithm>

namespace plumbline::analysis {
namespace {

constexpr int kStepBits = 48;
constexpr uint64_t kStepMask = (uint64_t{1} << kStepBits) - 1;

uint64_t PlaceOf(uint32_t attempt, int64_t step) {
  return uint64_t{attempt} << kStepBits | static_cast<uint64_t>(step);
}
int64_t StepOf(uint64_t place) { return static_cast<int64_t>(place & kStepMask); }
uint32_t AttemptOf(uint64_t place) { return static_cast<uint32_t>(place >> kStepBits); }

}  // namespace

// Returns the slot that holds the digest, or the empty slot where it belongs.
size_t BatchHistory::SlotOf(uint64_t digest) const {
  size_t slot = (digest * 0x9E3779B97F4A7C15) >> 20 & (table_.size() - 1);
  while (table_[slot] != 0 && digests_[table_[slot] - 1] != digest)
    slot = (slot + 1) & (table_.size() - 1);
  return slot;
}

// Enters all steps into a table that is at most half full.
void BatchHistory::Index() {
  size_t size = 64;
  while (size < 2 * (digests_.size() + 1)) size *= 2;
  table_.assign(size, 0);
  for (size_t i = 0; i < digests_.size(); ++i)
    table_[SlotOf(digests_[i])] = static_cast<uint32_t>(i + 1);
}

// Removes the older half of the steps.
void BatchHistory::Forget() {
  constexpr auto kHalf = static_cast<std::ptrdiff_t>(kMost / 2);
  digests_.erase(digests_.begin(), digests_.begin() + kHalf);
  places_.erase(places_.begin(), places_.begin() + kHalf);
  forgotten_ += kMost / 2;
  if (matched_ < kMost / 2) {
    streak_ = {};
    matched_ = 0;
  } else {
    matched_ -= kMost / 2;
  }
  Index();
}

// The newest step repeats the one at `found`. `newest`: its digest has not come again since then.
void BatchHistory::Extend(size_t found, bool newest) {
  const uint64_t now = places_.back(), then = places_[found];
  const bool goes_on = streak_.steps > 0 && found == matched_ + 1 &&
                       AttemptOf(then) == streak_.attempt &&
                       StepOf(then) - streak_.then_last == StepOf(now) - streak_.now_last;
  if (!goes_on) {
    streak_ = {.attempt = AttemptOf(then), .then = StepOf(then), .now = StepOf(now)};
  }
  ++streak_.steps;
  streak_.fresh += newest ? 1 : 0;
  streak_.then_last = StepOf(then);
  streak_.now_last = StepOf(now);
  matched_ = found;
}

const BatchStreak& BatchHistory::Add(uint32_t attempt, int64_t step, uint64_t digest) {
  if (attempt > UINT16_MAX || step < 0 || static_cast<uint64_t>(step) > kStepMask) return streak_;
  const uint64_t place = PlaceOf(attempt, step);
  if (!places_.empty() && place <= places_.back()) return streak_;
  if (!places_.empty() && AttemptOf(places_.back()) != attempt) streak_ = {};
  if (digests_.size() == kMost) Forget();
  if (table_.size() < 2 * (digests_.size() + 1)) Index();
  const size_t slot = SlotOf(digest);
  const size_t last = table_[slot];  // 1 + its place, or 0
  const size_t next = matched_ + 1;
  digests_.push_back(digest);
  places_.push_back(place);
  table_[slot] = static_cast<uint32_t>(digests_.size());
  // The step after the one that was repeated last is preferred, because a batch may come twice.
  const bool in_order = streak_.steps > 0 && next + 1 < digests_.size() &&
                        digests_[next] == digest && AttemptOf(places_[next]) == streak_.attempt &&
                        StepOf(places_[next]) - streak_.then_last == step - streak_.now_last;
  if (in_order) {
    Extend(next, last == next + 1);
  } else if (last != 0) {
    Extend(last - 1, true);
  } else {
    streak_ = {};
  }
  return streak_;
}

std::optional<uint64_t> BatchHistory::Before(uint32_t attempt, int64_t step) const {
  auto end = std::lower_bound(places_.begin(), places_.end(), PlaceOf(attempt, 0));
  while (end != places_.begin()) {
    const uint32_t earlier = AttemptOf(*(end - 1));
    const auto begin = std::lower_bound(places_.begin(), end, PlaceOf(earlier, 0));
    const auto at = std::lower_bound(begin, end, PlaceOf(earlier, step));
    if (at != end && StepOf(*at) == step)
      return digests_[static_cast<size_t>(at - places_.begin())];
    end = begin;
  }
  return std::nullopt;
}

size_t BatchHistory::bytes() const {
  return digests_.capacity() * sizeof(uint64_t) + places_.capacity() * sizeof(uint64_t) +
         table_.capacity() * sizeof(uint32_t);
}

// table_ is recomputed after a restore.
void BatchHistory::Persist(Archive& a) {
  a(digests_, places_, matched_, forgotten_, streak_);
  if (!a.reading()) return;
  if (places_.size() != digests_.size() || digests_.size() > kMost)
    return a.Fail("as many places as digests");
  Index();
}

}  // namespace plumbline::analysis
