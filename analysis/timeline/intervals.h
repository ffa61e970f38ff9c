// Sets of intervals on a line and the lengths of their unions. Nanoseconds, [start, end).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace plumbline::timeline {

struct Interval {
  int64_t start = 0;
  int64_t end = 0;  // > start; else the interval is empty

  friend auto operator<=>(const Interval&, const Interval&) = default;
};

// A union of intervals: disjoint, not adjacent, ascending. Starts and ends are within +-2^61, so
// that no difference overflows.
class Intervals {
 public:
  Intervals() = default;
  // Takes intervals in any order, overlapping or not. Empty ones are ignored.
  explicit Intervals(std::vector<Interval> any);

  // Appends an interval that starts no earlier than all earlier ones.
  void Append(Interval next);

  const std::vector<Interval>& parts() const { return parts_; }
  bool empty() const { return parts_.empty(); }
  // Returns U(S).
  int64_t length() const;
  // Returns U(S within [start, end)), in logarithmic time after `Index` was called, else linear.
  int64_t LengthWithin(int64_t start, int64_t end) const;
  // Makes LengthWithin fast. Call it again after each Append.
  void Index();

  // Returns the parts of [start, end) that are not in the union.
  Intervals GapsWithin(int64_t start, int64_t end) const;

  // Returns U(a and b).
  friend int64_t CommonLength(const Intervals& a, const Intervals& b);
  friend Intervals Union(const Intervals& a, const Intervals& b);

 private:
  int64_t LengthBefore(int64_t at) const;

  std::vector<Interval> parts_;
  std::vector<int64_t> before_;  // total length of the parts before each part
};

int64_t CommonLength(const Intervals& a, const Intervals& b);
Intervals Union(const Intervals& a, const Intervals& b);

}  // namespace plumbline::timeline
