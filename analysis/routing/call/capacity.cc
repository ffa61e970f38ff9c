#include "analysis/routing/call/capacity.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>
#include <numeric>
#include <set>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "analysis/routing/call/facts.h"

namespace plumbline::analysis {
namespace {

// Returns 1/2 log2(2 pi C (1 - C/n)): minus log2 of the probability that a binomial count of mean C
// is exactly C (Stirling; the exact value is a little larger). Below one bit, returns 0.
double HoldsExactlyBits(double capacity, double candidates) {
  const double spread = 2 * std::numbers::pi * capacity * (1 - capacity / candidates);
  return spread > 1 ? 0.5 * std::log2(spread) : 0;
}

void CountCells(const RoutingCase& c, Saturation& s) {
  s.cells.resize(static_cast<size_t>(c.pools) * static_cast<size_t>(c.experts));
  for (size_t i = 0; i < s.cells.size(); ++i) {
    s.cells[i].pool = static_cast<int32_t>(i / static_cast<size_t>(c.experts));
    s.cells[i].expert = static_cast<int32_t>(i % static_cast<size_t>(c.experts));
  }
  for (const Choice& choice : c.choices) {
    Cell& cell = s.cells[CellOfToken(c, choice.token, choice.expert)];
    ++(choice.kept ? cell.kept : cell.refused);
  }
}

std::string Where(const Cell& cell) {
  return absl::StrCat("expert ", cell.expert, " of pool ", cell.pool);
}

void CheckDeclared(int64_t capacity, Saturation& s) {
  s.basis = Saturation::Basis::kDeclared;
  s.capacity = capacity;
  for (const Cell& cell : s.cells) {
    if (cell.kept > capacity) {
      s.contradiction = absl::StrCat("capacity-exceeded: ", Where(cell), " holds ", cell.kept,
                                     " tokens, more than the declared capacity of ", capacity,
                                     "; the recorded pool or capacity is wrong");
      return;
    }
    if (cell.refused > 0 && cell.kept != capacity) {
      s.contradiction =
          absl::StrCat("refused-below-capacity: ", Where(cell), " refused ", cell.refused,
                       " choices while it held ", cell.kept, " of ", capacity,
                       "; the declared capacity does not explain the refusals");
      return;
    }
  }
  for (size_t i = 0; i < s.cells.size(); ++i) s.full[i] = s.cells[i].kept == capacity;
}

// The refusing cells of pools of one size must hold one number, and no cell of such a pool may hold
// more.
void CheckExhibited(const RoutingCase& c, Saturation& s) {
  struct SizeClass {
    int64_t capacity = -1;
    double bits = 0;
    double best = 0;
    const Cell* first = nullptr;
  };
  std::map<int64_t, SizeClass> classes;
  const std::vector<uint8_t> fresh = FreshCells(c, s);
  for (size_t i = 0; i < s.cells.size(); ++i) {
    const Cell& cell = s.cells[i];
    if (cell.refused == 0) continue;
    SizeClass& k = classes[c.pool_rows[static_cast<size_t>(cell.pool)]];
    if (k.first == nullptr) {
      k.first = &cell;
      k.capacity = cell.kept;
    } else if (cell.kept != k.capacity) {
      s.contradiction = absl::StrCat("capacity-differs: ", Where(*k.first), " refused at ",
                                     k.capacity, " tokens, ", Where(cell), " at ", cell.kept,
                                     "; no single capacity explains the refusals");
      return;
    }
    const double bits = fresh[i] ? HoldingBits(cell) : 0;
    k.bits += bits;
    k.best = std::max(k.best, bits);
  }
  for (size_t i = 0; i < s.cells.size(); ++i) {
    const Cell& cell = s.cells[i];
    const auto k = classes.find(c.pool_rows[static_cast<size_t>(cell.pool)]);
    if (k == classes.end()) continue;
    if (cell.kept > k->second.capacity) {
      s.contradiction =
          absl::StrCat("capacity-exceeded: ", Where(*k->second.first), " refused at ",
                       k->second.capacity, " tokens while ", Where(cell), " holds ", cell.kept);
      return;
    }
    s.full[i] = cell.kept == k->second.capacity;
  }
  s.basis = Saturation::Basis::kExhibited;
  // One cell of each size determined the capacity, so it is no evidence for it.
  for (const auto& [rows, k] : classes) {
    s.bits += k.bits - k.best;
    s.capacity = k.capacity;
  }
}

}  // namespace

double HoldingBits(const Cell& cell) {
  return HoldsExactlyBits(static_cast<double>(cell.kept), static_cast<double>(cell.candidates()));
}

double Log2Choose(double n, double k) {
  if (k <= 0 || k >= n) return 0;
  const auto log_factorial = [](double m) {
    int sign;
    return lgamma_r(m + 1, &sign);  // std::lgamma writes a global variable
  };
  return (log_factorial(n) - log_factorial(k) - log_factorial(n - k)) / std::numbers::ln2;
}

CellChoices GroupByCell(const RoutingCase& c, const std::vector<uint8_t>& included) {
  CellChoices out;
  std::vector<int32_t> dense(included.size(), -1);
  for (size_t i = 0; i < included.size(); ++i) {
    if (!included[i]) continue;
    dense[i] = static_cast<int32_t>(out.cell.size());
    out.cell.push_back(i);
  }
  const auto cell_of = [&](const Choice& choice) {
    return c.judged(choice.token) ? dense[CellOfToken(c, choice.token, choice.expert)] : -1;
  };
  out.begin.assign(out.cell.size() + 1, 0);
  for (const Choice& choice : c.choices) {
    if (const int32_t cell = cell_of(choice); cell >= 0) ++out.begin[static_cast<size_t>(cell) + 1];
  }
  std::partial_sum(out.begin.begin(), out.begin.end(), out.begin.begin());
  out.choices.resize(out.begin.back());
  std::vector<size_t> next(out.begin.begin(), out.begin.end() - 1);
  for (size_t i = 0; i < c.choices.size(); ++i) {
    const int32_t cell = cell_of(c.choices[i]);
    if (cell >= 0) out.choices[next[static_cast<size_t>(cell)]++] = static_cast<int32_t>(i);
  }
  return out;
}

std::vector<uint8_t> FreshCells(const RoutingCase& c, const Saturation& s) {
  // If every token is a candidate, the number of candidates shows nothing, so the scores must
  // differ.
  std::vector<uint64_t> hash(s.cells.size(), 0);
  for (const Choice& choice : c.choices) {
    const size_t index = CellOfToken(c, choice.token, choice.expert);
    const Cell& cell = s.cells[index];
    if (cell.refused == 0) continue;
    const bool all = cell.candidates() == c.pool_rows[static_cast<size_t>(cell.pool)];
    if (all) hash[index] = MixScore(hash[index], c.scores.At(choice.token, choice.expert));
  }
  std::set<std::tuple<int32_t, int64_t, uint64_t>> seen;
  std::vector<uint8_t> fresh(s.cells.size(), 0);
  for (size_t i = 0; i < s.cells.size(); ++i) {
    const Cell& cell = s.cells[i];
    if (cell.refused > 0) {
      fresh[i] = seen.insert({cell.expert, cell.candidates(), hash[i]}).second;
    }
  }
  return fresh;
}

Saturation FindSaturation(const RoutingCase& c) {
  Saturation s;
  CountCells(c, s);
  s.full.assign(s.cells.size(), 0);
  s.refusing_cells = std::count_if(s.cells.begin(), s.cells.end(),
                                   [](const Cell& cell) { return cell.refused > 0; });
  const v1::RoutingConfig& config = c.routing->config();
  if (ExcludesCapacity(config) && s.refusing_cells > 0) {
    s.contradiction =
        absl::StrCat("capacity-none: the router is recorded to have no capacity, and ", c.dropped,
                     " choices were refused; the cause was not recorded (a threshold per token, a "
                     "draw, or an undeclared capacity)");
  } else if (DeclaresCapacity(config)) {
    CheckDeclared(static_cast<int64_t>(config.capacity()), s);
  } else if (s.refusing_cells > 0) {
    CheckExhibited(c, s);
  }
  std::vector<uint8_t> expert_full(static_cast<size_t>(c.experts), 0);
  for (size_t i = 0; i < s.cells.size(); ++i) {
    if (s.full[i]) expert_full[static_cast<size_t>(s.cells[i].expert)] = 1;
  }
  s.full_experts = std::count(expert_full.begin(), expert_full.end(), 1);
  return s;
}

}  // namespace plumbline::analysis
