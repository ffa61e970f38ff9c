#include "audit/readers/scalars/batches.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <unordered_map>
#include <utility>

#include "absl/hash/hash.h"

namespace plumbline::audit {
namespace {

// wandb's handler reports this exit status for a run that a person interrupted.
constexpr int32_t kInterrupted = 255;

}  // namespace

uint32_t NewestAttempt(const RunPoints& run) {
  uint32_t newest = 0;
  for (const auto& [rank, lane] : run.lanes) {
    for (const PointSeries& series : lane.series) {
      if (!series.chunks().empty()) newest = std::max(newest, series.chunks().back().attempt);
    }
  }
  return newest;
}

v1::Source PointSource(const RunPoints& run, uint32_t rank, uint32_t attempt) {
  v1::Source source;
  source.set_run(run.run);
  source.set_attempt(attempt);
  source.set_role(v1::ROLE_TRAINER);
  source.set_rank(rank);
  source.set_world_size(run.WorldSize());
  return source;
}

void DescribeProgress(const PointLane& lane, uint32_t source, int64_t through, bool last,
                      v1::Batch* batch) {
  v1::Progress& progress = *batch->add_progress();
  progress.set_source(source);
  progress.set_any_step(true);
  progress.set_complete_through(through);
  progress.set_newest_step(through);
  if (!last || !lane.exit_status) return;
  progress.set_finished(true);
  if (*lane.exit_status == 0) return;
  progress.mutable_ending()->set_how(*lane.exit_status == kInterrupted ? v1::Ending::HOW_INTERRUPTED
                                                                       : v1::Ending::HOW_EXIT);
  progress.mutable_ending()->set_code(*lane.exit_status);
}

PointBatches::PointBatches(PointRuns* runs, uint64_t stream_id, Points points)
    : runs_(runs), stream_id_(stream_id), points_(points), run_(runs->runs.begin()) {
  if (run_ != runs_->runs.end()) last_attempt_ = NewestAttempt(run_->second);
}

void PointBatches::NextRun() {
  run_ = points_ == Points::kKept ? std::next(run_) : runs_->runs.erase(run_);
  attempt_ = 0;
  if (run_ != runs_->runs.end()) last_attempt_ = NewestAttempt(run_->second);
}

bool PointBatches::BeginAttempt() {
  while (run_ != runs_->runs.end()) {
    RunPoints& run = run_->second;
    for (; attempt_ <= last_attempt_; ++attempt_) {
      for (auto& [rank, lane] : run.lanes) {
        GroupSeries(&lane, static_cast<uint32_t>(lanes_.size()));
        // Also added without a point, so that the engine does not wait for it.
        lanes_.push_back(&lane);
      }
      if (groups_.empty()) {
        lanes_.clear();
        continue;
      }
      CutSteps();
      open_ = true;
      return true;
    }
    NextRun();
  }
  return false;
}

void PointBatches::GroupSeries(PointLane* lane, uint32_t source) {
  // Hash of the steps -> indices of groups.
  std::unordered_map<size_t, std::vector<size_t>> by_hash;
  std::map<size_t, std::string> keys;  // names of the series in each new group
  std::map<size_t, v1::SeriesSet> sets;
  // Sorted by name, which is the order in which a step is judged.
  std::vector<PointSeries*> by_name;
  for (PointSeries& series : lane->series) by_name.push_back(&series);
  std::sort(by_name.begin(), by_name.end(),
            [](const PointSeries* a, const PointSeries* b) { return a->name() < b->name(); });
  for (PointSeries* each : by_name) {
    PointSeries& series = *each;
    SeriesChunk* of_attempt = series.Chunk(attempt_);
    if (of_attempt == nullptr) continue;
    // Later readers need the order of the file, so sorts a copy of a kept chunk.
    if (points_ == Points::kKept && !of_attempt->ordered)
      of_attempt = &ordered_.emplace_back(*of_attempt);
    SeriesChunk& chunk = *of_attempt;
    chunk.Order();
    const size_t hash = absl::HashOf(chunk.steps);
    std::vector<size_t>& alike = by_hash[hash];
    auto same = std::find_if(alike.begin(), alike.end(),
                             [&](size_t g) { return groups_[g].steps() == chunk.steps; });
    if (same == alike.end()) {
      alike.push_back(groups_.size());
      same = alike.end() - 1;
      groups_.emplace_back().source = source;
    }
    groups_[*same].columns.push_back(&chunk);
    keys[*same] += std::to_string(series.name().size()) + ":" + series.name();
    sets[*same].add_sites()->set_op(series.name());
  }
  for (auto& [group, key] : keys) {
    const auto [known, fresh] = sets_.try_emplace(std::move(key), sets_.size() + 1);
    groups_[group].set = known->second;
    if (!fresh) continue;
    sets.at(group).set_id(known->second);
    undeclared_.push_back(std::move(sets.at(group)));
  }
}

// Sets the cuts so that each group has rows for at most about one batch between two cuts. The first
// batch of an attempt has few rows: the engine judges the rows of a rank it knows many at a time.
void PointBatches::CutSteps() {
  constexpr size_t kFirstRows = 16;
  size_t columns = 0;
  for (const Group& group : groups_) columns += group.columns.size();
  const size_t rows = std::max<size_t>(1, kValues / columns);
  cuts_.clear();
  cut_ = 0;
  const auto longest = std::max_element(
      groups_.begin(), groups_.end(),
      [](const Group& a, const Group& b) { return a.steps().size() < b.steps().size(); });
  if (longest->steps().size() > kFirstRows) cuts_.push_back(longest->steps()[kFirstRows - 1]);
  for (size_t g = 0; g < groups_.size(); ++g) {
    const StepList& steps = groups_[g].steps();
    for (size_t i = rows - 1; i < steps.size(); i += rows) cuts_.push_back(steps[i]);
    cuts_.push_back(steps.back());
    heap_.emplace_back(steps.front(), g);
  }
  std::sort(cuts_.begin(), cuts_.end());
  cuts_.erase(std::unique(cuts_.begin(), cuts_.end()), cuts_.end());
  std::make_heap(heap_.begin(), heap_.end(), std::greater<>());
}

bool PointBatches::Next(v1::Batch* batch) {
  if (!open_ && !BeginAttempt()) return false;
  batch->Clear();
  batch->set_stream_id(stream_id_);
  batch->set_sequence(++sequence_);
  for (const PointLane* lane : lanes_)
    *batch->add_sources() = PointSource(run_->second, lane->rank, attempt_);
  for (v1::SeriesSet& set : undeclared_) *batch->add_series_sets() = std::move(set);
  undeclared_.clear();
  for (Group& group : groups_) group.rows = nullptr;
  size_t values = 0;
  int64_t through = 0;
  const size_t most = cut_ == 0 ? 1 : kValues;
  while (cut_ < cuts_.size() && values < most) {
    through = cuts_[cut_++];
    while (!heap_.empty() && heap_.front().first <= through) {
      const size_t g = heap_.front().second;
      std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
      heap_.pop_back();
      values += Append(&groups_[g], through, batch);
      if (groups_[g].at == groups_[g].steps().size()) continue;
      heap_.emplace_back(groups_[g].steps()[groups_[g].at], g);
      std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
    }
  }
  Close(through, batch);
  return true;
}

// Appends rows. The values of a row are adjacent. So two values of a series are one row length
// apart.
size_t PointBatches::Append(Group* group, int64_t through, v1::Batch* batch) {
  const StepList& steps = group->steps();
  const size_t begin = group->at;
  size_t end = begin;
  while (end < steps.size() && steps[end] <= through) ++end;
  group->at = end;
  if (group->rows == nullptr) {
    group->rows = batch->add_series();
    group->rows->set_set(group->set);
    group->rows->add_source(group->source);
  }
  group->rows->mutable_step()->Add(steps.begin() + static_cast<std::ptrdiff_t>(begin),
                                   steps.begin() + static_cast<std::ptrdiff_t>(end));
  auto& list = *group->rows->mutable_value();
  const int before = list.size();
  const size_t width = group->columns.size(), count = (end - begin) * width;
  list.Reserve(before + static_cast<int>(count));
  double* row = list.AddNAlreadyReserved(static_cast<int>(count));
  for (size_t column = 0; column < width; ++column) {
    const double* from = group->columns[column]->values.data() + begin;
    for (size_t i = 0; i < end - begin; ++i) row[i * width + column] = from[i];
  }
  return count;
}

void PointBatches::Close(int64_t through, v1::Batch* batch) {
  const bool last = cut_ == cuts_.size();
  position_ = {run_->first, attempt_, through};
  for (uint32_t i = 0; i < lanes_.size(); ++i)
    DescribeProgress(*lanes_[i], i, through, last && attempt_ == last_attempt_, batch);
  if (last) EndAttempt();
}

void PointBatches::EndAttempt() {
  for (PointLane* lane : lanes_) {
    if (points_ == Points::kKept) break;
    for (PointSeries& series : lane->series) {
      if (!series.chunks().empty() && series.chunks().front().attempt == attempt_)
        series.chunks().pop_front();
    }
  }
  ordered_.clear();
  lanes_.clear();
  groups_.clear();
  heap_.clear();
  open_ = false;
  ++attempt_;
}

}  // namespace plumbline::audit
