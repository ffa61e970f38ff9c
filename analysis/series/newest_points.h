// Keeps the newest points of a series, oldest first, up to a fixed number. Memory grows with the
// points. A std::deque takes half a KiB before its first point.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "base/archive.h"

namespace plumbline::analysis {

// Not thread-safe.
template <typename T, size_t kMost>
class NewestPoints {
 public:
  size_t size() const { return points_.size(); }
  bool empty() const { return points_.empty(); }
  // Index 0 is the oldest point.
  const T& operator[](size_t i) const { return points_[(first_ + i) % points_.size()]; }
  const T& back() const { return (*this)[size() - 1]; }

  // If kMost points are stored, drops the oldest.
  void Add(T point) {
    if (points_.size() < kMost) {
      Straighten();
      // Grows by a half instead of doubling, because there may be thousands of series.
      if (points_.size() == points_.capacity())
        points_.reserve(std::min(kMost, points_.size() + points_.size() / 2 + 4));
      points_.push_back(std::move(point));
    } else {
      points_[first_] = std::move(point);
      first_ = (first_ + 1) % kMost;
    }
  }
  void DropNewest() {
    Straighten();
    points_.pop_back();
  }
  void Clear() {
    points_.clear();
    first_ = 0;
  }

  // Stored as a sequence, oldest first; first_ is then 0.
  void Persist(Archive& a) {
    Straighten();
    a(points_);
    if (points_.size() > kMost) a.Fail("at most as many points as the capacity");
  }

 private:
  // Moves the oldest point to the front of the memory.
  void Straighten() {
    if (first_ == 0) return;
    std::vector<T> straight;
    straight.reserve(points_.size());
    for (size_t i = 0; i < points_.size(); ++i) straight.push_back((*this)[i]);
    points_ = std::move(straight);
    first_ = 0;
  }

  std::vector<T> points_;
  size_t first_ = 0;  // place of the oldest point, if all places are taken
};

}  // namespace plumbline::analysis
