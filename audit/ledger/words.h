// What several files here say alike.
#pragma once

#include <cmath>
#include <string>

#include "absl/strings/str_format.h"
#include "analysis/ledger/ledger.h"

namespace plumbline::audit {

inline std::string FactorText(double ln) { return absl::StrFormat("x%.3f", std::exp(ln)); }

// Of a 90 % interval the half, ln.
inline double HalfInterval(double variance) { return ledger::kNinety * std::sqrt(variance); }

}  // namespace plumbline::audit
