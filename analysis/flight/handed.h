// What members hand to one collective, as the communication library takes it: counts of elements,
// or bytes where it only moves them. The shape of a tensor is no affair of the library's: [1024,8]
// and [8192] are the same call.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/flight/recorder.h"

namespace plumbline::flight {

// Nothing is computed on the way: all-gather, broadcast, all-to-all, gather, scatter. What differs
// in dtype is no other call, if it has as many bytes.
bool MovesOnly(std::string_view kind);

// Bytes an element of a dtype as PyTorch names it ("BFloat16"); 0: not known.
uint32_t WidthOf(std::string_view dtype);

// "[1024,8],[3]" -> 8192, 3. Nothing: an extent is not known, or the count is beyond 2^63.
struct Counts {
  std::vector<uint64_t> tensors;
  bool whole = true;  // false: the text was cut, more tensors follow
};
std::optional<Counts> CountsIn(std::string_view shapes);

// One text an operation of `ops`, in their order: equal where the library sees no difference; empty
// where it cannot be compared. `outputs`: of what comes out, else of what goes in. `in_bytes`: the
// width of each dtype is known, and counts. The list that an all-gather gives out, or a
// reduce-scatter takes in, is one tensor or one a member: its sum counts.
std::vector<std::string> Comparable(const std::vector<const Op*>& ops, bool outputs, bool in_bytes);

}  // namespace plumbline::flight
