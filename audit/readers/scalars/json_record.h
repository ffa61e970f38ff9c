// One JSON object as names and numbers.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "audit/readers/input/json_cursor.h"

namespace plumbline::audit {

// What else an object held.
struct JsonShape {
  uint64_t numbers = 0, texts = 0, lists = 0;
};

// Reads an object's members into `Take(name, value)`: numbers, and texts and bare words that are
// numbers (NaN, "Infinity", "0.5"). Keys of objects within it join by '/'. The name is valid within
// the call only.
class JsonRecord {
 public:
  class Taker {
   public:
    virtual ~Taker() = default;
    virtual void Take(std::string_view name, double value) = 0;
    // It has a text that is no number; `text` as it is escaped.
    virtual void TakeText(std::string_view /*name*/, std::string_view /*text*/) {}
    virtual void TakeNull(std::string_view /*name*/) {}
  };

  // False: the cursor says why. Names begin with `prefix`, where there is one.
  bool Read(JsonCursor* cursor, std::string_view text, Taker* taker, JsonShape* shape,
            std::string_view prefix = {});

 private:
  static constexpr size_t kMostDepth = 32;
  static constexpr size_t kMostName = 1024;

  bool Value(JsonCursor* cursor, std::string_view text, Taker* taker, JsonShape* shape);
  bool Text(JsonCursor* cursor, std::string_view text, Taker* taker, JsonShape* shape);

  std::string name_;
  std::string string_;
  std::vector<size_t> lengths_;  // of name_ without the keys that are open
};

}  // namespace plumbline::audit
