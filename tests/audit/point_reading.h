// The points that a format reads from bytes, in a form for tests.
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
  int64_t rank = -1;  // -1: the file's
};

// True if they are equal; NaN equals NaN.
bool SamePoint(const ReadPoint& a, const ReadPoint& b);

struct PointsRead {
  std::vector<ReadPoint> points;
  uint64_t resumes = 0, unplaced = 0;
  std::string run;
  int64_t rank = -1;
  InputReport report;

  // Values of one series in order, and their steps.
  std::vector<double> Values(std::string_view series) const;
  std::vector<int64_t> Steps(std::string_view series) const;
  std::vector<int64_t> Ranks() const;  // of all points
  std::string Problems() const;        // one per line
  std::string Text() const;            // "step series value" per line
};

// Reads `bytes` as a file with the name `name` to its end and closes it. With `piece` > 0 the file
// grows by that many bytes at a time, and reading continues after each.
PointsRead ReadPoints(const PointFormat& format, const std::string& bytes,
                      const ScalarOptions& options = {}, const std::string& name = "file",
                      size_t piece = 0);

// True if the format takes a file with these bytes.
bool Recognises(const PointFormat& format, const std::string& bytes,
                const std::string& name = "file");

}  // namespace plumbline::audit::testing
