#include "audit/readers/checkpoint/row_digests.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

namespace plumbline::audit {
namespace {

constexpr uint64_t kStart = 0x243f6a8885a308d3ull, kFactor = 0x9e3779b97f4a7c15ull;

// Mixes a word into a state. If the state is fixed, the function is a bijection of the word; if the
// word is fixed, a bijection of the state.
uint64_t Mixed(uint64_t state, uint64_t word) {
  state = (state ^ word) * kFactor;
  return state ^ (state >> 32);
}

}  // namespace

bool RowDigests::Suits(const StoredTensor& tensor) {
  if (tensor.shape.size() < 2 || tensor.shape[0] < 2 || DTypeSize(tensor.dtype) == 0) return false;
  return tensor.elements() / tensor.shape[0] >= kFewestElements;
}

RowDigests::RowDigests(const StoredTensor& tensor) {
  const auto rows = static_cast<uint64_t>(tensor.shape[0]);
  row_bytes_ = tensor.bytes() / rows;
  every_ = (rows + kMostRows - 1) / kMostRows;
  std::fill(std::begin(states_), std::end(states_), kStart);
  rows_.reserve(static_cast<size_t>((rows + every_ - 1) / every_));
}

void RowDigests::Add(const std::byte* data, size_t size) {
  while (size > 0) {
    auto part = static_cast<size_t>(std::min<uint64_t>(size, row_bytes_ - at_));
    at_ += part;
    size -= part;
    const std::byte* next = data + part;
    if (row_ % every_ == 0) {
      // Complete a word that the preceding piece split.
      while (tail_size_ > 0 && part > 0) {
        tail_[tail_size_++] = *data++;
        --part;
        if (tail_size_ < sizeof tail_) continue;
        uint64_t word = 0;
        std::memcpy(&word, tail_, sizeof word);
        Word(word);
        tail_size_ = 0;
      }
      // While the next word belongs to the first lane, takes four words at a time.
      for (; lane_ == 0 && part >= kLanes * sizeof(uint64_t);
           part -= kLanes * sizeof(uint64_t), data += kLanes * sizeof(uint64_t)) {
        uint64_t words[kLanes];
        std::memcpy(words, data, sizeof words);
        for (size_t i = 0; i < kLanes; ++i) {
          any_ |= words[i];
          states_[i] = Mixed(states_[i], words[i]);
        }
      }
      for (; part >= sizeof(uint64_t); part -= sizeof(uint64_t), data += sizeof(uint64_t)) {
        uint64_t word = 0;
        std::memcpy(&word, data, sizeof word);
        Word(word);
      }
      for (; part > 0; --part) tail_[tail_size_++] = *data++;
    }
    data = next;
    if (at_ == row_bytes_) EndRow();
  }
}

void RowDigests::Word(uint64_t word) {
  any_ |= word;
  states_[lane_] = Mixed(states_[lane_], word);
  lane_ = (lane_ + 1) % kLanes;
}

void RowDigests::EndRow() {
  if (row_ % every_ == 0) {
    if (tail_size_ > 0) {
      uint64_t word = 0;
      std::memcpy(&word, tail_, tail_size_);
      Word(word);
    }
    uint64_t digest = states_[0];
    for (size_t i = 1; i < kLanes; ++i) digest = Mixed(digest, states_[i]);
    rows_.push_back({row_, any_ == 0 ? 0 : std::max<uint64_t>(digest >> 1, 1)});
  }
  ++row_;
  at_ = any_ = 0;
  tail_size_ = lane_ = 0;
  std::fill(std::begin(states_), std::end(states_), kStart);
}

std::vector<RepeatedRow> RowDigests::Repeated() const {
  std::vector<RepeatedRow> sorted = rows_;
  std::sort(sorted.begin(), sorted.end(), [](const RepeatedRow& a, const RepeatedRow& b) {
    return std::pair(a.digest, a.row) < std::pair(b.digest, b.row);
  });
  std::vector<RepeatedRow> out;
  for (size_t i = 0; i < sorted.size(); ++i) {
    const bool before = i > 0 && sorted[i - 1].digest == sorted[i].digest;
    const bool after = i + 1 < sorted.size() && sorted[i + 1].digest == sorted[i].digest;
    if (before || after || sorted[i].digest == 0) out.push_back(sorted[i]);
  }
  std::sort(out.begin(), out.end(),
            [](const RepeatedRow& a, const RepeatedRow& b) { return a.row < b.row; });
  if (out.size() > kMostRepeated) out.resize(kMostRepeated);
  return out;
}

}  // namespace plumbline::audit
