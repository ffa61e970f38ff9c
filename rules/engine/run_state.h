// One run in the engine: joins its evidence by (attempt, role, step, site) and decides when a step
// is complete. open_steps.h holds waiting evidence; close_step.h and row_steps.h pass on closed
// steps. Does not depend on rules.
#pragma once

#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/archive.h"
#include "rules/engine/close_step.h"
#include "rules/engine/open_steps.h"
#include "rules/engine/process_ends.h"
#include "rules/engine/rank_progress.h"
#include "rules/engine/row_steps.h"
#include "rules/engine/series.h"
#include "rules/rule.h"

namespace plumbline::rules {

// A group's open steps that only some ranks keep open, and that are a window or more older than the
// newest one.
struct Lag {
  uint32_t attempt = 0;
  v1::Role role = v1::ROLE_UNSPECIFIED;
  int64_t oldest = 0;           // open step
  int64_t through = 0;          // the newest step that is a window older than the newest open one
  std::vector<uint32_t> ranks;  // seen, expected, and have not delivered all up to `through`
  bool unseen = false;          // true if ranks that never came are expected, too
};

// The progress of one attempt of one role.
struct GroupProgress {
  uint32_t attempt = 0;
  v1::Role role = v1::ROLE_UNSPECIFIED;
  uint32_t world_size = 0;
  int64_t oldest_open = RankProgress::kNever;  // step; kNever: no step is open
  bool awaits_unseen = false;                  // ranks that never came are expected
  std::vector<RankProgress::State> ranks;
};

class RunState {
 public:
  struct Options {
    int64_t window_steps = 64;
    bool hosted = false;     // EngineConfig::hosted
    uint64_t max_bytes = 0;  // EngineConfig::run_bytes
  };

  // `sets` holds the streams' declarations and must outlive this. Open steps hold at most
  // `max_bytes` plus one batch (0: no limit); beyond it the oldest ones close.
  RunState(std::string run, Options options, SeriesSets* sets)
      : options_(options), sets_(sets), steps_(options.hosted ? kMostSpareHosted : kMostSpare) {
    summary_.run = std::move(run);
  }

  // Declares that the process will be read to its end. Call before the first batch.
  void Expect(const v1::Source& source) {
    expected_[{source.attempt(), source.role()}].insert(source.rank());
  }
  // Takes the part of `batch` that belongs to this run. The batch must be valid and its sets
  // declared.
  void Take(const std::shared_ptr<const v1::Batch>& batch, const OnClose& on_close);
  // Marks the rank as gone. `way` is how its process ended: kGone, kUnreachable, or kOpen if this
  // is not known.
  void MarkGone(const v1::Source& source, LateCause cause, const OnClose& on_close,
                EndKind way = EndKind::kOpen);
  // Stops waiting for ranks of the group of `source` that never came.
  void MarkAbsent(const v1::Source& source, const OnClose& on_close);
  // Closes the steps up to `through`, complete or not.
  void CloseThrough(uint32_t attempt, v1::Role role, int64_t through, const OnClose& on_close);
  // Closes the oldest steps until open steps hold at most `bytes`.
  void MakeRoom(uint64_t bytes, const OnClose& on_close);
  // Closes everything that is open, complete or not.
  void CloseAll(const OnClose& on_close);

  // Returns the summary without its ranks.
  RunSummary& summary() { return summary_; }
  const RunSummary& summary() const { return summary_; }
  // Returns the complete summary.
  RunSummary& Summarize();
  const std::set<uint32_t>& ranks() const { return ranks_seen_; }
  uint64_t closed_for_room() const { return closed_for_room_; }  // steps
  // Returns the newest step up to which all steps are closed, over the newest attempt; -1 before
  // the first.
  int64_t closed_step() const;

  // Returns the groups whose oldest open step is a window or more old, and the ranks that keep it
  // open.
  std::vector<Lag> Lagging() const;
  // Returns the progress of the newest attempt's groups.
  std::vector<GroupProgress> Groups() const;

  uint64_t open_bytes() const { return steps_.bytes(); }

  // Marks the run as judged as a whole. If a process left without a goodbye, its stream may return;
  // then the run continues. Any other stream starts it anew.
  void SetOver() {
    over_ = true;
    ++summary_.ends;
  }
  bool over() const { return over_; }
  bool MayReturn() const;
  bool Spoke(uint64_t stream_id) const { return streams_.contains(stream_id); }
  // Records that the stream which starts this state had sent evidence of the run before, and that
  // the run was forgotten.
  void SetResumed() { resumed_ = true; }

  // Returns how the processes of the newest attempt ended. `over`: no more evidence can arrive from
  // them.
  RunEnds Ends(bool over) const;

  // Stores or reads all state above and the open steps, except the window. The sets are read before
  // it. counts_ and the plans of rows are derived. Returns the version that was written.
  uint32_t Persist(Archive& archive);
  static constexpr uint32_t kRulesCounted = 5;  // from this version on RunRules follows it
  // from this version on firsts_, over_ and streams_ are written
  static constexpr uint32_t kReturnsKept = 6;
  // from this version on the judged series are written
  static constexpr uint32_t kSeriesCounted = 7;
  static constexpr uint32_t kResumedKept = 8;  // from this version on resumed_ is written
  static constexpr uint32_t kEndsKept = 9;     // from this version on RunSummary::ends is written
  // from this version on lines of the trainer's source and steps of looks are written
  static constexpr uint32_t kLinesKept = 10;

 private:
  static constexpr int64_t kNever = RankProgress::kNever;
  // Closed steps whose memory is kept for reuse. An audit opens thousands before it closes one; a
  // server has many runs.
  static constexpr size_t kMostSpare = 4096, kMostSpareHosted = 16;

  using Columns = std::shared_ptr<const SeriesColumns>;
  // One attempt of one role.
  struct Group {
    uint32_t world_size = 0;
    RankProgress progress;
    ProcessEnds endings;
    OpenSteps::Group steps;
    int64_t closed = kNever;
    int64_t newest_step = kNever;
    int64_t next_look = -1;  // the latest of its processes
    RowSteps::Plans plans;   // derived
  };
  using GroupKey = std::pair<uint32_t, v1::Role>;  // (attempt, role)
  // Facts of a source that are looked up once for consecutive rows of that source.
  struct RowSource {
    const v1::Source* source = nullptr;
    bool ours = false;
    Group* group = nullptr;
    int64_t superseded_from = std::numeric_limits<int64_t>::max();  // step
  };
  // The counters of a list's values: one per column, inside summary_.
  using Counts = std::vector<RunSummary::SiteCount*>;

  Group& GroupOf(const v1::Source& source);
  void Declare(const v1::Batch& batch, const v1::SiteDeclaration& declaration);
  void CountLate(const Group* group, const v1::Source& source, int64_t step, const v1::Site& site);
  OpenStep& StepOf(Group& group, const v1::Source& source, int64_t step);
  void CloseLate(const GroupKey& key, Group& group, bool all, const OnClose& on_close);
  void CloseLateTouched(const GroupKey& key, Group& group, const OnClose& on_close);
  void CloseLateOf(const GroupKey& key, Group& group, uint32_t rank, bool all,
                   const OnClose& on_close);
  void PassLate(const StepEnd& end, OpenStep open, const Group& group, const OnClose& on_close);
  void ReportLate(const OnClose& on_close);
  void FindLastWords(const v1::Batch& batch);
  StepEnd EndOf(const GroupKey& key, const Group& group, int64_t step) const;
  bool KeepRank(std::set<uint32_t>* ranks, uint32_t rank);
  void Hold(const std::shared_ptr<const v1::Batch>& batch, const v1::Evidence& evidence);
  void HoldRows(const std::shared_ptr<const v1::Batch>& batch, const v1::SeriesRows& rows,
                bool stored);
  // Returns the group of the batch's rows if they can be judged in place, one step after the other:
  // if all belong to one rank, no other rank is awaited, nothing is open before them, and the batch
  // reports that they are complete. Otherwise returns nullptr, and the rows are held.
  Group* GoesStraight(const v1::Batch& batch);
  void CountStraight(const v1::Batch& batch);
  void Extend(int64_t step, bool first);
  RowSource QueryOf(const v1::Source& source);
  void CountRow(const Columns& columns, const SeriesRow& row, Counts* counts, const RowSource& of,
                int64_t step, bool late);
  Counts& CountsOf(const Columns& columns);
  void CountLoss(const v1::Source& source, const v1::Loss& loss);
  RunEnds EndsOf(uint32_t attempt) const;
  void NoteFirst(uint32_t attempt, int64_t first);
  int64_t SupersededFrom(uint32_t attempt) const;
  int64_t FirstStepOf(const v1::Batch& batch, uint32_t attempt) const;
  void NoteStream(uint64_t stream_id);
  Group& EarlierGroupOf(const v1::Source& source);
  void SupersedeOlder(const std::shared_ptr<const v1::Batch>& batch, const OnClose& on_close);
  void CloseReady(const GroupKey& key, Group& group, const OnClose& on_close);
  void CloseOldest(const GroupKey& key, Group& group, const OnClose& on_close);
  // Passes on the evidence of an open step. `plan` belongs to its rows; nullptr if there is none.
  void PassStep(const StepEnd& end, const Group& group, OpenStep* open, RowPlan* plan,
                const OnClose& on_close);
  bool FarBack(const Group& group, int64_t step) const;
  bool Ready(const Group& group, int64_t step) const;

  const Options options_;
  SeriesSets* const sets_;
  RunSummary summary_;
  std::set<uint32_t> ranks_seen_;
  std::map<std::pair<std::string, std::string>, std::set<uint32_t>> declared_;
  std::unordered_map<Columns, Counts> counts_;
  std::deque<v1::Evidence> made_;  // of the closing step, from rows; reused
  OpenSteps steps_;
  RowSteps rows_;
  std::map<GroupKey, Group> groups_;
  std::map<GroupKey, std::set<uint32_t>> expected_;  // ranks
  uint32_t newest_attempt_ = 0;
  // The first steps of attempts that followed another one, by attempt. Attempts that a later one
  // has repeated from their first step on are left out, so the steps ascend.
  std::map<uint32_t, int64_t> firsts_;
  bool over_ = false;
  bool resumed_ = false;
  std::set<uint64_t> streams_;  // that sent evidence; cleared if there are more than kMostStreams
  uint64_t last_stream_ = 0;    // the stream of the newest batch, from these
  uint64_t closed_for_room_ = 0;
  uint64_t kept_ranks_ = 0;                     // in declared_ and in the losses of summary_
  std::map<std::string, uint64_t> fresh_late_;  // by cause, not reported yet
  std::map<std::string, uint64_t> fresh_lost_;  // losses that no agent reported, by cause, not
                                                // reported yet
  bool late_reported_ = false;  // true if a late step was passed on since the last report
  // Sources that send a goodbye in the current batch, and the last step that each ended.
  std::unordered_map<const v1::Source*, int64_t> last_words_;
};

}  // namespace plumbline::rules
