// Finds facts in the name of a memory series, in addition to its role.
#pragma once

#include <string>

namespace plumbline::analysis {

// kNone: free memory, a peak, a share of time, a temperature, a count of errors. kLimit: the total
// memory.
enum class MemoryKind { kNone, kUse, kLimit };

// Returns the kind of a name whose role is memory. Caches names, because it is called in each step
// for the same few names. Thread-safe.
MemoryKind KindOfMemory(const std::string& op);

// Returns the limit that the name implies: 1 for a share, 100 for a percentage; otherwise 0.
double LimitInName(const std::string& op);

}  // namespace plumbline::analysis
