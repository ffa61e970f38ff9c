// The words of performance/memory-creep: what a course came to, and memory without a known limit.
#pragma once

#include <string>

#include "analysis/frame/frame.h"
#include "analysis/series/series.h"

namespace plumbline::rules {

inline constexpr double kFalseAlarmsOfCreep = 2.9e-3;  // 2 of 2,200: below 6.3 / 2200 at 95 %
inline constexpr double kMuchGrowth =
    1.5;  // times: growth without a known limit that is worth a note
inline constexpr char kMemoryFix[] =
    "Look for what keeps tensors with their graph (.item() or .detach() before anything is kept); "
    "torch.cuda.memory._dump_snapshot() names who allocated what is still there.";

// ", it slows down": why a course is no creep.
const char* CreepWords(const Creep& creep);
// A note on memory that grows by kMuchGrowth times and more, of which no limit is known. The place
// is the rule's.
v1::Verdict UnlimitedMemory(const std::string& op, const Creep& creep);

}  // namespace plumbline::rules
