// Measures how long collectives take for the bytes that they move, by group, from what a trace's
// kernels record (operation, elements, dtype, members).
//
// A kernel's time includes waiting: for members that arrive later, and for a link that another
// collective uses at the same time. So calls that overlap with other communication are ignored, and
// of the rest the fastest tenth is used. Among many calls, each member is sometimes the last to
// arrive.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/timeline/columns.h"
#include "plumbline/v1/evidence.pb.h"

namespace plumbline::timeline {

// Prefix of the site's layer: "collectives of 8 ranks". The op is the operation.
inline constexpr std::string_view kCollectivesLayer = "collectives of ";

// Only calls that move at least this number of bytes are used. In smaller ones latency dominates.
inline constexpr uint64_t kManyBytes = 16u << 20;

// Returns the operation: "allreduce", "_allgather_base", "ncclDevKernel_ReduceScatter..." give
// "all_reduce", ... If the operation does not move equal parts between all members, returns "".
std::string_view CollectiveOf(std::string_view name);
// Returns the bytes of an element: "BFloat16" gives 2. If the type is not known, returns 0.
uint32_t BytesOfType(std::string_view dtype);
// Returns B of a call. If it is not known, returns 0. `in` and `out` are this rank's elements.
uint64_t WholeBytes(std::string_view op, uint64_t in, uint64_t out, uint32_t ranks,
                    uint32_t bytes_each);

// Returns collectives by (op, group, B), if B is at least kManyBytes. The columns must be sorted
// (Reduce).
std::vector<CollectiveTimes> CollectivesIn(const Columns& columns);

// Returns the bytes per second that leave one member: B(N-1)/(N T), for all-reduce twice that, for
// all-to-all one N-th. If the values are invalid, returns 0.
double BusBandwidth(const CollectiveTimes& times);

// Store a collective as evidence and read it: a span of kind collective, with the shortest time as
// its duration, the calls as its sample size, and the rest in its name, "134217728 bytes among
// 0+1*8". If the span is no such evidence, ReadCollective returns false.
void PutCollective(const CollectiveTimes& times, v1::Evidence* evidence);
bool ReadCollective(const v1::Evidence& evidence, CollectiveTimes* times);

}  // namespace plumbline::timeline
