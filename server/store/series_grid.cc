#include "server/store/series_grid.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <utility>

namespace plumbline::server {

SeriesGrid::SeriesGrid(GridShape shape)
    : shape_(std::move(shape)), buckets_(shape_.buckets()), used_(buckets_), attempts_(buckets_) {
  for (size_t i = 0; i < shape_.ranks.size(); ++i) {
    auto [block, fresh] = rows_.try_emplace(shape_.ranks[i] / kTileRanks);
    if (fresh) block->second.fill(kNoRow);
    block->second[shape_.ranks[i] % kTileRanks] = shape_.over_ranks ? 0 : static_cast<int32_t>(i);
  }
  if (exact()) {
    values_.Resize(static_cast<int>(shape_.rows() * buckets_), 0.0);
    present_.resize(shape_.rows() * buckets_);
  } else {
    cells_.resize(shape_.rows() * buckets_);
  }
}

const std::array<int32_t, kTileRanks>* SeriesGrid::RowsOf(uint32_t rank_block) const {
  const auto found = rows_.find(rank_block);
  return found == rows_.end() ? nullptr : &found->second;
}

void SeriesGrid::Put(size_t row, size_t bucket, double value) {
  const size_t i = row * buckets_ + bucket;
  if (exact()) {
    values_.mutable_data()[i] = value;
    present_[i] = 1;
    return;
  }
  Cell& cell = cells_[i];
  ++cell.count;
  if (!std::isfinite(value)) {
    ++cell.non_finite;
    return;
  }
  const bool first = cell.count - cell.non_finite == 1;
  cell.min = first ? value : std::min(cell.min, value);
  cell.max = first ? value : std::max(cell.max, value);
  cell.sum += value;
}

void SeriesGrid::Add(const Tile& tile, uint32_t rank_block, int64_t first, int64_t last,
                     uint32_t attempt) {
  const auto* rows = RowsOf(rank_block);
  if (rows == nullptr) return;
  first = std::max(first, shape_.first_step);
  last = std::min(last, shape_.last_step);
  const auto index = [&](auto it) { return static_cast<size_t>(it - tile.steps.begin()); };
  const size_t begin = index(std::lower_bound(tile.steps.begin(), tile.steps.end(), first));
  const size_t end = index(std::upper_bound(tile.steps.begin(), tile.steps.end(), last));
  if (begin >= end) return;
  bucket_of_.resize(end - begin);
  for (size_t s = begin; s < end; ++s) {
    const size_t bucket = bucket_of_[s - begin] = BucketOf(tile.steps[s]);
    attempts_[bucket] = std::max(attempts_[bucket], attempt);
  }
  if (exact() && tile.absent.empty()) return AddExact(tile, begin, end, *rows);
  const size_t width = tile.columns();
  size_t column = 0;
  for (uint64_t left = tile.ranks; left != 0; left &= left - 1, ++column) {
    const int32_t row = (*rows)[static_cast<size_t>(std::countr_zero(left))];
    if (row == kNoRow) continue;
    for (size_t s = begin; s < end; ++s) {
      if (tile.Absent(s * width + column)) continue;
      const size_t bucket = bucket_of_[s - begin];
      used_[bucket] = 1;
      Put(static_cast<size_t>(row), bucket, tile.values[s * width + column]);
    }
  }
}

// Adds a tile with exact values, the most common query: whole columns become contiguous parts of
// rows.
void SeriesGrid::AddExact(const Tile& tile, size_t begin, size_t end,
                          const std::array<int32_t, 64>& rows) {
  const size_t width = tile.columns();
  const bool consecutive =
      tile.steps[end - 1] - tile.steps[begin] == static_cast<int64_t>(end - begin) - 1;
  const size_t first = bucket_of_[0];
  double* values = values_.mutable_data();
  size_t column = 0;
  for (uint64_t left = tile.ranks; left != 0; left &= left - 1, ++column) {
    const int32_t row = rows[static_cast<size_t>(std::countr_zero(left))];
    if (row == kNoRow) continue;
    const size_t base = static_cast<size_t>(row) * buckets_;
    const double* value = tile.values.data() + begin * width + column;
    if (consecutive) {
      double* to = values + base + first;
      for (size_t i = 0; i < end - begin; ++i) to[i] = value[i * width];
      std::fill_n(present_.begin() + static_cast<ptrdiff_t>(base + first), end - begin, 1);
      std::fill_n(used_.begin() + static_cast<ptrdiff_t>(first), end - begin, 1);
      continue;
    }
    for (size_t s = begin; s < end; ++s) {
      const size_t bucket = bucket_of_[s - begin];
      values[base + bucket] = value[(s - begin) * width];
      present_[base + bucket] = 1;
      used_[bucket] = 1;
    }
  }
}

void SeriesGrid::Add(const Columns& columns, int64_t step, uint32_t attempt) {
  if (step < shape_.first_step || step > shape_.last_step) return;
  const size_t bucket = BucketOf(step);
  std::map<uint32_t, double> by_rank;  // if a rank may occur twice
  const std::array<int32_t, kTileRanks>* rows = nullptr;
  uint32_t block = std::numeric_limits<uint32_t>::max();
  const auto put = [&](uint32_t rank, double value) {
    if (rank / kTileRanks != block) {
      block = rank / kTileRanks;
      rows = RowsOf(block);
    }
    const int32_t row = rows == nullptr ? kNoRow : (*rows)[rank % kTileRanks];
    if (row == kNoRow) return;
    used_[bucket] = 1;
    attempts_[bucket] = std::max(attempts_[bucket], attempt);
    Put(static_cast<size_t>(row), bucket, value);
  };
  for (const auto& [part, column] : columns) {
    const std::vector<uint32_t>& ranks = part->ranks;
    const size_t width = part->columns->series.size();
    const bool unique =
        columns.size() == 1 &&
        std::adjacent_find(ranks.begin(), ranks.end(), std::greater_equal<>()) == ranks.end();
    for (size_t r = 0; r < ranks.size(); ++r) {
      const size_t i = r * width + column;
      if (part->Absent(i)) continue;
      unique ? put(ranks[r], part->values[i]) : void(by_rank[ranks[r]] = part->values[i]);
    }
  }
  for (const auto& [rank, value] : by_rank) put(rank, value);
}

void SeriesGrid::Finish(v1::SeriesColumns* out) {
  std::vector<size_t> used;
  for (size_t b = 0; b < buckets_; ++b) {
    if (used_[b] != 0) used.push_back(b);
  }
  if (!shape_.over_ranks) out->mutable_rank()->Add(shape_.ranks.begin(), shape_.ranks.end());
  out->set_bucket_steps(shape_.bucket_steps);
  bool one_attempt = true;
  for (const size_t b : used) {
    out->add_step(shape_.first_step + static_cast<int64_t>(b * shape_.bucket_steps));
    out->add_attempt(attempts_[b]);
    one_attempt &= attempts_[b] == attempts_[used.front()];
  }
  if (one_attempt && !used.empty()) out->mutable_attempt()->Truncate(1);
  exact() ? FinishExact(used, out) : FinishReduced(used, out);
}

void SeriesGrid::FinishExact(const std::vector<size_t>& used, v1::SeriesColumns* out) {
  const size_t cells = shape_.rows() * used.size();
  if (used.size() < buckets_) {  // moves them to the front, without the others
    double* to = values_.mutable_data();
    const double* from = to;
    for (size_t row = 0; row < shape_.rows(); ++row, from += buckets_) {
      for (const size_t b : used) *to++ = from[b];
    }
    values_.Truncate(static_cast<int>(cells));
  }
  out->mutable_mean()->Swap(&values_);
  // A cell with a value is in a used bucket.
  const auto present = static_cast<size_t>(std::count(present_.begin(), present_.end(), 1));
  if (present == cells) return;
  std::string bits((cells + 7) / 8, '\0');
  size_t cell = 0;
  for (size_t row = 0; row < shape_.rows(); ++row) {
    for (const size_t b : used) {
      if (present_[row * buckets_ + b] == 0)
        bits[cell / 8] = static_cast<char>(bits[cell / 8] | 1 << (cell % 8));
      ++cell;
    }
  }
  out->set_absent(std::move(bits));
}

void SeriesGrid::FinishReduced(const std::vector<size_t>& used, v1::SeriesColumns* out) {
  std::string bits((shape_.rows() * used.size() + 7) / 8, '\0');
  bool any_absent = false, any_non_finite = false;
  size_t i = 0;
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  for (size_t row = 0; row < shape_.rows(); ++row) {
    for (const size_t b : used) {
      const Cell& cell = cells_[row * buckets_ + b];
      const uint32_t finite = cell.count - cell.non_finite;
      if (cell.count == 0) bits[i / 8] = static_cast<char>(bits[i / 8] | 1 << (i % 8));
      any_absent |= cell.count == 0;
      any_non_finite |= cell.non_finite > 0;
      const double none = cell.count == 0 ? 0.0 : kNone;
      out->add_mean(finite == 0 ? none : cell.sum / finite);
      out->add_min(finite == 0 ? none : cell.min);
      out->add_max(finite == 0 ? none : cell.max);
      out->add_count(cell.count);
      out->add_non_finite(cell.non_finite);
      ++i;
    }
  }
  if (!any_non_finite) out->clear_non_finite();
  if (any_absent) out->set_absent(std::move(bits));
}

}  // namespace plumbline::server
