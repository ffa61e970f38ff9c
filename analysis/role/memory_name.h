// What the name of a series of memory says beyond its role.
#pragma once

#include <string>

namespace plumbline::rules {

// kNone: free memory, a peak, a share of time, a temperature, a count of errors; kLimit: how much
// there is.
enum class MemoryKind { kNone, kUse, kLimit };

// Of a name whose role is memory. Remembers names: asked at each step for the same few.
// Thread-safe.
MemoryKind KindOfMemory(const std::string& op);

// The limit that follows from the name: 1 of a share, 100 of a percentage; 0: none does.
double LimitInName(const std::string& op);

}  // namespace plumbline::rules
