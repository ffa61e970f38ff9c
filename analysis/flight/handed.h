// The data that members pass to one collective, as the communication library compares it: counts of
// elements, or bytes if it only moves them. The library ignores the shape of a tensor: [1024,8] and
// [8192] are the same call.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/flight/recorder.h"

namespace plumbline::flight {

// Returns true if nothing is computed: all-gather, broadcast, all-to-all, gather, scatter. If
// dtypes differ but the bytes are equal, it is the same call.
bool MovesOnly(std::string_view kind);

// Returns the bytes per element of a dtype by PyTorch's name ("BFloat16"). If it is not known,
// returns 0.
uint32_t WidthOf(std::string_view dtype);

// Counts of elements: "[1024,8],[3]" gives 8192, 3. If an extent is not known, or a count exceeds
// 2^63, CountsIn returns nullopt.
struct Counts {
  std::vector<uint64_t> tensors;
  bool whole = true;  // false if the text was cut and more tensors follow
};
std::optional<Counts> CountsIn(std::string_view shapes);

// Returns one text per operation of `ops`, in their order. Texts are equal if the library sees no
// difference, and empty if an operation cannot be compared. `outputs` selects the outputs, else the
// inputs. `in_bytes` is true if the width of each dtype is known; then bytes are compared. The list
// that an all-gather returns, or a reduce-scatter takes, is one tensor or one per member, so its
// sum counts.
std::vector<std::string> Comparable(const std::vector<const Op*>& ops, bool outputs, bool in_bytes);

}  // namespace plumbline::flight
