// Names of series within a line of a log.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "audit/readers/log_text/log_bytes.h"

namespace plumbline::audit {

inline constexpr Bytes kSigns(":=");  // between a name and its value

// What the texts in front of numbers mean: a name and a factor, or nothing. A log repeats them, so
// that each is looked at once. Memory is bounded. Not thread-safe.
class LogNames {
 public:
  struct Name {
    std::string_view name;  // within the text; empty: it is none
    double factor = 1;      // of a unit at the name's end
  };
  Name Of(std::string_view text);

 private:
  static constexpr size_t kPlaces = 1024;
  static constexpr size_t kMostText = 128;

  struct Place {
    std::string text;
    size_t begin = 0, size = 0;  // of the name
    double factor = 1;
    Place* next = nullptr;  // of the text that came behind it last
  };
  Place* last_ = nullptr;  // of the text before
  std::vector<Place> places_ = std::vector<Place>(kPlaces);
};

// The name behind a number, as far as the part goes: "tok/s", "bf16 MFU", "words/s", a rate or a
// share; empty: there is none.
std::string_view NameAfter(const char* from, const char* to);
// "train.py" of "train.py:52".
bool IsSourceFile(std::string_view text);

}  // namespace plumbline::audit
