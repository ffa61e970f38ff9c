// The cells of a tile as bytes that compress: the shortest words that give back every bit of them,
// either above their least or as differences from the step before, byte plane by byte plane, each
// compressed by itself (planes of noise and planes of nothing do not share a code).
//
// Bytes: form (1: of doubles, 2: of floats, 3: of decimals), differences (0 or 1), decimal places,
// 0, least word (u64), then, of words of 8 or 4 bytes, each plane from the lowest: 0 and the byte
// that it is full of; 1 and its bytes; or 2, a size (u32) and a zstd frame. A plane 3 is the first
// and holds all of them in one frame: for tiles of few cells.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace plumbline::server {

// Not thread-safe: one a thread.
class PlaneCodec {
 public:
  PlaneCodec();
  ~PlaneCodec();
  // Appends `cells`, [steps, columns] in C order, to *out. Throws bad_alloc.
  void Encode(const std::vector<double>& cells, size_t columns, std::string* out);
  // False: these are not the bytes of so many cells. Replaces *cells.
  bool Decode(std::string_view bytes, size_t count, size_t columns, std::vector<double>* cells);

 private:
  struct Scratch;
  std::unique_ptr<Scratch> scratch_;
};

}  // namespace plumbline::server
