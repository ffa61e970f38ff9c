#include "audit/readers/scalars/run_points.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace plumbline::audit {
namespace {

constexpr size_t kNewest = 8;

}  // namespace

// Grows by a factor of four: untouched pages cost nothing, but each growth copies the touched ones.
void SeriesChunk::Grow() {
  constexpr size_t kFew = 1024, kMany = size_t{4} << 20;
  const size_t had = values.size();
  if (had >= kFew) values.reserve(had > kMany ? 2 * had : 4 * had);
}

void SeriesChunk::Order() {
  if (ordered) return;
  std::vector<uint32_t> order(steps.size());
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(),
            [&](uint32_t a, uint32_t b) { return steps[a] < steps[b]; });
  StepList sorted_steps;
  std::vector<double> sorted_values;
  sorted_values.reserve(order.size());
  for (const uint32_t i : order) {
    sorted_steps.push_back(steps[i]);
    sorted_values.push_back(values[i]);
  }
  steps = std::move(sorted_steps);
  values = std::move(sorted_values);
  ordered = true;
}

SeriesChunk* PointSeries::Chunk(uint32_t attempt) {
  const auto found = std::lower_bound(
      chunks_.begin(), chunks_.end(), attempt,
      [](const SeriesChunk& chunk, uint32_t wanted) { return chunk.attempt < wanted; });
  return found != chunks_.end() && found->attempt == attempt ? &*found : nullptr;
}

std::optional<size_t> PointSeries::Recent(int64_t step) const {
  const size_t size = now_->steps.size();
  for (size_t i = size; i > 0 && i + kNewest > size; --i) {
    if (now_->steps[i - 1] == step) return i - 1;
  }
  return std::nullopt;
}

bool PointSeries::Repeats(uint32_t attempt, int64_t step) {
  if (!MayRepeat(attempt, step) || Recent(step)) return false;
  if (watched_) return seen_.contains(step);
  return std::binary_search(now_->steps.begin(), now_->steps.end(), step);
}

// Records that the step at this place repeats.
void PointSeries::NoteAgain(size_t at) {
  const size_t last = now_->steps.size() - 1;
  if (at != again_next_ || again_size_ != last + 1) again_first_ = at;
  again_next_ = at + 1;
  again_size_ = last + 1;
  if (at == last && again_first_ < last && now_->ordered && !fell_back_)
    fell_back_ = {now_->steps[last], now_->steps[again_first_]};
}

bool PointSeries::AddOlder(uint32_t attempt, int64_t step, double value) {
  if (now_ == nullptr || now_->attempt != attempt) {
    now_ = &chunks_.emplace_back();
    now_->attempt = attempt;
    watched_ = false;
    seen_.clear();
    reported_ = INT64_MIN;
  } else if (const std::optional<size_t> recent = Recent(step)) {
    // A step may have several rows, from micro-batches or because it was written again. The last
    // value counts, but a later value does not replace NaN or infinity.
    NoteAgain(*recent);
    double& kept = now_->values[*recent];
    if (!std::isfinite(kept)) return false;
    altered_ |= step <= reported_ && !(kept == value);
    kept = value;
    return false;
  } else {
    // The steps are no longer ascending, so a set records the steps that were seen.
    if (!watched_) seen_.insert(now_->steps.begin(), now_->steps.end());
    watched_ = true;
    // Happens only if attempts can no longer be separated (PointLimits). Then keeps the first
    // value.
    if (seen_.contains(step)) return false;
    now_->ordered = false;
    altered_ |= step <= reported_;
  }
  now_->newest = now_->steps.empty() ? step : std::max(now_->newest, step);
  now_->Add(step, value);
  if (watched_) seen_.insert(step);
  return true;
}

uint32_t RunPoints::AttemptAt(double time) const {
  const auto last =
      std::find_if(begun.rbegin(), begun.rend(), [time](double begin) { return begin <= time; });
  return static_cast<uint32_t>(begun.rend() - last);
}

uint32_t RunPoints::WorldSize() const {
  const auto ranks = static_cast<uint32_t>(lanes.size());
  return !lanes.empty() && lanes.rbegin()->first + 1 == ranks ? ranks : 0;
}

PointLane* PointRuns::Lane(const std::string& run, uint32_t rank) {
  RunPoints& of_run = runs[run];
  of_run.run = run;
  const auto known = of_run.lanes.find(rank);
  if (known != of_run.lanes.end()) return &known->second;
  if (lanes >= limits.lanes) {
    if (of_run.lanes.empty()) runs.erase(run);
    return nullptr;
  }
  ++lanes;
  PointLane& lane = of_run.lanes[rank];
  lane.rank = rank;
  return &lane;
}

PointSeries* PointRuns::Series(PointLane* lane, const std::string& name) {
  const auto known = lane->by_name.find(name);
  if (known != lane->by_name.end()) return known->second;
  if (names >= limits.names) return nullptr;
  ++names;
  PointSeries* series = &lane->series.emplace_back(name);
  lane->by_name.emplace(name, series);
  return series;
}

}  // namespace plumbline::audit
