// Keeps the digest of each step's data, and finds steps that repeat earlier ones in order.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/archive.h"

namespace plumbline::analysis {

// Returns the digest with these halves. Returns nothing if one is not a whole number below 2^32.
inline std::optional<uint64_t> WholeDigest(double upper, double lower) {
  const auto half = [](double x) { return x >= 0 && x < 0x1p32 && x == std::floor(x); };
  if (!half(upper) || !half(lower)) return std::nullopt;
  return static_cast<uint64_t>(upper) << 32 | static_cast<uint64_t>(lower);
}

// Consecutive steps whose digests are those of earlier consecutive steps, up to the newest one.
struct BatchStreak {
  uint64_t steps = 0;  // 0: the newest step repeats no earlier one
  uint64_t fresh = 0;  // of these: steps whose digest had not come again since the earlier step
  uint32_t attempt = 0;
  int64_t then = 0, then_last = 0;  // the earlier steps, of that attempt
  int64_t now = 0, now_last = 0;    // the steps that repeat them
  void Persist(Archive& a) { a(steps, fresh, attempt, then, then_last, now, now_last); }
};

// Exact for the newest kMost / 2 steps at least. Memory: 24 bytes per step, at most 12 MB. Not
// thread-safe.
class BatchHistory {
 public:
  static constexpr size_t kMost = size_t{1} << 19;

  // Steps must come in ascending order of (attempt, step); others are ignored. Attempts beyond
  // 65,535, negative steps, and steps beyond 2^48 are ignored too. Returns the streak of this step.
  const BatchStreak& Add(uint32_t attempt, int64_t step, uint64_t digest);

  // Returns the digest of that step in the newest attempt before `attempt` that has one.
  std::optional<uint64_t> Before(uint32_t attempt, int64_t step) const;

  uint64_t forgotten() const { return forgotten_; }  // number of oldest steps that are not kept
  size_t size() const { return digests_.size(); }
  size_t bytes() const;

  // table_ is recomputed after a restore.
  void Persist(Archive& a);

 private:
  size_t SlotOf(uint64_t digest) const;
  void Forget();
  void Index();
  void Extend(size_t found, bool newest);

  std::vector<uint64_t> digests_;
  std::vector<uint64_t> places_;  // attempt and step
  // By digest: 1 + the newest place in digests_; 0: none
  std::vector<uint32_t> table_;
  size_t matched_ = 0;  // place of the earlier step that the newest one repeats
  uint64_t forgotten_ = 0;
  BatchStreak streak_;
};

}  // namespace plumbline::analysis
