// Texts that several files of this folder share.
#pragma once

#include <cmath>
#include <string>

#include "absl/strings/str_format.h"
#include "calculators/ledger/ledger.h"

namespace plumbline::audit {

inline std::string FactorText(double ln) { return absl::StrFormat("x%.3f", std::exp(ln)); }

// Returns half of the 90 % interval of ln.
inline double HalfInterval(double variance) { return ledger::kNinety * std::sqrt(variance); }

}  // namespace plumbline::audit
