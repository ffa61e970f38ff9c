// The current range of a series: bounds that hold for at least ten of its newest nineteen values.
// Ten consecutive values at a new level change the bounds at once. Noise over several decades hides
// nothing, because only half of the values must keep a bound.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

#include "analysis/series/robust.h"
#include "base/archive.h"

namespace plumbline::analysis {

class Standing {
 public:
  static constexpr size_t kTen = 10, kNewest = 19;
  struct Point {
    int64_t step = 0;
    double value = 0;
    void Persist(Archive& a) { a(step, value); }
  };

  // `value` must not be NaN.
  void Take(int64_t step, double value) {
    newest_.push_back({step, value});
    Insert(value, newest_.size() - 1);
    if (newest_.size() > kNewest) {
      Remove(newest_.front().value, kNewest + 1);
      newest_.erase(newest_.begin());
    }
    if (newest_.size() < kTen) return;
    at_most_ = sorted_[kTen - 1];
    at_least_ = sorted_[newest_.size() - kTen];
    lowest_ = std::min(lowest_, at_most_);
    highest_ = std::max(highest_, at_least_);
  }

  // Ten of the newest values are at least at_least(), and ten are at most at_most(). If there are
  // fewer than ten, no bound holds.
  double at_least() const { return at_least_; }
  double at_most() const { return at_most_; }
  // The lowest at_most() and the highest at_least() so far.
  double lowest() const { return lowest_; }
  double highest() const { return highest_; }
  const std::vector<Point>& newest() const { return newest_; }
  // Returns the step of the first of the newest points for which `beyond` is true. If there is
  // none, returns 0.
  template <typename Beyond>
  int64_t First(const Beyond& beyond) const {
    const auto found = std::find_if(newest_.begin(), newest_.end(),
                                    [&](const Point& point) { return beyond(point.value); });
    return found == newest_.end() ? 0 : found->step;
  }
  double newest_highest() const {
    double highest = -HUGE_VAL;
    for (const Point& point : newest_) highest = std::max(highest, point.value);
    return highest;
  }

  // sorted_ is recomputed from newest_.
  void Persist(Archive& a) {
    a(newest_, at_least_, at_most_, lowest_, highest_);
    if (!a.reading()) return;
    if (newest_.size() > kNewest) newest_.resize(kNewest);  // needed if the stored data are damaged
    for (size_t i = 0; i < newest_.size(); ++i) Insert(newest_[i].value, i);
  }

 private:
  // Inserts into the first `count` values of sorted_.
  void Insert(double value, size_t count) {
    const auto end = sorted_.begin() + static_cast<ptrdiff_t>(count);
    const auto at = sorted_.begin() +
                    static_cast<ptrdiff_t>(LeadingOf(
                        sorted_.data(), count, [value](double known) { return !(value < known); }));
    std::copy_backward(at, end, end + 1);
    *at = value;
  }
  void Remove(double value, size_t count) {
    const auto end = sorted_.begin() + static_cast<ptrdiff_t>(count);
    const auto at = sorted_.begin() +
                    static_cast<ptrdiff_t>(LeadingOf(
                        sorted_.data(), count, [value](double known) { return known < value; }));
    if (at != end) std::copy(at + 1, end, at);
  }

  std::vector<Point> newest_;
  std::array<double, kNewest + 1> sorted_{};  // the values of newest_, ascending; not stored
  double at_least_ = -HUGE_VAL, at_most_ = HUGE_VAL;
  double lowest_ = HUGE_VAL, highest_ = -HUGE_VAL;
};

}  // namespace plumbline::analysis
