// The points that a format reads from bytes, as a test sees them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "audit/readers/scalars/point_file.h"

namespace plumbline::audit::testing {

struct ReadPoint {
  int64_t step;
  std::string series;
  double value;
};

// Equal, NaN like NaN.
bool SamePoint(const ReadPoint& a, const ReadPoint& b);

struct PointsRead {
  std::vector<ReadPoint> points;
  uint64_t resumes = 0, unplaced = 0;
  std::string run;
  int64_t rank = -1;
  InputReport report;

  // Values of one series in their order, and the steps they have.
  std::vector<double> Values(std::string_view series) const;
  std::vector<int64_t> Steps(std::string_view series) const;
  std::string Problems() const;  // a line each
  std::string Text() const;      // "step series value" a line
};

// Reads `bytes` as a file called `name` to its end and closes it. With `piece` > 0 the file grows
// by so many bytes at a time, and is read on after each.
PointsRead ReadPoints(const PointFormat& format, const std::string& bytes,
                      const ScalarOptions& options = {}, const std::string& name = "file",
                      size_t piece = 0);

// Whether the format takes a file of these bytes.
bool Recognises(const PointFormat& format, const std::string& bytes,
                const std::string& name = "file");

}  // namespace plumbline::audit::testing
