// Finds the capacity of a router: which (expert, pool) cells are full, and which tokens were
// refused while a later one was admitted.
#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "analysis/routing/call/case.h"

namespace plumbline::analysis {

// One expert in one pool.
struct Cell {
  int32_t expert = 0;
  int32_t pool = 0;
  int64_t kept = 0;     // K: admitted, including padding
  int64_t refused = 0;  // D: known refusals of judged rows
  int64_t candidates() const { return kept + refused; }
};

struct Saturation {
  // kDeclared: the configuration states the number. kExhibited: all refusing experts hold one
  // number.
  enum class Basis { kNone, kDeclared, kExhibited };
  Basis basis = Basis::kNone;
  std::string
      contradiction;  // "short-id: sentence" if pool or capacity differ from the record; else empty
  double bits = 0;    // kExhibited: evidence that equal holdings are not a coincidence
  std::vector<Cell> cells;    // index = pool * experts + expert
  std::vector<uint8_t> full;  // per cell: holds exactly its capacity
  int64_t full_experts = 0;   // experts with at least one full cell
  int64_t refusing_cells = 0;
  int64_t capacity = 0;  // capacity for the largest pool size with refusals; 0 if not known
};

// Returns the bits of evidence that a refusing cell holds its number, if it is known, not by
// coincidence.
double HoldingBits(const Cell& cell);

Saturation FindSaturation(const RoutingCase& c);

// Returns which refusing cells are independent evidence: of one expert's cells with equally many
// candidates, only the first. If a text occurs again, shuffled or with the noise of another kernel,
// its number of candidates is the same. Under a capacity that number varies, and the held number
// does not. (If every token is a candidate, cells count separately if their scores differ.) Per
// cell; 0 for cells without refusals.
std::vector<uint8_t> FreshCells(const RoutingCase& c, const Saturation& s);

// The choices of judged rows by cell, each cell sorted by token.
struct CellChoices {
  std::vector<int32_t> choices;  // indices into RoutingCase::choices
  std::vector<size_t> begin;     // first index of each cell, plus one past the end
  std::vector<size_t> cell;      // its index in Saturation::cells
  size_t size() const { return cell.size(); }
  std::span<const int32_t> ChoicesOf(size_t i) const {
    return std::span(choices).subspan(begin[i], begin[i + 1] - begin[i]);
  }
};
// `included` has one flag per cell of the saturation.
CellChoices GroupByCell(const RoutingCase& c, const std::vector<uint8_t>& included);

// One step of a hash over a cell's scores, which identifies repeats of a text.
inline uint64_t MixScore(uint64_t hash, double score) {
  return (hash ^ std::bit_cast<uint64_t>(score)) * 0x9e3779b97f4a7c15ull + (hash >> 29);
}

// Returns the cell of a choice: pool * experts + expert.
inline size_t CellOfToken(const RoutingCase& c, int32_t token, int32_t expert) {
  return static_cast<size_t>(c.pool[static_cast<size_t>(token)]) * static_cast<size_t>(c.experts) +
         static_cast<size_t>(expert);
}

// Returns log2 of the binomial coefficient.
double Log2Choose(double n, double k);

}  // namespace plumbline::analysis
