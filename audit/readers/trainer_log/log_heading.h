// Keeps the text that a logger prints before the heading of an epoch ("2024-05-14 03:22:10 - INFO -
// ") and before the lines below it. Not thread-safe.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace plumbline::audit {

class LogHeading {
 public:
  void Keep(std::string_view prefix) { prefix_ = prefix; }
  // Returns the end of the same text in a line, in which digits may differ. Returns 0 if the line
  // begins differently.
  size_t EndIn(std::string_view line) const;
  // Returns true if that text begins with `text`, in which digits may differ.
  bool BeginsWith(std::string_view text) const;

 private:
  size_t SameBytes(std::string_view line) const;

  std::string prefix_;
};

}  // namespace plumbline::audit
