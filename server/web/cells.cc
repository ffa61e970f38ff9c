#include "server/web/cells.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace plumbline::server {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

double Quantile(std::vector<double>* values, double share) {
  if (values->empty()) return kNan;
  const auto at = static_cast<ptrdiff_t>(share * static_cast<double>(values->size() - 1));
  std::nth_element(values->begin(), values->begin() + at, values->end());
  return (*values)[static_cast<size_t>(at)];
}

class Merger {
 public:
  Merger(const v1::SeriesColumns& in, CellGrid* out)
      : in_(in), out_(out), width_(static_cast<size_t>(in.step_size())) {}

  // Merges rows [from, to) of the input into one.
  void AddRow(size_t from, size_t to) {
    out_->first_rank.push_back(in_.rank(static_cast<int>(from)));
    out_->last_rank.push_back(in_.rank(static_cast<int>(to - 1)));
    const double median = MedianOf(from, to);
    for (size_t column = 0; column < width_; ++column) {
      double value = kNan;
      bool any = false, bad = false;
      for (size_t row = from; row < to; ++row) {
        const size_t cell = row * width_ + column;
        if (Absent(cell)) continue;
        any = true;
        bad |= NotFinite(cell);
        for (const double one : {Low(cell), High(cell)}) {
          if (!std::isfinite(one)) continue;
          if (!(std::fabs(value - median) >= std::fabs(one - median))) value = one;
        }
      }
      // A non-finite value takes precedence in its cell.
      state_.push_back(bad ? CellGrid::kNotFinite : any ? 0 : CellGrid::kNoEvidence);
      value_.push_back(value);
    }
  }

  // Maps values to bytes once all are known.
  void Finish() {
    std::vector<double> finite;
    for (const double value : value_) {
      if (std::isfinite(value)) finite.push_back(value);
    }
    double low = Quantile(&finite, 0.01), high = Quantile(&finite, 0.99);
    if (!(high > low) && !finite.empty()) {
      low = *std::min_element(finite.begin(), finite.end());
      high = *std::max_element(finite.begin(), finite.end());
    }
    out_->low = low;
    out_->high = high;
    for (size_t i = 0; i < value_.size(); ++i) {
      uint8_t byte = state_[i];
      if (byte == 0) {
        const double share = high > low ? (value_[i] - low) / (high - low) : 0.5;
        byte = static_cast<uint8_t>(std::lround(std::clamp(share, 0.0, 1.0) * CellGrid::kMost));
      }
      out_->bytes.push_back(static_cast<char>(byte));
    }
  }

 private:
  bool Absent(size_t cell) const {
    const std::string& bits = in_.absent();
    return !bits.empty() && (bits[cell / 8] >> (cell % 8) & 1) != 0;
  }
  bool NotFinite(size_t cell) const {
    const auto i = static_cast<int>(cell);
    if (in_.non_finite_size() > 0) return in_.non_finite(i) > 0;
    return !std::isfinite(in_.mean(i));
  }
  double Low(size_t cell) const {
    const auto i = static_cast<int>(cell);
    return in_.min_size() > 0 ? in_.min(i) : in_.mean(i);
  }
  double High(size_t cell) const {
    const auto i = static_cast<int>(cell);
    return in_.max_size() > 0 ? in_.max(i) : in_.mean(i);
  }
  double MedianOf(size_t from, size_t to) const {
    std::vector<double> values;
    for (size_t cell = from * width_; cell < to * width_; ++cell) {
      const double value = in_.mean(static_cast<int>(cell));
      if (!Absent(cell) && std::isfinite(value)) values.push_back(value);
    }
    return Quantile(&values, 0.5);
  }

  const v1::SeriesColumns& in_;
  CellGrid* const out_;
  const size_t width_;
  std::vector<double> value_;
  std::vector<uint8_t> state_;
};

}  // namespace

CellGrid GridOf(const v1::SeriesColumns& columns, size_t rows, const std::set<uint32_t>& alone) {
  CellGrid grid;
  grid.bucket_steps = columns.bucket_steps();
  grid.step.assign(columns.step().begin(), columns.step().end());
  const auto ranks = static_cast<size_t>(columns.rank_size());
  const size_t together = std::max<size_t>(1, (ranks + rows - 1) / std::max<size_t>(rows, 1));
  Merger merger(columns, &grid);
  for (size_t from = 0; from < ranks;) {
    size_t to = from + 1;
    const auto is_alone = [&](size_t row) {
      return alone.contains(columns.rank(static_cast<int>(row)));
    };
    while (!is_alone(from) && to < ranks && to - from < together && !is_alone(to)) ++to;
    merger.AddRow(from, to);
    from = to;
  }
  merger.Finish();
  return grid;
}

}  // namespace plumbline::server
