// Which rows of a weight have the same bits, told while its elements stream by.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "audit/readers/checkpoint/stored_tensor.h"

namespace plumbline::audit {

struct RepeatedRow {
  uint64_t row = 0;     // index on the first axis
  uint64_t digest = 0;  // of its bits, below 2^63; 0: all of them are 0
};

// A row is what lies behind one index of the first axis: a neuron's weights, a filter, an expert.
// Not thread-safe. Holds 16 bytes a row that is looked at.
class RowDigests {
 public:
  static constexpr uint64_t kMostRows = 65536;    // beyond, every n-th row is looked at
  static constexpr int64_t kFewestElements = 64;  // in a row: shorter ones meet by chance
  static constexpr size_t kMostRepeated = 4096;

  static bool Suits(const StoredTensor& tensor);

  // A tensor that suits.
  explicit RowDigests(const StoredTensor& tensor);
  // The next bytes of its elements in C order; any cut.
  void Add(const std::byte* data, size_t size);

  uint64_t looked_at() const { return rows_.size(); }
  // The rows that have another's bits, and those of zeros, by row: the first kMostRepeated.
  std::vector<RepeatedRow> Repeated() const;

 private:
  // Words of a row go to four states in turn: their multiplications need not wait for each other.
  static constexpr size_t kLanes = 4;

  void Word(uint64_t word);
  void EndRow();

  uint64_t row_bytes_ = 0;
  uint64_t every_ = 1;
  uint64_t row_ = 0;  // that is read
  uint64_t at_ = 0;   // bytes of it that were read
  uint64_t states_[kLanes] = {};
  size_t lane_ = 0;         // of the next word
  uint64_t any_ = 0;        // bits that are not 0
  std::byte tail_[8] = {};  // of a word that a cut divides
  size_t tail_size_ = 0;
  std::vector<RepeatedRow> rows_;
};

}  // namespace plumbline::audit
