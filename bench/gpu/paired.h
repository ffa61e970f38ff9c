// Measures how much longer one method takes than another, by paired, interleaved differences. Each
// pair is a lump of calls of each method, and the order alternates from pair to pair. External
// effects (clocks, other programs, a device that fills up) affect both alike: a drift cancels
// between neighbouring pairs, and disturbances of few pairs do not move the median. Needs no GPU.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

namespace plumbline::gpu {

// Returns the quantile `share` of the values, interpolated linearly; 0 if there are none.
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
  // Measures one pair. whole() and part() return seconds per call, or a negative value if the call
  // failed; then Take returns false.
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

  // Returns the quantile `share`, in seconds, of the means of two neighbouring differences. The two
  // pairs have opposite orders, so an effect of the order cancels.
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
