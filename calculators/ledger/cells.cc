#include "calculators/ledger/cells.h"

#include <cmath>
#include <map>

namespace plumbline::ledger {
namespace {

using Scales = std::map<double, std::map<int64_t, size_t>>;  // flops -> seed -> run

Scales ByScale(const std::vector<Run>& runs, const std::vector<size_t>& arm) {
  Scales scales;
  for (const size_t r : arm) scales[runs[r].flops].emplace(runs[r].seed, r);
  return scales;
}

double MeanLn(const std::vector<Run>& runs, const std::vector<size_t>& of) {
  double sum = 0;
  for (const size_t r : of) sum += std::log(runs[r].loss);
  return sum / static_cast<double>(of.size());
}

double SquaresAbout(double mean, const std::vector<Run>& runs, const std::vector<size_t>& of) {
  double sum = 0;
  for (const size_t r : of) sum += std::pow(std::log(runs[r].loss) - mean, 2);
  return sum;
}

void AddPaired(const std::vector<Run>& runs, Cell* cell) {
  for (const auto& [with, without] : cell->pairs) {
    cell->with.push_back(with);
    cell->without.push_back(without);
  }
  cell->ln_with = MeanLn(runs, cell->with);
  cell->ln_without = MeanLn(runs, cell->without);
  const double mean = cell->ln_without - cell->ln_with;
  for (const auto& [with, without] : cell->pairs) {
    const double difference = std::log(runs[without].loss) - std::log(runs[with].loss);
    cell->squares += (difference - mean) * (difference - mean) / 2;
  }
  cell->freedom = static_cast<int>(cell->pairs.size()) - 1;
}

void AddUnpaired(const std::vector<Run>& runs, const std::map<int64_t, size_t>& with,
                 const std::map<int64_t, size_t>& without, Cell* cell) {
  for (const auto& [seed, run] : with) cell->with.push_back(run);
  for (const auto& [seed, run] : without) cell->without.push_back(run);
  cell->ln_with = MeanLn(runs, cell->with);
  cell->ln_without = MeanLn(runs, cell->without);
  cell->squares = SquaresAbout(cell->ln_with, runs, cell->with) +
                  SquaresAbout(cell->ln_without, runs, cell->without);
  cell->freedom = static_cast<int>(cell->with.size() + cell->without.size()) - 2;
}

}  // namespace

double Cell::spread() const {
  return 1 / static_cast<double>(with.size()) + 1 / static_cast<double>(without.size());
}

std::vector<Cell> CellsOf(const std::vector<Run>& runs, const Arms& arms) {
  const Scales with = ByScale(runs, arms.with), without = ByScale(runs, arms.without);
  std::vector<Cell> cells;
  for (const auto& [flops, seeds] : with) {
    const auto other = without.find(flops);
    if (other == without.end()) continue;
    Cell& cell = cells.emplace_back();
    cell.flops = flops;
    for (const auto& [seed, run] : seeds) {
      if (const auto same = other->second.find(seed); same != other->second.end())
        cell.pairs.emplace_back(run, same->second);
    }
    if (cell.pairs.empty()) {
      AddUnpaired(runs, seeds, other->second, &cell);
    } else {
      AddPaired(runs, &cell);
    }
  }
  return cells;
}

}  // namespace plumbline::ledger
