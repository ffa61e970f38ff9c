// Sets of intervals on a line and the lengths of their unions. Nanoseconds, [start, end).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace plumbline::timeline {

struct Interval {
  int64_t start = 0;
  int64_t end = 0;  // > start; where it is not, the interval is empty

  friend auto operator<=>(const Interval&, const Interval&) = default;
};

// A union of intervals: disjoint, not touching, ascending. Starts and ends lie within +-2^61, so
// that no difference overflows.
class Intervals {
 public:
  Intervals() = default;
  // In any order, overlapping or not; the empty ones are left out.
  explicit Intervals(std::vector<Interval> any);

  // Appends one that starts no earlier than all before it started.
  void Append(Interval next);

  const std::vector<Interval>& parts() const { return parts_; }
  bool empty() const { return parts_.empty(); }
  // U(S).
  int64_t length() const;
  // U(S within [start, end)), in logarithmic time once `Index` was called, else linear.
  int64_t LengthWithin(int64_t start, int64_t end) const;
  // Makes LengthWithin fast; again after each Append.
  void Index();

  // What of [start, end) is not in the union.
  Intervals GapsWithin(int64_t start, int64_t end) const;

  // U(a and b).
  friend int64_t CommonLength(const Intervals& a, const Intervals& b);
  friend Intervals Union(const Intervals& a, const Intervals& b);

 private:
  int64_t LengthBefore(int64_t at) const;

  std::vector<Interval> parts_;
  std::vector<int64_t> before_;  // length of all parts before each
};

int64_t CommonLength(const Intervals& a, const Intervals& b);
Intervals Union(const Intervals& a, const Intervals& b);

}  // namespace plumbline::timeline
