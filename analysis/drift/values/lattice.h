// Tests whether d lies on multiples of one power of two. It does if both sides' logits were rounded
// to 16 bits: their difference is a multiple of the format's unit, and the two log-sums are nearly
// equal. Rounding on one side, or noise, does not have this effect. Not thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/archive.h"

namespace plumbline::analysis {

// Counts the |d| of at least half a unit that are within a tenth of a unit of a multiple. By chance
// a fifth of them are, or fewer if the density falls.
struct Lattice {
  // True if at least half of them are, this exceeds a fifth by 8 deviations, and each of four
  // multiples (with signs) has at least a tenth of these. The last condition excludes one repeated
  // context, whose tokens are at one or two multiples.
  bool found = false;
  double unit = 0;
  uint64_t tokens = 0;  // tokens with distinct |d| of at least half a unit
  double share = 0;     // share within a tenth of a unit
};

class DriftLattice {
 public:
  // `d` must be finite. Equal values count once, because a repeated context would repeat its phase.
  // Ignores further values after about 30,000 distinct ones.
  void Add(double d);
  // Returns the coarsest unit found, of 2^-9 .. 2^-2. If none is found, returns the one with the
  // largest share.
  Lattice Find() const;
  void Persist(Archive& a) { a(cells_, seen_, distinct_); }

 private:
  static constexpr double kFinest = 0x1p-9;
  static constexpr size_t kUnits = 8;
  static constexpr size_t kBits = size_t{1} << 16;
  static constexpr uint64_t kMost = kBits / 2;

  struct Cell {
    uint64_t tokens = 0;
    std::array<uint64_t, 8> near{};  // counts at multiples <= -4, -3 .. 3 without 0, >= 4
    void Persist(Archive& a) { a(tokens, near); }
  };
  std::array<Cell, kUnits> cells_{};
  std::vector<uint64_t> seen_;  // bits, indexed by a hash of |d|
  uint64_t distinct_ = 0;
};

}  // namespace plumbline::analysis
