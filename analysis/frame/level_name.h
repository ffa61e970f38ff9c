// The names of levels, for people and programs.
#pragma once

#include "plumbline/v1/finding.pb.h"

namespace plumbline::analysis {

// Returns "note", "warning" or "error". For any other value, returns "unspecified".
inline const char* LevelName(v1::Level level) {
  switch (level) {
    case v1::LEVEL_NOTE:
      return "note";
    case v1::LEVEL_WARNING:
      return "warning";
    case v1::LEVEL_ERROR:
      return "error";
    default:
      return "unspecified";
  }
}

}  // namespace plumbline::analysis
