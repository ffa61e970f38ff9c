// Remembers what a logger prints before the heading of an epoch ("2024-05-14 03:22:10 - INFO - ")
// and before the lines below it. Not thread-safe.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace plumbline::audit {

class LogHeading {
 public:
  void Keep(std::string_view prefix) { prefix_ = prefix; }
  // Returns where the same words end in a line, with any digits; 0 if it begins differently.
  size_t EndIn(std::string_view line) const;

 private:
  std::string prefix_;
};

}  // namespace plumbline::audit
