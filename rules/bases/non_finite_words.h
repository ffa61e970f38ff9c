// Texts of the findings of health/loss-non-finite: the result of a series' course (NonFiniteCourse)
// or of its zeros.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "analysis/frame/frame.h"
#include "analysis/series/series.h"
#include "rules/analysis_names.h"

namespace plumbline::rules {

struct NonFinitePlace {
  std::string layer, op;
  SeriesRole role = SeriesRole::kNone;
  std::vector<uint32_t> bad_ranks;  // of the newest bad row
  uint64_t values = 0;              // of all attempts
  std::string cause;                // cause of the run's first such value
  bool training_finite = false;     // the newest training loss is finite
};

FindingBuilder NonFiniteFinding(NonFiniteEvent states, const NonFiniteCourse& course,
                                const NonFinitePlace& place);

// A training loss that is exactly 0 in consecutive rows.
struct ZeroLoss {
  uint64_t rows = 0;
  int64_t first = 0, last = 0;
  double before = NAN;  // the last non-zero value
  enum class Norm : uint8_t {
    kAbsent,
    kLost,
    kZero,
    kFinite
  } norm = Norm::kAbsent;  // in the same rows
  bool reported = false;
  void Persist(Archive& a) { a(rows, first, last, before, norm, reported); }
};
FindingBuilder ZeroLossFinding(const ZeroLoss& zero, const NonFinitePlace& place, bool came_back);

}  // namespace plumbline::rules
