// Names of series that measure a speed other than in tokens, and of what changes the work of a
// step. Used by performance/mfu.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>

namespace plumbline::rules {

// What a speed counts: work a second, or the seconds of some work.
enum class Pace : uint8_t { kNone, kWork, kSeconds };

struct WorkName {
  Pace pace = Pace::kNone;
  bool work = false;  // a length of sequences, a stage, a batch size, a number of GPUs
};
// Returns the content of a name, cached.
WorkName NameOfWork(const std::string& op);

// Returns true if the name has all of these words.
bool HasWordsOfSpeed(const std::string& op, std::initializer_list<const char*> all);

struct MfuName {
  bool mfu = false, speed = false, one_gpu = false;
};
// Returns the content of a name, cached.
MfuName NameOfMfu(const std::string& op);

}  // namespace plumbline::rules
