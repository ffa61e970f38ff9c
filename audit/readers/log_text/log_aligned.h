// Reads a table with aligned columns in groups between pipes, whose step is a later column
// (ElegantRL): "ID     Step    Time |    avgR   stdR |    objC   objA   etc.".
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "audit/readers/log_text/log_panel.h"

namespace plumbline::audit {

// Not thread-safe.
class LogAligned {
 public:
  bool active() const { return !columns_.empty(); }
  // Returns true if the line is such a header. Its columns then are those of the rows below it.
  bool TakeHeader(std::string_view line);
  // Returns true if the line is a row. A wide negative number may follow its neighbour without a
  // space: "8.14e+03-1297.98". A row may end early. Its last column may have several numbers.
  bool TakeRow(std::string_view line);
  // Step and values of the newest row.
  int64_t step() const { return step_; }
  std::vector<NamedNumber>& values() { return values_; }

 private:
  // If full rows have the same step because it is rounded ("1.23e+06"), later ones follow it.
  void Count(double printed, bool full);

  std::vector<std::string> columns_;
  size_t step_at_ = 0;
  double printed_ = -1;  // the newest step as it is printed
  int64_t again_ = 0;    // number of full rows that had it before
  bool full_ = false;    // the newest row was full
  int64_t step_ = 0;
  double first_id_ = -1;
  std::vector<NamedNumber> values_;
};

}  // namespace plumbline::audit
