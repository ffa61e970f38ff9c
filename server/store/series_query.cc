#include "server/store/series_query.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/store/series_grid.h"

namespace plumbline::server {
namespace {

constexpr uint64_t kDefaultCells = 100'000;
constexpr uint64_t kMaxCells = 1'000'000;
constexpr int64_t kFirst = std::numeric_limits<int64_t>::min();
constexpr int64_t kLast = std::numeric_limits<int64_t>::max();

// The ranks that have a series, as masks by rank block.
using RankMasks = std::map<uint32_t, uint64_t>;

void AddRanks(const std::vector<uint32_t>& ranks, RankMasks* masks) {
  uint64_t* mask = nullptr;
  uint32_t block = 0;
  for (const uint32_t rank : ranks) {
    if (mask == nullptr || rank / kTileRanks != block) {
      block = rank / kTileRanks;
      mask = &(*masks)[block];
    }
    *mask |= uint64_t{1} << (rank % kTileRanks);
  }
}

// Finds the columns of a part that hold one of the wanted series.
class WantedColumns {
 public:
  explicit WantedColumns(const std::vector<uint32_t>& series) {
    for (size_t i = 0; i < series.size(); ++i) index_[series[i]] = i;
  }
  using Found = std::vector<std::pair<size_t, size_t>>;  // (index of the series, column)
  const Found& Of(const StepPart& part) {
    auto [known, fresh] = found_.try_emplace(part.columns.get());
    if (fresh) {
      for (size_t c = 0; c < part.columns->series.size(); ++c) {
        const auto wanted = index_.find(part.columns->series[c]);
        if (wanted != index_.end()) known->second.emplace_back(wanted->second, c);
      }
    }
    return known->second;
  }

 private:
  std::unordered_map<uint32_t, size_t> index_;
  std::unordered_map<const StoredColumns*, Found> found_;
};

// A span, limited to the steps for which it counts.
struct Clipped {
  const SpanView* span;
  int64_t first, last;
};

class Query {
 public:
  Query(const v1::QuerySeriesRequest& request, const RunView& view, TileReader* reader,
        std::vector<int64_t>* damaged)
      : request_(request), view_(view), reader_(reader), damaged_(damaged) {}

  absl::Status Run(v1::QuerySeriesResponse* response) {
    ChooseRole();
    ClipSpans();
    if (series_.empty() || first_ > last_) return absl::OkStatus();
    if (auto s = FindRanks(); !s.ok()) return s;
    if (auto s = Shape(response); !s.ok()) return s;
    if (auto s = ReadTiles(response); !s.ok()) return s;
    ReadMemory();
    for (size_t i = 0; i < grids_.size(); ++i) {
      v1::SeriesColumns* columns = response->add_series();
      columns->mutable_site()->set_layer(series_[i].layer);
      columns->mutable_site()->set_op(series_[i].op);
      columns->set_role(role_);
      grids_[i].Finish(columns);
    }
    return absl::OkStatus();
  }

 private:
  void ChooseRole() {
    std::set<v1::Role> roles;
    for (const SeriesName& s : view_.series) roles.insert(s.role);
    role_ = request_.role();
    if (role_ == v1::ROLE_UNSPECIFIED && !roles.empty())
      role_ = roles.contains(v1::ROLE_TRAINER) ? v1::ROLE_TRAINER : *roles.begin();
    for (const SeriesName& s : view_.series) {
      if (s.role == role_) series_.push_back(s);
    }
    std::sort(series_.begin(), series_.end(), [](const SeriesName& a, const SeriesName& b) {
      return std::tie(a.layer, a.op) < std::tie(b.layer, b.op);
    });
  }

  // Goes from the newest span down: an older one counts for the steps before the newer ones begin.
  // Late spans come before the others of their attempt and only add missing values. Rebuilt spans
  // and those of a run that was forgotten do the same, but these supersede earlier attempts.
  void ClipSpans() {
    int64_t newest = kFirst, oldest = kLast, limit = kLast, rebuilt = kLast;
    uint32_t attempt = 0;  // attempt of `rebuilt`
    for (auto span = view_.spans.rbegin(); span != view_.spans.rend(); ++span) {
      if (span->role != role_ || span->last_step < span->first_step) continue;
      if (request_.has_attempt() && span->attempt != request_.attempt()) continue;
      if (span->attempt != attempt) limit = std::min(limit, std::exchange(rebuilt, kLast));
      attempt = span->attempt;
      if (span->rebuilt || span->resumed) rebuilt = std::min(rebuilt, span->first_step - 1);
      spans_.push_back({&*span, span->first_step, std::min(span->last_step, limit)});
      newest = std::max(newest, spans_.back().last);
      oldest = std::min(oldest, span->first_step);
      if (!span->late && !span->resumed) limit = std::min(limit, span->first_step - 1);
    }
    last_ = request_.has_step_last() ? std::min<int64_t>(request_.step_last(), newest) : newest;
    first_ = oldest;
    if (request_.has_step_first()) {
      first_ = std::max<int64_t>(request_.step_first(), oldest);
    } else if (request_.last_steps() > 0 && last_ >= oldest &&
               static_cast<uint64_t>(last_ - oldest) >= request_.last_steps()) {
      first_ = last_ - static_cast<int64_t>(request_.last_steps()) + 1;
    }
    std::erase_if(spans_, [this](const Clipped& c) { return c.first > last_ || c.last < first_; });
  }

  absl::Status FindRanks() {
    std::vector<uint32_t> ids;
    for (const SeriesName& s : series_) ids.push_back(s.id);
    WantedColumns wanted(ids);
    std::vector<RankMasks> masks(series_.size());
    for (const Clipped& c : spans_) {
      for (size_t i = 0; i < series_.size(); ++i) {
        const auto extents = reader_->Extents(c.span->id, series_[i].id);
        if (!extents.ok()) return extents.status();
        for (const auto& e : *extents) masks[i][e.rank_block] |= e.ranks;
      }
      for (const ClosedStepPtr& step : c.span->steps) {
        for (const StepPart& part : step->parts) {
          for (const auto& [i, column] : wanted.Of(part)) {
            AddRanks(part.ranks, &masks[i]);
          }
        }
      }
    }
    const std::set<uint32_t> requested(request_.rank().begin(), request_.rank().end());
    ranks_.resize(series_.size());
    for (size_t i = 0; i < series_.size(); ++i) {
      for (const auto& [block, mask] : masks[i]) {
        for (uint64_t left = mask; left != 0; left &= left - 1) {
          const uint32_t rank = block * kTileRanks + static_cast<uint32_t>(std::countr_zero(left));
          if (requested.empty() || requested.contains(rank)) ranks_[i].push_back(rank);
        }
      }
    }
    return absl::OkStatus();
  }

  // Computes the steps of a bucket, and the number of series that fit.
  absl::Status Shape(v1::QuerySeriesResponse* response) {
    const uint64_t cells =
        std::min(request_.max_cells() == 0 ? kDefaultCells : request_.max_cells(), kMaxCells);
    uint64_t rows = 0;
    size_t taken = 0;
    for (; taken < series_.size(); ++taken) {
      const uint64_t more = request_.over_ranks() ? 1 : ranks_[taken].size();
      if (rows + more > cells) break;
      rows += more;
    }
    if (taken == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(SeriesText(series_[0].layer, series_[0].op), " has ", ranks_[0].size(),
                       " ranks, more than the ", cells,
                       " requested cells: select ranks, or reduce over them (over_ranks)"));
    }
    response->set_omitted(series_.size() - taken);
    series_.resize(taken);
    const uint64_t width = static_cast<uint64_t>(last_ - first_) + 1;
    const uint64_t buckets = std::max<uint64_t>(1, cells / std::max<uint64_t>(rows, 1));
    const uint64_t bucket_steps = width / buckets + (width % buckets != 0 ? 1 : 0);
    for (size_t i = 0; i < taken; ++i) {
      GridShape shape;
      shape.first_step = first_;
      shape.last_step = last_;
      shape.bucket_steps = std::max<uint64_t>(bucket_steps, 1);
      shape.over_ranks = request_.over_ranks();
      shape.ranks = ranks_[i];
      grids_.emplace_back(std::move(shape));
    }
    return absl::OkStatus();
  }

  absl::Status ReadTiles(v1::QuerySeriesResponse* response) {
    uint64_t tiles = 0;
    for (const Clipped& c : spans_) {
      // Steps in memory are not read from the database, even if they are there by now.
      const int64_t in_memory = c.span->steps.empty() ? kLast : c.span->steps.front()->step;
      TileReader::Range range;
      range.span = c.span->id;
      range.first = std::max(c.first, first_);
      range.last = std::min(std::min(c.last, last_), in_memory == kLast ? kLast : in_memory - 1);
      if (range.first > range.last) continue;
      for (size_t i = 0; i < series_.size(); ++i) {
        if (ranks_[i].empty()) continue;
        range.series = series_[i].id;
        range.first_block = ranks_[i].front() / kTileRanks;
        range.last_block = ranks_[i].back() / kTileRanks;
        const auto take = [&](uint32_t block, const Tile& tile) {
          ++tiles;
          grids_[i].Add(tile, block, range.first, range.last, c.span->attempt);
        };
        if (auto s = reader_->Read(range, take, damaged_); !s.ok()) return s;
      }
    }
    response->set_sealed_tiles(tiles);
    return absl::OkStatus();
  }

  void ReadMemory() {
    std::vector<uint32_t> ids;
    for (const SeriesName& s : series_) ids.push_back(s.id);
    WantedColumns wanted(ids);
    std::vector<SeriesGrid::Columns> columns(series_.size());
    for (const Clipped& c : spans_) {
      for (const ClosedStepPtr& step : c.span->steps) {
        if (step->step < std::max(c.first, first_) || step->step > std::min(c.last, last_))
          continue;
        for (const StepPart& part : step->parts) {
          for (const auto& [i, column] : wanted.Of(part)) columns[i].emplace_back(&part, column);
        }
        for (size_t i = 0; i < columns.size(); ++i) {
          if (!columns[i].empty()) grids_[i].Add(columns[i], step->step, c.span->attempt);
          columns[i].clear();
        }
      }
    }
  }

  const v1::QuerySeriesRequest& request_;
  const RunView& view_;
  TileReader* const reader_;
  std::vector<int64_t>* const damaged_;
  v1::Role role_ = v1::ROLE_UNSPECIFIED;
  std::vector<SeriesName> series_;
  std::vector<std::vector<uint32_t>> ranks_;  // by series
  std::vector<Clipped> spans_;                // newest first
  int64_t first_ = 0, last_ = -1;
  std::vector<SeriesGrid> grids_;  // by series
};

struct Listed {
  uint32_t attempt = 0;
  RankMasks ranks;
  int64_t first_step = kLast, last_step = kFirst;
  uint64_t samples = 0;
};

// Adds the ranks and steps of one column of a part.
void Enter(const StepPart& part, size_t column, int64_t step, bool counted, Listed* listed) {
  const size_t width = part.columns->series.size();
  for (size_t r = 0; r < part.ranks.size(); ++r) {
    if (part.Absent(r * width + column)) continue;
    listed->ranks[part.ranks[r] / kTileRanks] |= uint64_t{1} << (part.ranks[r] % kTileRanks);
    listed->first_step = std::min(listed->first_step, step);
    listed->last_step = std::max(listed->last_step, step);
    if (!counted) ++listed->samples;
  }
}

}  // namespace

std::string SeriesText(const std::string& layer, const std::string& op) {
  return layer.empty() ? op : absl::StrCat(layer, "/", op);
}

absl::Status QuerySeries(const v1::QuerySeriesRequest& request, const RunView& view,
                         TileReader* reader, v1::QuerySeriesResponse* response,
                         std::vector<int64_t>* damaged) {
  return Query(request, view, reader, damaged).Run(response);
}

absl::Status ListSeries(const RunView& view, TileReader* reader, v1::ListSeriesResponse* response) {
  std::vector<uint32_t> ids;
  std::unordered_map<uint32_t, size_t> index;
  for (const SeriesName& s : view.series) {
    index[s.id] = ids.size();
    ids.push_back(s.id);
  }
  WantedColumns wanted(ids);
  std::vector<Listed> listed(ids.size());
  const auto of_attempt = [&](size_t i, uint32_t attempt) {
    if (attempt > listed[i].attempt) listed[i].ranks.clear();
    listed[i].attempt = attempt;
    return &listed[i];
  };
  for (const SpanView& span : view.spans) {
    const auto extents = reader->Extents(span.id);
    if (!extents.ok()) return extents.status();
    // Steps may have been written since the view was taken. If the database counted a step in the
    // same read, it is not counted again from memory. The steps of a span ascend.
    int64_t counted_through = kFirst;
    for (const auto& e : *extents) {
      counted_through = std::max(counted_through, e.last_step);
      const auto found = index.find(e.series);
      if (found == index.end()) continue;
      Listed* l = of_attempt(found->second, span.attempt);
      l->ranks[e.rank_block] |= e.ranks;
      l->first_step = std::min(l->first_step, e.first_step);
      l->last_step = std::max(l->last_step, e.last_step);
      l->samples += e.samples;
    }
    for (const ClosedStepPtr& step : span.steps) {
      const bool counted = step->step <= counted_through;
      for (const StepPart& part : step->parts) {
        for (const auto& [i, column] : wanted.Of(part))
          Enter(part, column, step->step, counted, of_attempt(i, span.attempt));
      }
    }
  }
  for (size_t i = 0; i < ids.size(); ++i) {
    if (listed[i].first_step > listed[i].last_step) continue;
    v1::SeriesInfo* info = response->add_series();
    info->mutable_site()->set_layer(view.series[i].layer);
    info->mutable_site()->set_op(view.series[i].op);
    info->set_role(view.series[i].role);
    info->set_attempt(listed[i].attempt);
    uint32_t ranks = 0;
    for (const auto& [block, mask] : listed[i].ranks)
      ranks += static_cast<uint32_t>(std::popcount(mask));
    info->set_ranks(ranks);
    info->set_step_first(listed[i].first_step);
    info->set_step_last(listed[i].last_step);
    info->set_samples(listed[i].samples);
  }
  return absl::OkStatus();
}

}  // namespace plumbline::server
