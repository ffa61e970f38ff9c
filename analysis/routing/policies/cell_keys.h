// Keys of the candidates of cells, one key kind at a time: a few cells at once to see whether a
// policy fits at all, or all of them row by row.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "analysis/routing/call/call.h"

namespace plumbline::rules {

// What of a row's keys one of its choices queues by.
enum class QueueBy : uint8_t { kChoice, kBestOfRow, kSumOfRow };

// The key by which choice `at` of a row queues, `row` as RowKeyReader::Keys has it.
Key QueueKey(const std::vector<Key>& row, size_t at, QueueBy by);

// The keys of every `stride`-th of the choices that are listed, one by one.
std::array<std::vector<Key>, 3> KeysOfSome(const RoutingCase& c, std::span<const int32_t> choices,
                                           size_t stride, KeyKind kind);

// The keys of c.choices, in their order: of all choices of judged rows that have one in an included
// cell (index in Saturation::cells); others are left zero. By several threads in a large call.
std::vector<Key> KeysOfChoices(const RoutingCase& c, const std::vector<uint8_t>& included,
                               KeyKind kind, QueueBy by = QueueBy::kChoice);

// The same cell by cell, for several policies in turn. Rows are read as they are needed: most
// policies are refuted by the first cell. Not thread-safe; borrows what it is given.
class CellKeys {
 public:
  CellKeys(const RoutingCase& c, const CellChoices& cells, KeyKind kind)
      : c_(c), cells_(cells), kind_(kind) {}

  // Of cell `cell`'s candidates, in their order; valid until the next call. `fits`: later cells
  // will be asked for too.
  std::span<const Key> Cell(size_t cell, QueueBy by, bool fits);
  // Of every `stride`-th candidate of the first cell.
  std::span<const Key> Sample(QueueBy by, size_t stride);

 private:
  using Keys = std::array<std::vector<Key>, 3>;  // by QueueBy

  Keys ReadCell(size_t cell) const;

  const RoutingCase& c_;
  const CellChoices& cells_;
  KeyKind kind_;
  std::map<size_t, Keys> read_;  // cells that were read alone
  Keys sample_;
  std::vector<Key> rest_;  // KeysOfChoices of the cells from rest_from_ on
  size_t rest_from_ = 0;
  QueueBy rest_by_ = QueueBy::kChoice;
  std::vector<Key> gathered_;  // of one cell
};

}  // namespace plumbline::rules
