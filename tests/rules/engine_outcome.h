// The output of an engine: verdicts and stored values.
#pragma once

#include <bit>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "rules/engine/engine.h"

namespace plumbline::rules {

// The bits of the value.
using Stored = std::map<std::tuple<int64_t, uint32_t, std::string>, uint64_t>;

struct Outcome {
  std::vector<std::string> verdicts;
  Stored stored;
};

inline Engine::OnSeries StoreIn(Stored* stored) {
  return [stored](const StepSeries& step) {
    for (const SeriesRow& row : step.rows) {
      for (size_t c = 0; c < step.columns->sites.size(); ++c) {
        if (!row.present(c)) continue;
        (*stored)[{step.step, row.rank, step.columns->sites[c].op()}] =
            std::bit_cast<uint64_t>(row.values[c]);
      }
    }
  };
}

}  // namespace plumbline::rules
