// How long collectives take for the bytes that they move: what a trace's kernels say of themselves
// (operation, elements, dtype, members), by group.
//
// A kernel's time has waiting in it: for members that come later, and for a link that another
// collective uses at the same time. So calls that overlap with other communication are left out,
// and of the rest the tenth that is done soonest speaks: among many calls each member is the last
// to come now and then.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/timeline/columns.h"
#include "plumbline/v1/evidence.pb.h"

namespace plumbline::timeline {

// The site's layer begins so: "collectives of 8 ranks". Its op is the operation.
inline constexpr std::string_view kCollectivesLayer = "collectives of ";

// Of calls that move at least so much; others are ruled by latency.
inline constexpr uint64_t kManyBytes = 16u << 20;

// "allreduce", "_allgather_base", "ncclDevKernel_ReduceScatter..." -> "all_reduce", ...; "": none
// that moves equal parts between all members.
std::string_view CollectiveOf(std::string_view name);
// Bytes of an element: "BFloat16" -> 2; 0: not known.
uint32_t BytesOfType(std::string_view dtype);
// B of a call; 0: not known. `in` and `out`: elements of this rank.
uint64_t WholeBytes(std::string_view op, uint64_t in, uint64_t out, uint32_t ranks,
                    uint32_t bytes_each);

// By (op, group, B), those of at least kManyBytes. The columns are sorted (Reduce).
std::vector<CollectiveTimes> CollectivesIn(const Columns& columns);

// Bytes that leave one member in a second: B(N-1)/(N T), for all-reduce twice that, for all-to-all
// one N-th. 0: wrong figures.
double BusBandwidth(const CollectiveTimes& times);

// How they travel: a span of kind collective, the shortest time its duration, the calls its sample
// size, the rest its name, "134217728 bytes among 0+1*8". Reading: false where it is none of ours.
void PutCollective(const CollectiveTimes& times, v1::Evidence* evidence);
bool ReadCollective(const v1::Evidence& evidence, CollectiveTimes* times);

}  // namespace plumbline::timeline
