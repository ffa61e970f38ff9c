// One line of Comet's messages.json, as far as series need it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "audit/readers/scalars/point_file.h"

namespace plumbline::audit {

// All of a file's lines go to one sink. Not thread-safe.
class CometMessages {
 public:
  // False if the line is no message.
  bool Read(std::string_view line, PointSink* sink);
  // "config: NAME" of each parameter that the trainer logged.
  const std::map<std::string, std::string>& settings() const { return settings_; }

  // Whether a text begins with such lines.
  static bool Recognise(std::string_view text);

 private:
  std::map<std::string, std::string> settings_;
};

}  // namespace plumbline::audit
