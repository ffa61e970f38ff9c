// Does d lie on multiples of one power of two? It does where both sides' logits were rounded to 16
// bits: their difference is then a multiple of the format's unit, and the two log-sums are nearly
// equal. One side's rounding, or noise, leaves no such mark. Not thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/archive.h"

namespace plumbline::rules {

// Of |d| of at least half a unit, those within a tenth of a unit of a multiple: a fifth of them by
// chance, fewer where the density falls.
struct Lattice {
  // At least half of them, 8 deviations more than a fifth, and a tenth and more of these at
  // each of four multiples, signs apart: tokens of one context that repeats lie together, which may
  // be at any one multiple or two.
  bool found = false;
  double unit = 0;
  uint64_t tokens = 0;  // with distinct |d| of at least half a unit
  double share = 0;     // within a tenth
};

class DriftLattice {
 public:
  // Finite. Equal values count once (a context that repeats would repeat its phase); beyond some
  // 30,000 distinct ones nothing more is counted.
  void Add(double d);
  // The coarsest unit that is found, of 2^-9 .. 2^-2; if none, that of the largest share.
  Lattice Find() const;
  void Persist(Archive& a) { a(cells_, seen_, distinct_); }

 private:
  static constexpr double kFinest = 0x1p-9;
  static constexpr size_t kUnits = 8;
  static constexpr size_t kBits = size_t{1} << 16;
  static constexpr uint64_t kMost = kBits / 2;

  struct Cell {
    uint64_t tokens = 0;
    std::array<uint64_t, 8> near{};  // at -4 and beyond, -3 .. 3, 4 and beyond, not 0
    void Persist(Archive& a) { a(tokens, near); }
  };
  std::array<Cell, kUnits> cells_{};
  std::vector<uint64_t> seen_;  // bits, by a hash of |d|
  uint64_t distinct_ = 0;
};

}  // namespace plumbline::rules
