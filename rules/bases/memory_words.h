// Texts of performance/memory-creep: the result of a course, and memory without a known limit.
#pragma once

#include <string>

#include "analysis/frame/frame.h"
#include "analysis/series/series.h"
#include "rules/analysis_names.h"

namespace plumbline::rules {

inline constexpr double kFalseAlarmsOfCreep = 2.9e-3;  // 2 of 2,200: below 6.3 / 2200 at 95 %
inline constexpr double kMuchGrowth =
    1.5;  // factor: growth without a known limit that deserves a note
inline constexpr char kMemoryFix[] =
    "Look for stored tensors that keep their graph (use .item() or .detach() before storing); "
    "torch.cuda.memory._dump_snapshot() lists the code that allocated the memory.";

// Returns why a course is not a creep: ", it slows down".
const char* CreepWords(const Creep& creep);
// Returns a note on memory that grows by a factor of at least kMuchGrowth and has no known limit.
// The rule sets the place.
v1::Verdict UnlimitedMemory(const std::string& op, const Creep& creep);

}  // namespace plumbline::rules
