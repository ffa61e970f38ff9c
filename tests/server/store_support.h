// Feeds a store as the engine would, and remembers what it was fed.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/store/store.h"

namespace plumbline::test {

inline std::shared_ptr<const rules::SeriesColumns> ColumnsOf(const std::vector<std::string>& ops) {
  auto columns = std::make_shared<rules::SeriesColumns>();
  for (const std::string& op : ops) {
    v1::Site& site = columns->sites.emplace_back();
    const size_t slash = op.rfind('/');
    if (slash != std::string::npos) site.set_layer(op.substr(0, slash));
    site.set_op(slash == std::string::npos ? op : op.substr(slash + 1));
    columns->key += op + "\n";
  }
  return columns;
}

// The rows of one step over one list of series.
struct FedRows {
  std::vector<uint32_t> ranks;
  std::vector<double> values;   // [ranks, columns]
  std::vector<uint8_t> absent;  // bits; empty: none
};

inline void Feed(server::Store* store, const std::string& run, int64_t step,
                 const std::shared_ptr<const rules::SeriesColumns>& columns, const FedRows& fed,
                 uint32_t attempt = 0, v1::Role role = v1::ROLE_TRAINER) {
  const size_t width = columns->sites.size();
  std::vector<rules::SeriesRow> rows;
  for (size_t r = 0; r < fed.ranks.size(); ++r) {
    rows.push_back({fed.ranks[r], fed.values.data() + r * width,
                    fed.absent.empty() ? nullptr : fed.absent.data(), r * width});
  }
  rules::StepSeries series;
  series.run = run;
  series.attempt = attempt;
  series.role = role;
  series.step = step;
  series.columns = columns;
  series.rows = rows;
  store->AddSeries(series);
}

}  // namespace plumbline::test
