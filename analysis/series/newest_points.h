// The newest points of a series, oldest first, at most a fixed number of them. Memory grows with
// the points: a std::deque takes half a KiB before its first one.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "base/archive.h"

namespace plumbline::rules {

// Not thread-safe.
template <typename T, size_t kMost>
class NewestPoints {
 public:
  size_t size() const { return points_.size(); }
  bool empty() const { return points_.empty(); }
  // 0: the oldest.
  const T& operator[](size_t i) const { return points_[(first_ + i) % points_.size()]; }
  const T& back() const { return (*this)[size() - 1]; }

  // Of more than kMost the oldest one goes.
  void Add(T point) {
    if (points_.size() < kMost) {
      Straighten();
      // By half, not by a factor of two: there may be thousands of series.
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

  // As any sequence, oldest first: first_ is 0 then.
  void Persist(Archive& a) {
    Straighten();
    a(points_);
    if (points_.size() > kMost) a.Fail("at most as many points as are kept");
  }

 private:
  // The oldest one comes first in memory.
  void Straighten() {
    if (first_ == 0) return;
    std::vector<T> straight;
    straight.reserve(points_.size());
    for (size_t i = 0; i < points_.size(); ++i) straight.push_back((*this)[i]);
    points_ = std::move(straight);
    first_ = 0;
  }

  std::vector<T> points_;
  size_t first_ = 0;  // of the oldest, where all places are taken
};

}  // namespace plumbline::rules
