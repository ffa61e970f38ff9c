// The worked example of docs/ledger.md as a struct.
#pragma once

#include <string>
#include <vector>

#include "calculators/ledger/ledger.h"

namespace plumbline::ledger::testing {

class WorkedExample {
 public:
  WorkedExample() {
    ledger.target = 5e20;
    ledger.tried = 9;
    Base(1e18, 0, 4.195, 0);
    Base(1e19, 0, 3.496, 3.596);
    Base(1e19, 1, 3.484, 3.586);
    Base(1e20, 0, 3.003, 3.104);
    Base(1e20, 1, 2.995, 3.094);
    Base(1e21, 0, 2.652, 0);
    Multiply("a", 1.10,
             {Add(1e19, 0, 3.466, 3.567), Add(1e19, 1, 3.461, 3.560), Add(1e20, 0, 2.987, 3.087),
              Add(1e20, 1, 2.978, 3.078)});
    Multiply("b", 1.06, {Add(1e20, 0, 2.994, 3.095), Add(1e20, 1, 2.983, 3.083)});
    Multiply("c", 1.20, {Add(1e19, 0, 3.449, 3.549)});
    Multiply("d", 1.16,
             {Add(1e19, 0, 3.454, 3.575), Add(1e19, 1, 3.440, 3.563), Add(1e20, 0, 2.972, 3.092),
              Add(1e20, 1, 2.966, 3.083)});
    ledger.stack.emplace();
    ledger.stack->arms = {{Add(1e20, 0, 2.928, 0), Add(1e20, 1, 2.934, 0)}, ledger.baseline};
  }

  size_t Add(double flops, int64_t seed, double loss, double other) {
    Run run{"r" + std::to_string(ledger.runs.size()), flops, seed, loss, std::nullopt};
    if (other > 0) run.other = other;
    ledger.runs.push_back(run);
    return ledger.runs.size() - 1;
  }
  void Base(double flops, int64_t seed, double loss, double other) {
    ledger.baseline.push_back(Add(flops, seed, loss, other));
  }
  void Multiply(const std::string& name, double claimed, std::vector<size_t> with) {
    ledger.multipliers.push_back({name, claimed, true, {std::move(with), ledger.baseline}});
  }

  Ledger ledger;
  Allowances allowances;
};

}  // namespace plumbline::ledger::testing
