// The same elements of two tensors, whatever the layouts: merged or in shards, dense or strided.
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

// A box of elements on both sides, of one shape.
struct Piece {
  TensorPart a, b;
  std::vector<int64_t> at;  // of its first element, in the whole tensor
};

// How two tensors lie over each other.
struct Layout {
  std::string wrong;           // why they cannot be held against each other; empty: they can
  std::vector<int64_t> shape;  // of the whole
  std::vector<Piece> pieces;   // together all of it, each element once (of copies each copy)
  bool copies = false;         // ranks hold the same, so the pieces repeat the whole
  std::string how;             // of InterleavedLayouts: what blocks the parts consist of
};

// Parts of one rank against parts of many, or of many against as many. Parts add up along the one
// axis on which their extents do; parts of the whole's shape are copies of it.
Layout LayOver(const std::vector<TensorPart>& a, const std::vector<TensorPart>& b);

// One whole tensor against equal parts of its first axis that consist of blocks: of fused weights a
// rank holds its share of each (gate and up of a gated MLP; query, key and value), while the whole
// holds block after block. Two equal blocks, and one of g * n rows beside two of n for the g that
// people use, 1 to 64, where the extents allow them: at most 13. None: no such tensors.
std::vector<Layout> InterleavedLayouts(const std::vector<TensorPart>& a,
                                       const std::vector<TensorPart>& b);

// A box that was read from both: `count` elements, dense in C order, each in its own dtype.
struct Box {
  const std::byte *a = nullptr, *b = nullptr;
  size_t count = 0;
  std::vector<int64_t> at;     // of its first element, in the whole tensor
  std::vector<int64_t> shape;  // of the box
};

// Not thread-safe. Holds two boxes and the scans' buffers: some 80 MiB.
class PieceReader {
 public:
  static constexpr int64_t kMostOfBox = int64_t{1} << 20;  // elements

  // All boxes of a piece, in C order. Stops with what `take` returns false for.
  absl::Status Read(const Piece& piece, const std::function<bool(const Box&)>& take);
  // The elements of one side.
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
