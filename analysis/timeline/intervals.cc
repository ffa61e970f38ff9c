#include "analysis/timeline/intervals.h"

#include <algorithm>

namespace plumbline::timeline {

Intervals::Intervals(std::vector<Interval> any) {
  std::sort(any.begin(), any.end());
  for (const Interval& part : any) Append(part);
}

void Intervals::Append(Interval next) {
  if (next.end <= next.start) return;
  if (!parts_.empty() && next.start <= parts_.back().end) {
    parts_.back().end = std::max(parts_.back().end, next.end);
  } else {
    parts_.push_back(next);
  }
}

int64_t Intervals::length() const {
  int64_t sum = 0;
  for (const Interval& part : parts_) sum += part.end - part.start;
  return sum;
}

void Intervals::Index() {
  before_.resize(parts_.size());
  int64_t sum = 0;
  for (size_t i = 0; i < parts_.size(); ++i) {
    before_[i] = sum;
    sum += parts_[i].end - parts_[i].start;
  }
}

int64_t Intervals::LengthBefore(int64_t at) const {
  const auto next =
      std::upper_bound(parts_.begin(), parts_.end(), at,
                       [](int64_t value, const Interval& part) { return value < part.start; });
  if (next == parts_.begin()) return 0;
  const auto i = static_cast<size_t>(next - parts_.begin()) - 1;
  return before_[i] + std::min(at, parts_[i].end) - parts_[i].start;
}

int64_t Intervals::LengthWithin(int64_t start, int64_t end) const {
  if (end <= start) return 0;
  if (before_.size() == parts_.size()) return LengthBefore(end) - LengthBefore(start);
  int64_t sum = 0;
  for (const Interval& part : parts_)
    sum += std::max<int64_t>(0, std::min(end, part.end) - std::max(start, part.start));
  return sum;
}

Intervals Intervals::GapsWithin(int64_t start, int64_t end) const {
  Intervals gaps;
  int64_t at = start;
  for (const Interval& part : parts_) {
    if (part.end <= at) continue;
    if (part.start >= end) break;
    gaps.Append({at, part.start});
    at = part.end;
  }
  gaps.Append({at, end});
  return gaps;
}

int64_t CommonLength(const Intervals& a, const Intervals& b) {
  int64_t sum = 0;
  auto i = a.parts_.begin();
  auto j = b.parts_.begin();
  while (i != a.parts_.end() && j != b.parts_.end()) {
    sum += std::max<int64_t>(0, std::min(i->end, j->end) - std::max(i->start, j->start));
    if (i->end < j->end) {
      ++i;
    } else {
      ++j;
    }
  }
  return sum;
}

Intervals Union(const Intervals& a, const Intervals& b) {
  Intervals both;
  auto i = a.parts_.begin();
  auto j = b.parts_.begin();
  while (i != a.parts_.end() || j != b.parts_.end()) {
    const bool take_a = j == b.parts_.end() || (i != a.parts_.end() && i->start <= j->start);
    both.Append(take_a ? *i++ : *j++);
  }
  return both;
}

}  // namespace plumbline::timeline
