// Reads one JSON object as names and numbers.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "audit/readers/input/json_cursor.h"

namespace plumbline::audit {

// Numbers of the other members of an object.
struct JsonShape {
  uint64_t numbers = 0, texts = 0, lists = 0;
};

// Calls `Take(name, value)` for an object's members: numbers, and texts and bare words that are
// numbers (NaN, "Infinity", "0.5"). Joins keys of nested objects by '/'. The name is valid only
// within the call.
class JsonRecord {
 public:
  class Taker {
   public:
    virtual ~Taker() = default;
    virtual void Take(std::string_view name, double value) = 0;
    // Takes a text that is not a number; `text` is still escaped.
    virtual void TakeText(std::string_view /*name*/, std::string_view /*text*/) {}
    virtual void TakeNull(std::string_view /*name*/) {}
  };

  // Returns false on an error, which the cursor describes. Names begin with `prefix`, if not empty.
  bool Read(JsonCursor* cursor, std::string_view text, Taker* taker, JsonShape* shape,
            std::string_view prefix = {});

 private:
  static constexpr size_t kMostDepth = 32;
  static constexpr size_t kMostName = 1024;

  bool Value(JsonCursor* cursor, std::string_view text, Taker* taker, JsonShape* shape);
  bool Text(JsonCursor* cursor, std::string_view text, Taker* taker, JsonShape* shape);

  std::string name_;
  std::string string_;
  std::vector<size_t> lengths_;  // lengths of name_ before each open key
};

}  // namespace plumbline::audit
