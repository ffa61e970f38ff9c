// What one way of doing a thing takes more than another, by paired, interleaved differences: each
// pair is a lump of the one beside a lump of the other, and which of them comes first changes from
// pair to pair. What goes on beside them (clocks, other programs, a device that fills up) meets
// both alike: a drift cancels between neighbouring pairs, and what disturbs few pairs leaves the
// middle where it is. No GPU is needed here.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

namespace plumbline::gpu {

// The value below which `share` of them lie, between neighbours by distance; 0 of none.
inline double Quantile(std::vector<double> of, double share) {
  if (of.empty()) return 0;
  std::sort(of.begin(), of.end());
  const double at = share * static_cast<double>(of.size() - 1);
  const auto below = static_cast<size_t>(at);
  const size_t above = std::min(below + 1, of.size() - 1);
  return of[below] + (at - std::floor(at)) * (of[above] - of[below]);
}

class PairedDifferences {
 public:
  // One pair. whole(), part(): seconds of a call; negative: it could not be taken. False then.
  template <typename Whole, typename Part>
  bool Take(Whole whole, Part part) {
    whole_first_ = !whole_first_;
    double w = whole_first_ ? whole() : 0;
    const double p = part();
    if (!whole_first_) w = whole();
    if (w < 0 || p < 0) return false;
    last_ = w;
    differences_.push_back(w - p);
    return true;
  }

  double last_whole() const { return last_; }
  size_t pairs() const { return differences_.size() / 2; }

  // Seconds. Of each two neighbouring pairs, of which each way was first once, the middle of their
  // differences: so a lump that costs more for being the second one counts for neither. `share` of
  // those lie below.
  double At(double share) const {
    std::vector<double> middles;
    for (size_t i = 0; i + 1 < differences_.size(); i += 2)
      middles.push_back((differences_[i] + differences_[i + 1]) / 2);
    return Quantile(std::move(middles), share);
  }

 private:
  std::vector<double> differences_;
  bool whole_first_ = false;
  double last_ = 0;
};

}  // namespace plumbline::gpu
