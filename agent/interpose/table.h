// Counts calls in this process's table (base/call_table.h). Lock-free after the first call.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/call_table.h"

namespace plumbline::interpose {

// Zeroed by the kernel in a forked child, which then opens a table of its own.
struct State {
  std::atomic<CallTable*> table;
  std::atomic<uint32_t> phase;  // 0: not opened, 1: being opened, 2: open, 3: no table
};
extern std::atomic<State*> process_state;

// Opens the table if that was not tried yet. Returns null if there is none. Preserves errno.
CallTable* OpenTable();

inline CallTable* Table() {
  const State* state = process_state.load(std::memory_order_acquire);
  if (__builtin_expect(state != nullptr, 1)) {
    CallTable* table = state->table.load(std::memory_order_acquire);
    if (__builtin_expect(table != nullptr, 1)) return table;
  }
  return OpenTable();
}

// Adds one call of a kind, as WordOf() has it. `count` and `root`: of a collective.
void CountWord(uint64_t kind, uint64_t count, uint32_t root);
inline void Count(const CallKind& kind) { CountWord(WordOf(kind), 0, 0); }

// Adds a collective: counts it, and appends it to the log of its communicator, which `kind` has,
// too.
void CountCollective(uint64_t kind, uint8_t comm, uint64_t count, uint32_t root);

// Returns the index of a communicator, which it adds if it is new; kNoCallNumber: there is no
// place.
uint8_t CommOf(uint64_t pointer);

}  // namespace plumbline::interpose
