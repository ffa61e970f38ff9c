// Capacity at a router: which (expert, pool) cells are full, and who was refused while a later
// token was admitted. Spec: routing causality, steps 3 and 4.
#pragma once

#include <bit>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "rules/lib/routing_case.h"

namespace plumbline::rules {

// One expert in one pool.
struct Cell {
  int32_t expert = 0;
  int32_t pool = 0;
  int64_t kept = 0;     // K: admitted, padding included
  int64_t refused = 0;  // D: known refusals of judged rows
  int64_t candidates() const { return kept + refused; }
};

struct Saturation {
  enum class Basis { kNone, kDeclared, kExhibited };
  Basis basis = Basis::kNone;
  std::string
      contradiction;  // not empty: pool or capacity are not as recorded ("short-id: sentence")
  double bits = 0;    // of kExhibited: that equal holdings are no accident
  double holding_bits = 0;        // the same over all refusing cells, whether C was declared or not
  int64_t distinct_refusing = 0;  // refusing cells whose scores do not repeat another's
  std::vector<Cell> cells;        // index = pool * experts + expert
  std::vector<uint8_t> full;      // per cell: holds exactly its capacity
  int64_t full_experts = 0;       // experts with at least one full cell
  int64_t refusing_cells = 0;
  int64_t capacity = 0;  // of the largest pool size that refuses; 0: unknown
};

Saturation FindSaturation(const RoutingCase& c);

// Refused token n, admitted token m, same expert and pool.
struct RefusalPair {
  int32_t refused = -1;
  int32_t admitted = -1;
  int32_t expert = -1;
  int16_t rank = -1;
  bool found() const { return refused >= 0; }
};

struct Inversions {
  int64_t inversions = 0;      // refused choices with a later admission there in their own sequence
  int64_t cross_sequence = 0;  // refused choices at an expert that kept another sequence's token
  RefusalPair any;     // same sequence, refused earlier than admitted, whatever the choice ranks
  RefusalPair future;  // same sequence and choice rank, refused earlier than admitted
  double future_bits = 0;  // against a cause other than capacity
  RefusalPair batch;       // of two sequences
  double batch_bits = 0;
  int64_t single_sequence_pools = 0;  // pools with judged rows of one sequence only
};

// Needs c.ordered().
Inversions FindInversions(const RoutingCase& c, const Saturation& s);

// Marks the cells (of candidates, or of whole columns) whose scores repeat another cell's of the
// same expert bit for bit: a text that occurs twice is evidence once.
class DistinctCells {
 public:
  // Begins one cell; true from Fresh() when none with the same scores was seen.
  void Add(double score) {
    hash_ = (hash_ ^ std::bit_cast<uint64_t>(score)) * 0x9e3779b97f4a7c15ull + (hash_ >> 29);
  }
  bool Fresh(int32_t expert) { return seen_.insert({expert, std::exchange(hash_, 0)}).second; }

 private:
  uint64_t hash_ = 0;
  std::set<std::pair<int32_t, uint64_t>> seen_;
};

// log2 of the binomial coefficient.
double Log2Choose(double n, double k);

}  // namespace plumbline::rules
