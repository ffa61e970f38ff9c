// What the name of a memory series contains in addition to its role.
#pragma once

#include <string>

namespace plumbline::analysis {

// kNone: free memory, a peak, a share of time, a temperature, a count of errors. kLimit: the total
// memory.
enum class MemoryKind { kNone, kUse, kLimit };

// Returns the kind of a name whose role is memory. Caches names, because it is called at each step
// for the same few. Thread-safe.
MemoryKind KindOfMemory(const std::string& op);

// Returns the limit that follows from the name: 1 for a share, 100 for a percentage. If none
// follows, returns 0.
double LimitInName(const std::string& op);

}  // namespace plumbline::analysis
