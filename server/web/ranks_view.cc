// The ranks of a run by host, so that slow and missing hosts are visible at once.
#include <algorithm>
#include <cmath>
#include <map>

#include "rules/words/page_json.h"
#include "server/store/series_query.h"
#include "server/web/views.h"

namespace plumbline::server {
namespace {

constexpr size_t kMostRanks = 16'384, kMostRanges = 64;
constexpr uint64_t kNewest = 100;  // steps over which a series is averaged

// Returns the ranks below `world` that are not in `seen`, as ranges.
Json Missing(const std::vector<KnownRank>& seen, uint32_t world, uint64_t* count) {
  Json ranges = Json::array();
  uint32_t next = 0;
  const auto add = [&](uint32_t until) {
    if (until <= next) return;
    *count += until - next;
    if (ranges.size() < kMostRanges) ranges.push_back(Json::array({next, until - 1}));
  };
  for (const KnownRank& rank : seen) {
    if (rank.source.rank() >= world) break;
    add(rank.source.rank());
    next = rank.source.rank() + 1;
  }
  add(world);
  return ranges;
}

const char* StateOf(const KnownRank& rank) {
  return rank.connected ? "connected" : rank.over ? "over" : "away";
}

}  // namespace

absl::StatusOr<Json> WebViews::Ranks(const Lease& lease, const std::string& run,
                                     const Params& params) const {
  if (auto s = CheckRun(lease, run); !s.ok()) return s;
  const auto role = ParamOf(params, "role") == "rollout" ? v1::ROLE_ROLLOUT : v1::ROLE_TRAINER;
  std::map<int, uint32_t> worlds;
  std::vector<KnownRank> seen = sources_.query.judge->RanksOf(run, &worlds);
  std::erase_if(seen, [role](const KnownRank& rank) { return rank.source.role() != role; });
  std::sort(seen.begin(), seen.end(), [](const KnownRank& a, const KnownRank& b) {
    return a.source.rank() < b.source.rank();
  });
  uint64_t missing = 0;
  Json out = {{"world", worlds[role]}, {"seen", seen.size()}};
  out["missing_ranges"] = Missing(seen, worlds[role], &missing);
  out["missing"] = missing;
  out["left_out"] = seen.size() - std::min(seen.size(), kMostRanks);
  if (seen.size() > kMostRanks) seen.resize(kMostRanks);

  const std::string series = ParamOf(params, "series");
  std::map<uint32_t, double> values;
  if (!series.empty() && !seen.empty()) {
    v1::QuerySeriesRequest request;
    request.set_run(run);
    request.set_series(series);
    request.set_role(role);
    request.set_last_steps(kNewest);
    request.set_max_cells(seen.size());
    v1::QuerySeriesResponse response;
    // If the run has no such series yet, no rank has a value.
    const absl::Status found = sources_.query.store->QuerySeries(request, &response);
    if (found.ok() && response.series_size() > 0) {
      const v1::SeriesColumns& columns = response.series(0);
      for (int row = 0; row < columns.rank_size(); ++row) {
        double sum = 0;
        int counted = 0;
        for (int column = 0; column < columns.step_size(); ++column) {
          const double mean = columns.mean(row * columns.step_size() + column);
          if (!std::isfinite(mean)) continue;
          sum += mean;
          ++counted;
        }
        if (counted > 0) values[columns.rank(row)] = sum / counted;
      }
    }
  }
  std::map<std::string, size_t> hosts;
  out["hosts"] = Json::array();
  for (const char* column : {"rank", "host", "through", "state", "value"})
    out[column] = Json::array();
  for (const KnownRank& rank : seen) {
    const auto [host, fresh] = hosts.try_emplace(rank.source.host(), hosts.size());
    if (fresh) out["hosts"].push_back(rank.source.host());
    out["rank"].push_back(rank.source.rank());
    out["host"].push_back(host->second);
    out["through"].push_back(std::max<int64_t>(rank.through, -1));
    out["state"].push_back(StateOf(rank));
    const auto value = values.find(rank.source.rank());
    out["value"].push_back(value == values.end() ? Json(nullptr)
                                                 : rules::NumberJson(value->second));
  }
  return out;
}

}  // namespace plumbline::server
