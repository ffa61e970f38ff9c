// Capacity at a router: which (expert, pool) cells are full, and who was refused while a later
// token was admitted.
#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "analysis/routing/call/case.h"

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
  // Declared: a number of the configuration's. Exhibited: refusing experts hold one number.
  enum class Basis { kNone, kDeclared, kExhibited };
  Basis basis = Basis::kNone;
  std::string
      contradiction;  // not empty: pool or capacity are not as recorded ("short-id: sentence")
  double bits = 0;    // of kExhibited: that equal holdings are no accident
  std::vector<Cell> cells;    // index = pool * experts + expert
  std::vector<uint8_t> full;  // per cell: holds exactly its capacity
  int64_t full_experts = 0;   // experts with at least one full cell
  int64_t refusing_cells = 0;
  int64_t capacity = 0;  // of the largest pool size that refuses; 0: unknown
};

// Bits that a refusing cell holds just its number by no accident, if that number is known.
double HoldingBits(const Cell& cell);

Saturation FindSaturation(const RoutingCase& c);

// Which refusing cells are evidence of their own: of one expert's cells with as many candidates
// only the first. A text that occurs again, shuffled or with the noise of another kernel, brings
// its number of candidates along; under a capacity that number varies and what is held does not.
// (Where every token is a candidate, cells count apart when their scores differ.) Per cell; 0 for
// cells that refuse nobody.
std::vector<uint8_t> FreshCells(const RoutingCase& c, const Saturation& s);

// Choices of judged rows, cell by cell, each cell by token.
struct CellChoices {
  std::vector<int32_t> choices;  // indices into RoutingCase::choices
  std::vector<size_t> begin;     // where each cell begins; one more at the end
  std::vector<size_t> cell;      // its index in Saturation::cells
  size_t size() const { return cell.size(); }
  std::span<const int32_t> ChoicesOf(size_t i) const {
    return std::span(choices).subspan(begin[i], begin[i + 1] - begin[i]);
  }
};
// `included`: per cell of the saturation.
CellChoices GroupByCell(const RoutingCase& c, const std::vector<uint8_t>& included);

// One step of a hash over a cell's scores, by which repeats of a text are known.
inline uint64_t MixScore(uint64_t hash, double score) {
  return (hash ^ std::bit_cast<uint64_t>(score)) * 0x9e3779b97f4a7c15ull + (hash >> 29);
}

// The cell of a choice: pool * experts + expert.
inline size_t CellOfToken(const RoutingCase& c, int32_t token, int32_t expert) {
  return static_cast<size_t>(c.pool[static_cast<size_t>(token)]) * static_cast<size_t>(c.experts) +
         static_cast<size_t>(expert);
}

// log2 of the binomial coefficient.
double Log2Choose(double n, double k);

}  // namespace plumbline::rules
