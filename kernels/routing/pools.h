// Counts the loads in each pool: the part of the routing measurement for tokens that competed.
//
// A cell is an (expert, pool) pair, a unit a sequence within a pool. Each choice with a known fate
// adds to its cell (held, refused, the lowest score kept, the highest refused) and to that of its
// unit (the first refusal and the last admission in time). A fold over the cells gives
// RoutingPools, of fixed size. A witness is looked up only if a unit shows an inversion. Everything
// is a sum, a minimum or a maximum of integers, so no order of threads changes a bit. The same code
// runs on a device and on the host. `Ops` has
//   Add(u32*, n)  returns the former value     Max(u64*, v)
//   Swap(u64*, expected, desired)             compare and swap, returns the former value
//   Peek(p)                                   a load that sees other threads' stores
#pragma once

#include <cstdint>

#include "kernels/core/device_code.h"
#include "kernels/routing/plan.h"
#include "kernels/routing/row.h"

namespace plumbline {

// ---- memory --------------------------------------------------------------------------------

// Maps 64-bit ids to dense numbers 0, 1, ...; open addressing. Zeroed before use.
template <uint32_t Most>
struct IdTable {
  static constexpr uint32_t kMost = Most;
  static constexpr uint32_t kSlots = 2 * Most;  // a power of two
  uint64_t key[kSlots];                         // 0: free
  uint32_t number[kSlots];
  uint32_t count;  // if above kMost, there are too many, and the numbers must not be used
};

// Zero is the start of every field: minima are kept as maxima of the complement.
struct PoolCell {
  uint32_t held;
  uint32_t refused;
  uint64_t lowest_kept;  // complement of the order key
  uint64_t highest_refused;
};
struct UnitCell {
  uint64_t first_refused;  // complement of its time
  uint64_t last_kept;      // its time
};

struct PoolTables {
  IdTable<kMaxPools> pools;
  IdTable<kMaxUnits> units;
};

// The memory of one call; the cells are [number][expert].
struct PoolMemory {
  PoolTables* tables = nullptr;  // null: not measured
  PoolCell* cells = nullptr;
  UnitCell* unit_cells = nullptr;
};

// ---- keys ----------------------------------------------------------------------------------

// Orders like the value, and is never 0; NaN has no key.
PLUMB_HD inline uint64_t OrderKey(double x) {
  const uint64_t bits = __builtin_bit_cast(uint64_t, x == 0 ? 0.0 : x);
  return (bits >> 63) != 0 ? ~bits : bits | 0x8000000000000000ull;
}

// A bijection of 64 bits that spreads neighbours (splitmix64's finaliser).
PLUMB_HD inline uint64_t Spread(uint64_t v) {
  v = (v ^ (v >> 30)) * 0xbf58476d1ce4e5b9ull;
  v = (v ^ (v >> 27)) * 0x94d049bb133111ebull;
  return v ^ (v >> 31);
}
PLUMB_HD inline uint64_t NotZero(uint64_t v) { return v == 0 ? 1 : v; }

PLUMB_HD inline uint64_t PoolKey(const RoutingPlan& plan, int64_t row) {
  const int64_t id = plan.pool.present() ? plan.pool.Integer(row) : 0;
  return NotZero(Spread(static_cast<uint64_t>(id) + 0x9e3779b97f4a7c15ull));
}
PLUMB_HD inline uint64_t UnitKey(const RoutingPlan& plan, int64_t row) {
  return NotZero(Spread(PoolKey(plan, row) + static_cast<uint64_t>(plan.sequence.Integer(row))));
}

// Packs position and row in one word, so that the first and the last identify their rows; never 0.
inline constexpr int kRowBits = 27;
PLUMB_HD inline uint64_t TimeOf(int64_t position, int64_t row) {
  return static_cast<uint64_t>(position) << kRowBits | static_cast<uint64_t>(row + 1);
}
PLUMB_HD inline int64_t RowOfTime(uint64_t time) {
  return static_cast<int64_t>(time & ((uint64_t{1} << kRowBits) - 1)) - 1;
}

// ---- counting ------------------------------------------------------------------------------

// Enters an id; its number is final once every id has been entered.
template <typename Ops, uint32_t Most>
PLUMB_DEVICE void EnterId(uint64_t key, IdTable<Most>* table) {
  using Table = IdTable<Most>;
  uint32_t slot = static_cast<uint32_t>(key) & (Table::kSlots - 1);
  while (Ops::Peek(&table->count) <= Table::kMost) {
    uint64_t there = Ops::Peek(&table->key[slot]);
    if (there == 0) there = Ops::Swap(&table->key[slot], 0, key);
    if (there == key) return;
    if (there == 0) {
      table->number[slot] = Ops::Add(&table->count, 1);
      return;
    }
    slot = (slot + 1) & (Table::kSlots - 1);
  }
}

// Returns the number of an id that was entered into a table that did not overflow.
template <uint32_t Most>
PLUMB_HD inline uint32_t NumberOf(uint64_t key, const IdTable<Most>& table) {
  uint32_t slot = static_cast<uint32_t>(key) & (IdTable<Most>::kSlots - 1);
  while (table.key[slot] != key) slot = (slot + 1) & (IdTable<Most>::kSlots - 1);
  return table.number[slot];
}

PLUMB_HD inline bool PoolsMeasured(const PoolMemory& m) {
  return m.tables != nullptr && m.tables->pools.count <= kMaxPools;
}
PLUMB_HD inline bool UnitsMeasured(const PoolMemory& m) {
  return PoolsMeasured(m) && m.unit_cells != nullptr && m.tables->units.count <= kMaxUnits;
}

// Enters a row's pool and unit.
template <typename Ops>
PLUMB_DEVICE void EnterRow(const RoutingPlan& plan, int64_t row, const PoolMemory& m) {
  EnterId<Ops>(PoolKey(plan, row), &m.tables->pools);
  if (plan.units_known) EnterId<Ops>(UnitKey(plan, row), &m.tables->units);
}

// Counts a choice with a known fate. Refused choices of padding rows are no loss and are not
// passed.
template <typename Ops>
PLUMB_CALLED void CountFate(const RoutingPlan& plan, PoolMemory m, int64_t row, int32_t e,
                            bool kept, bool padding) {
  if (!PoolsMeasured(m)) return;
  const auto experts = static_cast<size_t>(plan.rule.experts);
  const auto expert = static_cast<size_t>(e);
  const size_t pool = plan.pool.present() ? NumberOf(PoolKey(plan, row), m.tables->pools) : 0;
  PoolCell& cell = m.cells[pool * experts + expert];
  Ops::Add(kept ? &cell.held : &cell.refused, 1);
  if (padding) return;
  const double score = plan.scores.Number(row, e);
  if (score == score) {
    if (kept) {
      Ops::Max(&cell.lowest_kept, ~OrderKey(score));
    } else {
      Ops::Max(&cell.highest_refused, OrderKey(score));
    }
  }
  if (!UnitsMeasured(m)) return;
  const int64_t position = plan.position.Integer(row);
  if (position < 0 || position >= kMaxUnitPosition) return;
  const size_t unit = NumberOf(UnitKey(plan, row), m.tables->units);
  UnitCell& own = m.unit_cells[unit * experts + expert];
  const uint64_t time = TimeOf(position, row);
  if (kept) {
    Ops::Max(&own.last_kept, time);
  } else {
    Ops::Max(&own.first_refused, ~time);
  }
}

// ---- folding -------------------------------------------------------------------------------

// Folds one cell; `result` starts as zeros except the fields that EndPools sets.
template <typename Ops>
PLUMB_DEVICE void FoldCell(const PoolCell& cell, RoutingPools* result) {
  Ops::Max(&result->most_held, cell.held);
  if (cell.refused == 0) return;
  Ops::Add(&result->refusing_cells, 1);
  Ops::Max(&result->least_held_refusing, ~uint64_t{cell.held});
  Ops::Max(&result->most_held_refusing, cell.held);
  const bool apart = cell.lowest_kept == 0 || cell.highest_refused == 0 ||
                     ~cell.lowest_kept >= cell.highest_refused;
  if (apart) Ops::Add(&result->separable_cells, 1);
}

// Folds the key of the witness: the inversion with the lowest refused row, then the lowest expert.
template <typename Ops>
PLUMB_DEVICE void FoldUnitCell(const UnitCell& cell, int32_t expert, RoutingPools* result) {
  if (cell.first_refused == 0 || cell.last_kept == 0) return;
  const uint64_t refused = ~cell.first_refused;
  if ((refused >> kRowBits) >= (cell.last_kept >> kRowBits)) return;
  Ops::Add(&result->inverted_cells, 1);
  const auto row = static_cast<uint64_t>(RowOfTime(refused));
  Ops::Max(&result->witness, ~(row << 16 | static_cast<uint64_t>(expert)));
}

// Called by one thread, after the folds.
PLUMB_HD inline void EndPools(const RoutingPlan& plan, const PoolMemory& m, RoutingPools* result) {
  if (m.tables == nullptr) return;
  const uint32_t pools = m.tables->pools.count;
  const uint32_t units = m.tables->units.count;
  result->pools = pools <= kMaxPools ? pools : kMaxPools + 1;
  result->units = units <= kMaxUnits ? units : kMaxUnits + 1;
  if (result->inverted_cells == 0) return;
  const uint64_t key = ~result->witness;
  result->refused_row = static_cast<int64_t>(key >> 16);
  result->expert = static_cast<int32_t>(key & 0xffff);
  const size_t unit = NumberOf(UnitKey(plan, result->refused_row), m.tables->units);
  const size_t at = unit * static_cast<size_t>(plan.rule.experts) + (key & 0xffff);
  result->admitted_row = RowOfTime(m.unit_cells[at].last_kept);
}

}  // namespace plumbline
