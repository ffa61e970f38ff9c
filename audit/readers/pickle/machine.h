// A restricted reader of pickles, protocols 0 to 5. It builds values and executes nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "audit/readers/input/reader.h"
#include "audit/readers/pickle/value.h"

namespace plumbline::audit {

// If a pickle exceeds any limit but `plain`, it is refused. Memory is bounded by the limits and the
// bytes: about 40 bytes per value, 4 per item, 8 per memo entry.
struct PickleLimits {
  uint64_t bytes = 64u << 20;
  size_t values = 2u << 20;  // limit of kept values
  // Number of plain values in long lists, sets and dicts (loss histories, vocabularies) that are
  // kept; a run represents the others (PickleRun).
  size_t plain = 1u << 19;
  // Containers with fewer direct values are always kept, because their bytes bound the cost, and
  // they may be a trainer's state.
  size_t few = 256;
  std::string_view whole = {};  // a list that a dict has under this key is kept whole
  size_t items = 6u << 20;      // limit of items of all containers together
  size_t stack = 1u << 20;      // values on the stack
  size_t marks = 1u << 16;      // open marks
  size_t memo = 6u << 20;
  size_t depth = 200;          // nested containers
  uint64_t spread = 1u << 24;  // number of values, in which a shared value counts at each use
  size_t name = 512;           // bytes of the name of a module, or of a name in it
  size_t digits = 320;         // digits or bytes of an integer
  size_t globals = 4096;       // number of distinct globals
};

// Parses one pickle at the start of `data`, which must outlive the tree. If `used` is given, sets
// *used to the bytes of the pickle, up to its STOP. Returns the problem, with its offset in `data`,
// or nothing. Time and memory are linear in the bytes.
std::optional<Problem> ParsePickle(std::string_view data, PickleTree* tree, size_t* used = nullptr,
                                   const PickleLimits& limits = {});

}  // namespace plumbline::audit
