// Reads the keys of cells' candidates, one key kind at a time: a few cells first, to test whether a
// policy fits at all, or all of them row by row.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "analysis/routing/call/call.h"

namespace plumbline::analysis {

// The value, computed from a row's keys, by which one of its choices queues.
enum class QueueBy : uint8_t { kChoice, kBestOfRow, kSumOfRow };

// Returns the key by which choice `at` of a row queues. `row` is the result of RowKeyReader::Keys.
Key QueueKey(const std::vector<Key>& row, size_t at, QueueBy by);

// Returns the keys of every `stride`-th listed choice.
std::array<std::vector<Key>, 3> KeysOfSome(const RoutingCase& c, std::span<const int32_t> choices,
                                           size_t stride, KeyKind kind);

// Returns the keys of c.choices, in their order. Only choices of judged rows that have one in an
// included cell (index in Saturation::cells) are set; the others are zero. Uses several threads in
// a large call.
std::vector<Key> KeysOfChoices(const RoutingCase& c, const std::vector<uint8_t>& included,
                               KeyKind kind, QueueBy by = QueueBy::kChoice);

// Reads the same keys cell by cell, for several policies in turn. Rows are read on demand, because
// the first cell refutes most policies. Not thread-safe. Borrows its arguments.
class CellKeys {
 public:
  CellKeys(const RoutingCase& c, const CellChoices& cells, KeyKind kind)
      : c_(c), cells_(cells), kind_(kind) {}

  // Returns the keys of the candidates of cell `cell`, in their order. Valid until the next call.
  // `fits` is true if later cells will be read too.
  std::span<const Key> Cell(size_t cell, QueueBy by, bool fits);
  // Returns the keys of every `stride`-th candidate of the first cell.
  std::span<const Key> Sample(QueueBy by, size_t stride);

 private:
  using Keys = std::array<std::vector<Key>, 3>;  // by QueueBy

  Keys ReadCell(size_t cell) const;

  const RoutingCase& c_;
  const CellChoices& cells_;
  KeyKind kind_;
  std::map<size_t, Keys> read_;  // cells that were read individually
  Keys sample_;
  std::vector<Key> rest_;  // KeysOfChoices from cell rest_from_ on
  size_t rest_from_ = 0;
  QueueBy rest_by_ = QueueBy::kChoice;
  std::vector<Key> gathered_;  // of one cell
};

}  // namespace plumbline::analysis
