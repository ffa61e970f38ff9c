// A run's series: a list, and their values, reduced to the resolution of a screen.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <set>
#include <tuple>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/series/series.h"
#include "server/store/series_query.h"
#include "server/web/cells.h"
#include "server/web/views.h"

namespace plumbline::server {
namespace {

constexpr int64_t kMostColumns = 4096, kMostCellColumns = 1024, kMostRows = 512;
constexpr size_t kMostListed = 500, kFirstOfGroup = 3, kMostAlone = 16;
constexpr int64_t kSparkColumns = 120;
constexpr uint64_t kMostCells = 1'000'000;

constexpr char kFirstGroup[] = "Loss and schedule";

const char* GroupOfRole(SeriesRole role) {
  switch (role) {
    case SeriesRole::kTokens:
    case SeriesRole::kStepSeconds:
    case SeriesRole::kMemory:
      return "Time and memory";
    case SeriesRole::kNone:
      return "Others";
    default:
      return kFirstGroup;
  }
}

// Returns the place of a series in the first group: the loss, its rate, its gradient norm, the
// others.
int PlaceOf(const v1::SeriesInfo& info) {
  switch (RoleByName(info.site().op())) {
    case SeriesRole::kLoss:
      return 0;
    case SeriesRole::kRate:
      return 1;
    case SeriesRole::kGradientNorm:
      return 2;
    default:
      return 3;
  }
}

// Returns the group of a series. The loss, the rate and the global gradient norm are in the first
// group. Other names are grouped by their prefix up to the last slash ("eval/math" of
// "eval/math/pass"), or, if there is none, by their meaning. Layers are grouped by their number:
// "layers.17" for "layers.17.mlp.up".
std::string GroupOf(const v1::SeriesInfo& info) {
  const v1::Site& site = info.site();
  const std::string& name = site.layer().empty() ? site.op() : site.layer();
  const bool first = site.layer().empty() && PlaceOf(info) < 3;
  if (const size_t slash = name.rfind('/'); !first && slash != std::string::npos && slash > 0)
    return name.substr(0, slash);
  if (site.layer().empty()) return GroupOfRole(RoleByName(site.op()));
  const std::string& layer = site.layer();
  size_t end = layer.find('.');
  if (end == std::string::npos) return layer;
  size_t second = layer.find('.', end + 1);
  const std::string part =
      layer.substr(end + 1, second == std::string::npos ? second : second - end - 1);
  const bool number = !part.empty() && part.find_first_not_of("0123456789") == std::string::npos;
  return number ? layer.substr(0, second) : layer.substr(0, end);
}

// Sorts loss and schedule first, then layers in the order of their numbers.
bool GroupBefore(const std::string& a, const std::string& b) {
  const auto key = [](const std::string& group) {
    static constexpr const char* kFirst[] = {kFirstGroup, "Time and memory", "Others"};
    int64_t place = 3, number = -1;
    for (int i = 0; i < 3; ++i) {
      if (group == kFirst[i]) place = i;
    }
    const size_t digits = group.find_last_not_of("0123456789");
    if (digits != std::string::npos && digits + 1 < group.size()) {
      (void)absl::SimpleAtoi(group.substr(digits + 1), &number);
    }
    return std::make_tuple(place, group.substr(0, digits == std::string::npos ? 0 : digits), number,
                           group);
  };
  return key(a) < key(b);
}

Json SeriesJson(const v1::SeriesInfo& info) {
  const std::string name = SeriesText(info.site().layer(), info.site().op());
  return {{"series", name},
          {"role", info.role() == v1::ROLE_ROLLOUT ? "rollout" : "trainer"},
          {"is",
           NameOf(info.site().layer().empty() ? RoleByName(info.site().op()) : SeriesRole::kNone)},
          {"ranks", info.ranks()},
          {"step_first", info.step_first()},
          {"step_last", info.step_last()},
          {"samples", info.samples()}};
}

// Rounds to six digits, which is more than a screen shows.
Json Shortened(double value) {
  if (!std::isfinite(value)) return nullptr;
  return rules::NumberJson(std::strtod(absl::StrFormat("%.6g", value).c_str(), nullptr));
}

template <typename Values>
Json ShortenedAll(const Values& values, const std::string& absent) {
  Json out = Json::array();
  for (int i = 0; i < values.size(); ++i) {
    const auto bit = static_cast<size_t>(i);
    const bool gone = !absent.empty() && (absent[bit / 8] >> (bit % 8) & 1) != 0;
    out.push_back(gone ? Json(nullptr) : Shortened(values.Get(i)));
  }
  return out;
}

// Returns the columns with a non-finite value.
Json BadColumns(const v1::SeriesColumns& columns) {
  Json bad = Json::array();
  for (int i = 0; i < columns.step_size(); ++i) {
    const bool counted = i < columns.non_finite_size() && columns.non_finite(i) > 0;
    const auto bit = static_cast<size_t>(i);
    const bool gone =
        !columns.absent().empty() && (columns.absent()[bit / 8] >> (bit % 8) & 1) != 0;
    const bool seen = columns.non_finite_size() == 0 && !gone && !std::isfinite(columns.mean(i));
    if (counted || seen) bad.push_back(i);
  }
  return bad;
}

Json PointsJson(const v1::QuerySeriesResponse& response) {
  if (response.series_size() == 0) return {{"step", Json::array()}};
  const v1::SeriesColumns& columns = response.series(0);
  Json out = {{"series", SeriesText(columns.site().layer(), columns.site().op())},
              {"bucket_steps", columns.bucket_steps()},
              {"server_ns", response.server_ns()}};
  out["step"] = Json::array();
  for (const int64_t step : columns.step()) out["step"].push_back(step);
  out["mean"] = ShortenedAll(columns.mean(), columns.absent());
  if (columns.min_size() > 0) {
    out["min"] = ShortenedAll(columns.min(), columns.absent());
    out["max"] = ShortenedAll(columns.max(), columns.absent());
  }
  out["bad"] = BadColumns(columns);
  return out;
}

bool Contains(const std::string& text, const std::string& part) {
  const auto same = [](char a, char b) { return std::tolower(a) == std::tolower(b); };
  return std::search(text.begin(), text.end(), part.begin(), part.end(), same) != text.end();
}

}  // namespace

absl::StatusOr<v1::QuerySeriesResponse> WebViews::Reduced(const std::string& run,
                                                          const std::string& series,
                                                          const Params& params,
                                                          uint64_t columns) const {
  v1::QuerySeriesRequest request;
  request.set_run(run);
  request.set_series(series);
  request.set_over_ranks(true);
  request.set_max_cells(columns);
  if (!ParamOf(params, "from").empty()) request.set_step_first(NumberOf(params, "from", 0));
  if (!ParamOf(params, "to").empty()) request.set_step_last(NumberOf(params, "to", 0));
  if (ParamOf(params, "role") == "rollout") request.set_role(v1::ROLE_ROLLOUT);
  v1::QuerySeriesResponse response;
  if (auto s = sources_.query.store->QuerySeries(request, &response); !s.ok()) return s;
  return response;
}

absl::StatusOr<Json> WebViews::Series(const Lease& lease, const std::string& run,
                                      const Params& params) const {
  if (auto s = CheckRun(lease, run); !s.ok()) return s;
  v1::ListSeriesRequest request;
  request.set_run(run);
  v1::ListSeriesResponse all;
  // A run that has not reported a scalar yet has no series.
  if (auto s = sources_.query.store->ListSeries(request, &all); !s.ok() && !absl::IsNotFound(s)) {
    return s;
  }
  const std::string wanted = ParamOf(params, "group"), filter = ParamOf(params, "filter");
  std::map<std::string, std::vector<const v1::SeriesInfo*>, decltype(&GroupBefore)> groups(
      &GroupBefore);
  uint64_t matching = 0;
  for (const v1::SeriesInfo& info : all.series()) {
    if (!filter.empty() && !Contains(SeriesText(info.site().layer(), info.site().op()), filter)) {
      continue;
    }
    ++matching;
    groups[GroupOf(info)].push_back(&info);
  }
  Json out = {{"count", all.series_size()}, {"matching", matching}, {"groups", Json::array()}};
  for (auto& [name, group] : groups) {
    if (out["groups"].size() == kMostListed) break;
    if (name == kFirstGroup)
      std::stable_sort(group.begin(), group.end(),
                       [](const auto* a, const auto* b) { return PlaceOf(*a) < PlaceOf(*b); });
    Json listed = Json::array();
    const size_t most = name == wanted ? kMostListed : kFirstOfGroup;
    for (size_t i = 0; i < std::min(most, group.size()); ++i)
      listed.push_back(SeriesJson(*group[i]));
    out["groups"].push_back(
        {{"group", name}, {"count", group.size()}, {"series", std::move(listed)}});
  }
  out["more_groups"] = groups.size() - out["groups"].size();
  return out;
}

absl::StatusOr<Json> WebViews::Points(const Lease& lease, const std::string& run,
                                      const Params& params) const {
  if (auto s = CheckRun(lease, run); !s.ok()) return s;
  const int64_t px = std::clamp<int64_t>(NumberOf(params, "px", 1024), 1, kMostColumns);
  auto response = Reduced(run, ParamOf(params, "series"), params, static_cast<uint64_t>(px));
  if (!response.ok()) return response.status();
  return PointsJson(*response);
}

absl::StatusOr<Json> WebViews::Spark(const Lease& lease, const std::string& run) const {
  if (auto s = CheckRun(lease, run); !s.ok()) return s;
  v1::ListSeriesRequest request;
  request.set_run(run);
  request.set_series("*loss*");
  v1::ListSeriesResponse named;
  if (auto s = sources_.query.store->ListSeries(request, &named); !s.ok()) return Json::object();
  // Choose the loss series with most samples.
  const v1::SeriesInfo* best = nullptr;
  for (const v1::SeriesInfo& info : named.series()) {
    if (!info.site().layer().empty() || RoleByName(info.site().op()) != SeriesRole::kLoss) continue;
    if (best == nullptr || info.samples() > best->samples()) best = &info;
  }
  if (best == nullptr) return Json::object();
  auto response = Reduced(run, best->site().op(), {}, kSparkColumns);
  if (!response.ok()) return response.status();
  return PointsJson(*response);
}

absl::StatusOr<std::string> WebViews::Cells(const Lease& lease, const std::string& run,
                                            const Params& params) const {
  if (auto s = CheckRun(lease, run); !s.ok()) return s;
  const auto rows = std::clamp<int64_t>(NumberOf(params, "rows", 64), 1, kMostRows);
  const auto wide = std::clamp<int64_t>(NumberOf(params, "columns", 200), 1, kMostCellColumns);
  v1::QuerySeriesRequest request;
  request.set_run(run);
  request.set_series(ParamOf(params, "series"));
  if (ParamOf(params, "role") == "rollout") request.set_role(v1::ROLE_ROLLOUT);
  if (!ParamOf(params, "from").empty()) request.set_step_first(NumberOf(params, "from", 0));
  if (!ParamOf(params, "to").empty()) request.set_step_last(NumberOf(params, "to", 0));
  // Use as many columns as fit, or fewer if there are many ranks.
  v1::ListSeriesRequest named;
  named.set_run(run);
  named.set_series(request.series());
  v1::ListSeriesResponse info;
  if (auto s = sources_.query.store->ListSeries(named, &info); !s.ok()) return s;
  if (info.series_size() == 0) return absl::NotFoundError("this run has no such series");
  const uint64_t ranks = std::max<uint64_t>(1, info.series(0).ranks());
  request.set_max_cells(std::min(kMostCells, ranks * static_cast<uint64_t>(wide)));
  v1::QuerySeriesResponse response;
  if (auto s = sources_.query.store->QuerySeries(request, &response); !s.ok()) return s;
  if (response.series_size() == 0)
    return absl::NotFoundError("this series has no values in these steps");
  std::set<uint32_t> alone;
  for (const auto& [name, value] : params) {
    uint32_t rank = 0;
    if (name == "alone" && alone.size() < kMostAlone && absl::SimpleAtoi(value, &rank)) {
      alone.insert(rank);
    }
  }
  const CellGrid grid = GridOf(response.series(0), static_cast<size_t>(rows), alone);
  Json head = {{"first_rank", grid.first_rank},
               {"last_rank", grid.last_rank},
               {"step", grid.step},
               {"bucket_steps", grid.bucket_steps},
               {"low", rules::NumberJson(grid.low)},
               {"high", rules::NumberJson(grid.high)}};
  return absl::StrCat(head.dump(), "\n", grid.bytes);
}

}  // namespace plumbline::server
