#include "audit/follow/point_cursor.h"

#include <algorithm>
#include <utility>

namespace plumbline::audit {
namespace {

// Beyond this many combinations of series, each series is a separate set, so that the declarations
// of a stream are bounded.
constexpr size_t kMostSets = 4096;

}  // namespace

void PointCursor::SkipAll(const PointRuns& runs) {
  for (const auto& [name, run] : runs.runs) {
    State& state = states_[name];
    state.attempt = NewestAttempt(run);
    for (const auto& [rank, lane] : run.lanes) {
      for (const PointSeries& series : lane.series) {
        if (series.chunks().empty()) continue;
        const SeriesChunk& chunk = series.chunks().back();
        state.places[&series] = {chunk.attempt, chunk.steps.size()};
        if (chunk.attempt == state.attempt) state.through = std::max(state.through, chunk.newest);
      }
      state.finished |= lane.exit_status.has_value();
    }
  }
}

void PointCursor::SkipThrough(const std::string& run, uint32_t attempt, int64_t step) {
  State& state = states_[run];
  state.attempt = state.skip_attempt = attempt;
  state.through = state.skip_step = step;
  state.places.clear();
}

void PointCursor::Forget() {
  for (auto& [run, state] : states_) {
    state.places.clear();
    state.skip_attempt = state.attempt;
    state.skip_step = state.through;
  }
}

// Collects the points of each series that the next batch may hold.
void PointCursor::Gather(RunPoints* run, State* state, int64_t limit) {
  parts_.clear();
  uint32_t source = 0;
  for (auto& [rank, lane] : run->lanes) {
    for (PointSeries& series : lane.series) {
      Place& place = state->places[&series];
      // Remaining points of an earlier attempt came too late.
      if (place.attempt < state->attempt) {
        const SeriesChunk* before = series.Chunk(place.attempt);
        late_ |= before != nullptr && state->attempt != state->skip_attempt &&
                 place.index < before->steps.size();
        place = {state->attempt, 0};
      }
      SeriesChunk* chunk = series.Chunk(state->attempt);
      if (chunk == nullptr) continue;
      const StepList& steps = chunk->steps;
      while (state->attempt == state->skip_attempt && place.index < steps.size() &&
             steps[place.index] <= state->skip_step)
        ++place.index;
      size_t end = place.index;
      while (end < steps.size() && steps[end] <= limit && end - place.index <= kValues) ++end;
      if (end > place.index) parts_.push_back({source, &series, chunk, &place, end});
    }
    ++source;
  }
}

// Returns the step up to which all parts together fill about one batch.
int64_t PointCursor::Cut(int64_t limit) const {
  const size_t most = std::max<size_t>(1, kValues / std::max<size_t>(1, parts_.size()));
  int64_t cut = limit;
  for (const Part& part : parts_) {
    const auto begin = part.chunk->steps.begin() + static_cast<std::ptrdiff_t>(part.place->index);
    if (part.end - part.place->index <= most) continue;
    cut = std::min(cut, *std::max_element(begin, begin + static_cast<std::ptrdiff_t>(most)));
  }
  return cut;
}

void PointCursor::Begin(const RunPoints& run, uint32_t attempt, v1::Batch* batch) {
  batch->Clear();
  batch->set_stream_id(stream_id_);
  batch->set_sequence(++sequence_);
  for (const auto& [rank, lane] : run.lanes)
    *batch->add_sources() = PointSource(run, rank, attempt);
}

// Returns the number of a combination of series. If the combination is new, declares it in the
// batch.
uint64_t PointCursor::SetOf(const std::vector<Part*>& columns, v1::Batch* batch) {
  std::string key;
  for (const Part* part : columns)
    key += std::to_string(part->series->name().size()) + ":" + part->series->name();
  const auto [known, fresh] = sets_.try_emplace(std::move(key), sets_.size() + 1);
  if (fresh) {
    v1::SeriesSet& set = *batch->add_series_sets();
    set.set_id(known->second);
    for (const Part* part : columns) set.add_sites()->set_op(part->series->name());
  }
  return known->second;
}

// Adds rows for parts of one source with the same steps, up to the same cut.
void PointCursor::AddRows(const std::vector<Part*>& columns, v1::Batch* batch) {
  v1::SeriesRows& rows = *batch->add_series();
  rows.set_set(SetOf(columns, batch));
  rows.add_source(columns[0]->source);
  for (size_t i = columns[0]->place->index, n = 0; i < columns[0]->end; ++i, ++n) {
    rows.add_step(columns[0]->chunk->steps[i]);
    for (const Part* part : columns) rows.add_value(part->chunk->values[part->place->index + n]);
  }
}

// Combines series of one source that share their steps into rows.
void PointCursor::Fill(RunPoints* run, State* state, int64_t cut, v1::Batch* batch) {
  Begin(*run, state->attempt, batch);
  std::map<std::pair<uint32_t, std::vector<int64_t>>, std::vector<Part*>> groups;
  for (Part& part : parts_) {
    const StepList& steps = part.chunk->steps;
    size_t end = part.place->index;
    while (end < part.end && steps[end] <= cut) ++end;
    part.end = end;
    if (end == part.place->index) continue;
    std::vector<int64_t> reported(steps.begin() + static_cast<std::ptrdiff_t>(part.place->index),
                                  steps.begin() + static_cast<std::ptrdiff_t>(end));
    late_ |= *std::min_element(reported.begin(), reported.end()) <= state->through;
    groups[{part.source, std::move(reported)}].push_back(&part);
  }
  for (const auto& [of, columns] : groups) {
    if (sets_.size() < kMostSets) {
      AddRows(columns, batch);
    } else {
      for (Part* part : columns) AddRows({part}, batch);
    }
  }
  for (Part& part : parts_) {
    part.place->index = part.end;
    if (part.chunk == &part.series->chunks().back()) part.series->Reported(cut);
  }
}

bool PointCursor::Next(RunPoints* run, int64_t through, v1::Batch* batch) {
  State& state = states_[run->run];
  const uint32_t newest = NewestAttempt(*run);
  // Finish an attempt before the next one begins.
  for (;; ++state.attempt, state.through = INT64_MIN, state.finished = false) {
    const bool last = state.attempt >= newest;
    int64_t reached = INT64_MIN;  // newest step of the attempt's points
    for (const auto& [rank, lane] : run->lanes) {
      for (const PointSeries& series : lane.series) {
        const auto& chunks = series.chunks();
        if (!chunks.empty() && chunks.back().attempt == state.attempt)
          reached = std::max(reached, chunks.back().newest);
      }
    }
    const int64_t limit = last ? std::min(through, reached) : INT64_MAX;
    Gather(run, &state, limit);
    const bool ends = last && through >= reached && !state.finished &&
                      std::any_of(run->lanes.begin(), run->lanes.end(), [](const auto& lane) {
                        return lane.second.exit_status.has_value();
                      });
    if (parts_.empty() && !(ends && reached != INT64_MIN)) {
      if (last) return false;
      continue;
    }
    int64_t cut = Cut(limit);
    if (!last && cut == INT64_MAX) {
      cut = state.through;
      for (const Part& part : parts_) cut = std::max(cut, part.chunk->newest);
    }
    Fill(run, &state, cut, batch);
    state.through = std::max(state.through, cut);
    const bool whole = ends && state.through >= reached;
    state.finished |= whole;
    uint32_t source = 0;
    for (const auto& [rank, lane] : run->lanes)
      DescribeProgress(lane, source++, state.through, whole, batch);
    return true;
  }
}

bool PointCursor::Goodbye(const RunPoints& run, v1::Batch* batch) {
  const auto state = states_.find(run.run);
  if (state == states_.end() || state->second.through == INT64_MIN || state->second.finished)
    return false;
  Begin(run, state->second.attempt, batch);
  uint32_t source = 0;
  for (const auto& [rank, lane] : run.lanes) {
    DescribeProgress(lane, source++, state->second.through, false, batch);
    batch->mutable_progress(batch->progress_size() - 1)->set_finished(true);
  }
  state->second.finished = true;
  return true;
}

}  // namespace plumbline::audit
