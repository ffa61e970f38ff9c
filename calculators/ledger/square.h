#pragma once

namespace plumbline::ledger {

inline double Square(double x) { return x * x; }

}  // namespace plumbline::ledger
