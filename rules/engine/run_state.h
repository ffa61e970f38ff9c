// One run inside the engine: joins its evidence by (attempt, role, step, site) and decides when a
// step is complete. Knows nothing of rules.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/archive.h"
#include "rules/engine/rank_progress.h"
#include "rules/engine/series.h"
#include "rules/rule.h"

namespace plumbline::rules {

class RunState {
 public:
  // What is called as steps close: `site` for each site of a step that the rules look at, `series`
  // for each list of series in it (may be empty: nobody stores them), then `step` once.
  struct OnClose {
    std::function<void(const SiteStep&)> site;
    std::function<void(const StepSeries&)> series;
    std::function<void(const StepEnd&)> step;
  };

  // `sets` holds what the streams declared, and must outlive this. What open steps hold takes at
  // most `max_bytes`, and another batch (0: no bound); beyond it the oldest ones close.
  RunState(std::string run, int64_t window_steps, SeriesSets* sets, uint64_t max_bytes = 0)
      : window_(window_steps), max_bytes_(max_bytes), sets_(sets) {
    summary_.run = std::move(run);
  }

  // What `batch` says about this run. Only sources of this run are looked at. Valid input assumed,
  // its sets declared.
  void Take(const std::shared_ptr<const v1::Batch>& batch, const OnClose& on_close);
  void MarkGone(const v1::Source& source, const OnClose& on_close);
  // Closes everything that is open, complete or not.
  void CloseAll(const OnClose& on_close);

  // Its ranks apart.
  RunSummary& summary() { return summary_; }
  const RunSummary& summary() const { return summary_; }
  // All of it.
  RunSummary& Summarize();
  const std::set<uint32_t>& ranks() const { return ranks_seen_; }
  // Newest step below which all is closed, over the newest attempt; -1 before the first.
  int64_t closed_step() const;

  uint64_t open_bytes() const { return open_bytes_; }
  uint64_t closed_for_room() const { return closed_for_room_; }  // steps

  // Everything above and what is open, the window apart. The sets are read before it; counts_ is
  // found again.
  void Persist(Archive& archive);

 private:
  static constexpr int64_t kNever = RankProgress::kNever;

  using Columns = std::shared_ptr<const SeriesColumns>;
  struct Held {
    std::shared_ptr<const v1::Batch> batch;  // keeps the two pointers alive
    const v1::Source* source;
    const v1::Evidence* evidence;
  };
  struct HeldRow {
    std::shared_ptr<const v1::Batch> batch;
    const v1::SeriesRows* rows;
    int row;
    const v1::Source* source;
    Columns columns;
    SeriesRow view() const;
  };
  struct OpenStep {
    std::vector<Held> items;
    std::vector<HeldRow> rows;
    uint64_t bytes = 0;  // of the batches of which this is the newest step
  };
  // One attempt of one role.
  struct Group {
    uint32_t world_size = 0;
    RankProgress progress;
    std::map<int64_t, OpenStep> open;  // by step
    int64_t closed = kNever;
    int64_t newest_step = kNever;
    uint64_t bytes = 0;  // of what is open
  };
  using GroupKey = std::pair<uint32_t, v1::Role>;  // (attempt, role)
  // Where the values of a list are counted: one a column, inside summary_.
  using Counts = std::vector<RunSummary::SiteCount*>;

  void PersistGroup(Group& group, Archive& archive);
  static void WriteOpen(const OpenStep& open, Archive& archive);
  OpenStep ReadOpen(Archive& archive);
  Group& GroupOf(const v1::Source& source);
  void Declare(const v1::Batch& batch, const v1::SiteDeclaration& declaration);
  Group* OpenGroup(const v1::Source& source, int64_t step);
  OpenStep& OpenAt(Group& group, int64_t step);
  void Charge(const v1::Batch& batch);
  OpenStep TakeOut(Group& group, std::map<int64_t, OpenStep>::iterator step);
  void MakeRoom(const OnClose& on_close);
  bool KeepRank(std::set<uint32_t>* ranks, uint32_t rank);
  void CountLate(const v1::Source& source, int64_t step, const v1::Site& site);
  void Hold(const std::shared_ptr<const v1::Batch>& batch, const v1::Evidence& evidence);
  void HoldRows(const std::shared_ptr<const v1::Batch>& batch, const v1::SeriesRows& rows);
  Counts& CountsOf(const Columns& columns);
  void CountLoss(const v1::Source& source, const v1::Loss& loss);
  void SupersedeOlder(const std::shared_ptr<const v1::Batch>& batch, const OnClose& on_close);
  void CloseReady(const GroupKey& key, Group& group, const OnClose& on_close);
  void CloseStep(const GroupKey& key, Group& group, int64_t step, const OnClose& on_close);
  void ReadRows(const std::vector<HeldRow>& rows, std::vector<Held>* items,
                std::deque<v1::Evidence>* made) const;
  void TellSites(const SiteStep& common, const std::vector<Held>& held,
                 const RankProgress& progress, const OnClose& on_close);
  void TellSeries(const SiteStep& common, OpenStep* open, const OnClose& on_close);
  bool FarBehind(const Group& group, int64_t step) const;
  bool Ready(const Group& group, int64_t step) const;

  int64_t window_;
  uint64_t max_bytes_;
  SeriesSets* const sets_;
  RunSummary summary_;
  std::set<uint32_t> ranks_seen_;
  std::map<std::pair<std::string, std::string>, std::set<uint32_t>> declared_;
  std::unordered_map<Columns, Counts> counts_;
  std::map<GroupKey, Group> groups_;
  uint32_t newest_attempt_ = 0;
  uint64_t open_bytes_ = 0;               // of all groups
  uint64_t closed_for_room_ = 0;          // steps
  uint64_t kept_ranks_ = 0;               // in declared_ and in the losses of summary_
  std::map<Group*, int64_t> held_until_;  // of the batch that is taken: its newest step, by group
};

}  // namespace plumbline::rules
