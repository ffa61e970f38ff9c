// Finds names of series within a log line.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "audit/readers/log_text/log_bytes.h"

namespace plumbline::audit {

inline constexpr Bytes kSigns(":=");  // signs between a name and its value

// Finds the name and the factor in the text before a number. Caches results, because a log repeats
// its texts. Memory is bounded. Not thread-safe.
class LogNames {
 public:
  struct Name {
    std::string_view name;  // part of the text; empty if it has no name
    double factor = 1;      // factor of a unit at the end of the name
  };
  Name Of(std::string_view text);

 private:
  static constexpr size_t kPlaces = 1024;
  static constexpr size_t kMostText = 128;

  struct Place {
    std::string text;
    size_t begin = 0, size = 0;  // place of the name in the text
    double factor = 1;
    Place* next = nullptr;  // the place of the text that followed this one last time
  };
  Place* last_ = nullptr;  // place of the previous text
  std::vector<Place> places_ = std::vector<Place>(kPlaces);
};

// Returns the name after a number, a rate or a share, up to the end of the part: "tok/s", "bf16
// MFU", "words/s". Returns an empty name if there is none.
std::string_view NameAfter(const char* from, const char* to);
// True for "train.py" of "train.py:52".
bool IsSourceFile(std::string_view text);

}  // namespace plumbline::audit
