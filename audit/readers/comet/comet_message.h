// Reads one line of Comet's messages.json. Reads only the fields that series need.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "audit/readers/scalars/point_file.h"

namespace plumbline::audit {

// All lines of a file go to one sink. Not thread-safe.
class CometMessages {
 public:
  // Returns false if the line is not a message.
  bool Read(std::string_view line, PointSink* sink);
  // Returns "config: NAME" of each parameter that the trainer logged.
  const std::map<std::string, std::string>& settings() const { return settings_; }

  // Returns true if a text begins with lines of messages.json.
  static bool Recognise(std::string_view text);

 private:
  std::map<std::string, std::string> settings_;
};

}  // namespace plumbline::audit
