// The open steps of a run: evidence and rows that wait until their step closes, and the bytes that
// they hold. Does not decide when a step closes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "analysis/frame/frame.h"
#include "base/archive.h"
#include "rules/analysis_names.h"
#include "rules/engine/series.h"

namespace plumbline::rules {

struct HeldItem {
  std::shared_ptr<const v1::Batch> batch;  // keeps the two pointers alive
  const v1::Source* source;
  const v1::Evidence* evidence;
  bool read = false;  // true if it is a scalar that some rule is known to read
};

struct HeldRow {
  std::shared_ptr<const v1::Batch> batch;
  const v1::SeriesRows* rows;
  int row;
  const v1::Source* source;
  std::shared_ptr<const SeriesColumns> columns;
  SeriesRow view() const;
};

struct OpenStep {
  std::vector<HeldItem> items;
  std::vector<HeldRow> rows;
  uint64_t bytes = 0;  // bytes of the batches whose newest step is this one
};

// Returns a row of the rows, which have this number of columns.
SeriesRow ViewOf(const v1::SeriesRows& rows, int row, uint32_t rank, size_t columns);

// Returns the step's evidence in the order of judging, which does not depend on the order of
// arrival. Rules see the same evidence for scalars that came as evidence or as rows: values of rows
// become evidence in `made`, whose entries are reused.
std::vector<HeldItem> ItemsInOrder(const OpenStep& open, std::deque<v1::Evidence>* made);

class OpenSteps {
 public:
  using Steps = std::map<int64_t, OpenStep>;
  // The steps of one group (an attempt of a role).
  struct Group {
    Steps open;
    // Evidence that arrived after its step was closed, by rank and step, until the rank reports
    // that the step is complete.
    std::map<uint32_t, Steps> late;
    uint64_t bytes = 0;  // bytes of `open` and `late`
  };

  // Keeps the memory of at most `most_spare` closed steps for reuse.
  explicit OpenSteps(size_t most_spare) : most_spare_(most_spare) {}

  uint64_t bytes() const { return bytes_; }  // of all groups

  // Return a step, and record that the current batch is held in it.
  OpenStep& At(Group& group, int64_t step);
  OpenStep& LateAt(Group& group, uint32_t rank, int64_t step);
  // Records that the batch changes what is known of the late steps of a rank.
  void Touch(Group& group, uint32_t rank) { touched_.emplace(&group, rank); }
  // Charges the batch to the newest of its steps: steps close in order, so a whole batch is held
  // until then.
  void Charge(const v1::Batch& batch);
  // Returns the ranks whose late steps the batch touches, by evidence or by Touch.
  std::vector<uint32_t> Touched(Group& group) const;
  void EndBatch() { touched_.clear(); }

  // Take out a step, whose bytes no longer count. `of` belongs to the group.
  Steps::node_type TakeOldest(Group& group);
  OpenStep Take(Group& group, Steps* of, Steps::iterator step);
  // Keeps the memory of a step that TakeOldest returned.
  void Reuse(Steps::node_type node);

  // Stores or reads the steps of a group, as the messages that hold them.
  void Persist(Group& group, SeriesSets* sets, Archive& archive);

 private:
  void PersistSteps(Group& group, Steps* steps, SeriesSets* sets, Archive& archive);

  const size_t most_spare_;
  std::vector<Steps::node_type> spare_;
  uint64_t bytes_ = 0;
  // The newest step of the current batch, by group; the same for late ones, also by rank.
  std::map<Group*, int64_t> held_until_;
  std::map<std::pair<Group*, uint32_t>, int64_t> late_until_;
  std::set<std::pair<Group*, uint32_t>> touched_;
};

}  // namespace plumbline::rules
