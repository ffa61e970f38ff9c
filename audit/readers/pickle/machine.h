// The restricted reader of pickles, protocols 0 to 5. It builds values and runs nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "audit/readers/input/reader.h"
#include "audit/readers/pickle/value.h"

namespace plumbline::audit {

// Beyond any of them but `plain` a pickle is refused. Memory is bounded by them and the bytes
// alone: some 40 bytes a value, 4 an item, 8 a place of the memo.
struct PickleLimits {
  uint64_t bytes = 64u << 20;
  size_t values = 2u << 20;  // that are kept
  // Of plain values in long lists, sets and dicts (loss histories, vocabularies) so many are kept;
  // a run stands for each of the others (PickleRun).
  size_t plain = 1u << 19;
  // Containers of fewer values of their own are kept: what they cost their bytes pay for, and they
  // may be a trainer's state.
  size_t few = 256;
  std::string_view whole = {};  // but for the lists that a dict has under this key
  size_t items = 6u << 20;      // of all containers together
  size_t stack = 1u << 20;      // values that wait
  size_t marks = 1u << 16;      // that wait
  size_t memo = 6u << 20;
  size_t depth = 200;          // containers in containers
  uint64_t spread = 1u << 24;  // values, a shared one counted wherever it is used
  size_t name = 512;           // bytes of a module or a name in it
  size_t digits = 320;         // of a whole number, as bytes or in decimal
  size_t globals = 4096;       // different ones
};

// One pickle at the begin of `data`, which outlives the tree; `*used`, where given, are its bytes,
// the last being its STOP. The problem, with its offset from the begin of `data`, or nothing.
// Time and memory are linear in the bytes.
std::optional<Problem> ParsePickle(std::string_view data, PickleTree* tree, size_t* used = nullptr,
                                   const PickleLimits& limits = {});

}  // namespace plumbline::audit
