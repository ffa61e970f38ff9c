#include "analysis/picture/picture.h"

#include <algorithm>
#include <cmath>

namespace plumbline::analysis {
namespace {

double SixDigits(double value) {
  if (!std::isfinite(value) || value == 0) return value;
  const double size = std::floor(std::log10(std::fabs(value)));
  if (size < -290 || size > 290) return value;
  const double unit = std::pow(10.0, 5 - size);
  return std::round(value * unit) / unit;
}

}  // namespace

void PutNumbers(google::protobuf::Struct& s, const std::string& key,
                const std::vector<double>& values) {
  auto& list = *(*s.mutable_fields())[key].mutable_list_value();
  for (const double value : values) list.add_values()->set_number_value(SixDigits(value));
}

std::vector<size_t> Evenly(size_t count, size_t most, std::vector<size_t> always) {
  std::vector<size_t> out;
  if (count <= most) {
    for (size_t i = 0; i < count; ++i) out.push_back(i);
    return out;
  }
  out = std::move(always);
  const size_t even = most > out.size() ? most - out.size() : 0;
  for (size_t i = 0; i < even; ++i) out.push_back(i * count / even);
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

void PointSample::Add(const Point& point) {
  const uint64_t number = seen_++;
  if (number % every_ == 0) {
    even_.push_back({number, point});
    if (even_.size() > kMostPoints) {
      every_ *= 2;
      std::erase_if(even_, [this](const Numbered& one) { return one.number % every_ != 0; });
    }
  }
  // Usually only one comparison.
  const double far = std::fabs(point.far);
  if (outliers_.size() == kMostOutliers && !(far > std::fabs(outliers_.back().point.far))) return;
  const auto place = std::find_if(outliers_.begin(), outliers_.end(), [far](const Numbered& one) {
    return far > std::fabs(one.point.far);
  });
  outliers_.insert(place, {number, point});
  if (outliers_.size() > kMostOutliers) outliers_.pop_back();
}

std::vector<PointSample::Point> PointSample::points() const {
  std::vector<Point> out;
  for (const Numbered& one : even_) out.push_back(one.point);
  for (const Numbered& one : outliers_) {
    const bool among = one.number % every_ == 0;
    if (!among) out.push_back(one.point);
  }
  return out;
}

}  // namespace plumbline::analysis
