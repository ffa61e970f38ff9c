// Pairs the same elements of two tensors, for any layouts: merged or sharded, dense or strided.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "audit/checkpoints/side.h"
#include "audit/readers/checkpoint/scan.h"

namespace plumbline::audit {

// A box of elements that both sides have, of one shape.
struct Piece {
  TensorPart a, b;
  std::vector<int64_t> at;  // index of its first element, in the whole tensor
};

// How two tensors cover each other.
struct Layout {
  std::string wrong;           // why they cannot be compared; empty if they can
  std::vector<int64_t> shape;  // shape of the whole tensor
  std::vector<Piece> pieces;   // cover the whole, each element once (for copies, once per copy)
  bool copies = false;         // true if the ranks hold copies, so that the pieces repeat the whole
  std::string how;             // set by InterleavedLayouts: the blocks of the parts
};

// Pairs one part with many, or many parts with as many. Parts are joined along the one axis on
// which their extents add up. Parts that have the shape of the whole are copies of it.
Layout LayOver(const std::vector<TensorPart>& a, const std::vector<TensorPart>& b);

// Returns the block layouts of one whole tensor against equal parts of its first axis. A rank holds
// its share of each block of a fused weight (gate and up of a gated MLP; query, key and value), and
// the whole holds block after block. Tries two equal blocks, and one of g * n rows with two of n,
// for the common g from 1 to 64, if the extents allow them: at most 13. If the tensors do not have
// this form, returns none.
std::vector<Layout> InterleavedLayouts(const std::vector<TensorPart>& a,
                                       const std::vector<TensorPart>& b);

// A box read from both sides: `count` elements, dense in C order, each in its own dtype.
struct Box {
  const std::byte *a = nullptr, *b = nullptr;
  size_t count = 0;
  std::vector<int64_t> at;     // index of its first element, in the whole tensor
  std::vector<int64_t> shape;  // shape of the box
};

// Returns the index of element `n` of a box, in the whole tensor.
std::vector<int64_t> IndexOf(const Box& box, size_t n);

// Reads pieces of two tensors. Not thread-safe. Holds two boxes and the scan buffers: about 80 MiB.
class PieceReader {
 public:
  static constexpr int64_t kMostOfBox = int64_t{1} << 20;  // elements

  // Reads all boxes of a piece, in C order. Stops if `take` returns false.
  absl::Status Read(const Piece& piece, const std::function<bool(const Box&)>& take);
  // Reads the elements of one side.
  absl::Status ReadOne(const TensorPart& part, std::vector<std::byte>* elements) {
    return scan_a_.Read(*part.file, part.place, elements);
  }
  TensorScan& scan() { return scan_a_; }

 private:
  absl::Status ReadFrom(const Piece& piece, size_t axis,
                        const std::function<bool(const Box&)>& take, bool* stop);

  TensorScan scan_a_, scan_b_;
  std::vector<std::byte> a_, b_;
};

}  // namespace plumbline::audit
