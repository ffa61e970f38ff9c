// Finds the rows of a weight that have the same bits, while its elements are read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "audit/readers/checkpoint/stored_tensor.h"

namespace plumbline::audit {

struct RepeatedRow {
  uint64_t row = 0;     // index on the first axis
  uint64_t digest = 0;  // digest of its bits, below 2^63; 0 if all bits are 0
};

// A row is the part at one index of the first axis: a neuron's weights, a filter, an expert. Not
// thread-safe. Uses 16 bytes per row that is examined.
class RowDigests {
 public:
  static constexpr uint64_t kMostRows = 65536;  // if there are more, only every n-th row is
                                                // examined
  // Elements per row; shorter rows may be equal by chance.
  static constexpr int64_t kFewestElements = 64;
  static constexpr size_t kMostRepeated = 4096;

  static bool Suits(const StoredTensor& tensor);

  // Requires Suits(tensor).
  explicit RowDigests(const StoredTensor& tensor);
  // Adds the next bytes of the tensor in C order. Pieces may have any size.
  void Add(const std::byte* data, size_t size);

  uint64_t looked_at() const { return rows_.size(); }
  // Returns the rows that have the same bits as another row, and rows of zeros, in ascending order.
  // Returns at most kMostRepeated.
  std::vector<RepeatedRow> Repeated() const;

 private:
  // The words of a row are mixed into four states in turn, so that their multiplications run in
  // parallel.
  static constexpr size_t kLanes = 4;

  void Word(uint64_t word);
  void EndRow();

  uint64_t row_bytes_ = 0;
  uint64_t every_ = 1;
  uint64_t row_ = 0;  // current row
  uint64_t at_ = 0;   // bytes read of the current row
  uint64_t states_[kLanes] = {};
  size_t lane_ = 0;         // lane of the next word
  uint64_t any_ = 0;        // OR of all words of the row
  std::byte tail_[8] = {};  // bytes of a word that the piece boundary splits
  size_t tail_size_ = 0;
  std::vector<RepeatedRow> rows_;
};

}  // namespace plumbline::audit
