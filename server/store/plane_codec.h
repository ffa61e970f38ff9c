// Encodes the cells of a tile in bytes that compress well: the shortest words that restore every
// bit, either above their minimum or as differences from the step before, byte plane by byte plane.
// Each plane is compressed separately, because planes of noise and constant planes need different
// codes.
//
// Bytes: form (1: of doubles, 2: of floats, 3: of decimals), differences (0 or 1), decimal places,
// 0, least word (u64), then, of words of 8 or 4 bytes, each plane from the lowest: 0 and its
// constant byte; 1 and its bytes; or 2, a size (u32) and a zstd frame. A first plane of 3 holds all
// planes in one frame: for tiles of few cells.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace plumbline::server {

// Not thread-safe: use one per thread.
class PlaneCodec {
 public:
  PlaneCodec();
  ~PlaneCodec();
  // Appends `cells`, [steps, columns] in C order, to *out. Throws bad_alloc.
  void Encode(const std::vector<double>& cells, size_t columns, std::string* out);
  // Decodes `count` cells into *cells. Returns false if the bytes do not hold them.
  bool Decode(std::string_view bytes, size_t count, size_t columns, std::vector<double>* cells);

 private:
  struct Scratch;
  std::unique_ptr<Scratch> scratch_;
};

}  // namespace plumbline::server
