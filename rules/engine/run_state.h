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
#include <tuple>
#include <unordered_map>
#include <vector>

#include "base/archive.h"
#include "rules/engine/process_ends.h"
#include "rules/engine/rank_progress.h"
#include "rules/engine/row_plan.h"
#include "rules/engine/series.h"
#include "rules/rule.h"

namespace plumbline::rules {

// A group's open steps that only some ranks keep open, a window or more behind the newest one.
struct Lag {
  uint32_t attempt = 0;
  v1::Role role = v1::ROLE_UNSPECIFIED;
  int64_t oldest = 0;           // open step
  int64_t through = 0;          // the newest that is a window behind
  std::vector<uint32_t> ranks;  // that were seen, have not delivered all up to it, and are expected
  bool unseen = false;          // ranks that never came are expected too
};

// How far one attempt of one role has come.
struct GroupProgress {
  uint32_t attempt = 0;
  v1::Role role = v1::ROLE_UNSPECIFIED;
  uint32_t world_size = 0;
  int64_t oldest_open = RankProgress::kNever;  // step; kNever: none is
  bool awaits_unseen = false;                  // ranks that never came are expected
  std::vector<RankProgress::State> ranks;
};

class RunState {
 public:
  // What is called as steps close: `site` for each site of a step that the rules look at, `series`
  // for each list of series in it (may be empty: nobody stores them), then `step` once. What came
  // too late goes to `site` and `series` too, marked so, when its rank has delivered all of the
  // step; `late` (may be empty) is told of it as it comes.
  struct OnClose {
    std::function<void(const SiteStep&)> site;
    std::function<void(const StepSeries&)> series;
    std::function<void(const StepEnd&)> step;
    std::function<void(const std::string& cause, uint64_t items)> late = nullptr;
    // A later attempt has begun; how the processes of the one before ended, as far as is known.
    std::function<void(const RunEnds&)> superseded = nullptr;
    // Instead of `site`, `series` and `step`, of many steps at once where they allow it; empty:
    // each is told by itself.
    std::function<void(const StepRows&)> rows = nullptr;
    // Items of the run are lost that no agent reported as lost.
    std::function<void(const std::string& cause, uint64_t items)> lost = nullptr;
  };
  struct Options {
    int64_t window_steps = 64;
    bool hosted = false;     // EngineConfig::hosted
    uint64_t max_bytes = 0;  // EngineConfig::run_bytes
  };

  // `sets` holds what the streams declared, and must outlive this. What open steps hold takes at
  // most `max_bytes`, and another batch (0: no bound); beyond it the oldest ones close.
  RunState(std::string run, Options options, SeriesSets* sets) : options_(options), sets_(sets) {
    summary_.run = std::move(run);
  }

  // The process will be read to its end: before the first batch.
  void Expect(const v1::Source& source) {
    expected_[{source.attempt(), source.role()}].insert(source.rank());
  }
  // What `batch` says about this run. Only sources of this run are looked at. Valid input assumed,
  // its sets declared.
  void Take(const std::shared_ptr<const v1::Batch>& batch, const OnClose& on_close);
  // `way`: what is known of its process besides: kGone, kUnreachable; kOpen: nothing.
  void MarkGone(const v1::Source& source, LateCause cause, const OnClose& on_close,
                EndKind way = EndKind::kOpen);
  // Ranks of the group of `source` that never came are not waited for any more.
  void MarkAbsent(const v1::Source& source, const OnClose& on_close);
  // Closes the steps up to `through`, complete or not.
  void CloseThrough(uint32_t attempt, v1::Role role, int64_t through, const OnClose& on_close);
  // Closes the oldest steps until what is open holds at most so many bytes.
  void MakeRoom(uint64_t bytes, const OnClose& on_close);
  // Closes everything that is open, complete or not.
  void CloseAll(const OnClose& on_close);

  // Its ranks apart.
  RunSummary& summary() { return summary_; }
  const RunSummary& summary() const { return summary_; }
  // All of it.
  RunSummary& Summarize();
  const std::set<uint32_t>& ranks() const { return ranks_seen_; }
  uint64_t closed_for_room() const { return closed_for_room_; }  // steps
  // Newest step below which all is closed, over the newest attempt; -1 before the first.
  int64_t closed_step() const;

  // The groups whose oldest open step lies a window or more behind, and who keeps it open.
  std::vector<Lag> Lagging() const;
  // How far the groups of the newest attempt have come.
  std::vector<GroupProgress> Groups() const;

  uint64_t open_bytes() const { return open_bytes_; }

  // The run was judged as a whole. Where a process left without a goodbye, its stream may come
  // back: then the run goes on. Any other stream begins it anew.
  void SetOver() { over_ = true; }
  bool over() const { return over_; }
  bool MayReturn() const;
  bool Spoke(uint64_t stream_id) const { return streams_.contains(stream_id); }
  // A stream begins this state that had brought evidence of the run before, which was forgotten.
  void SetResumed() { resumed_ = true; }

  // How the processes of the newest attempt ended. `over`: nothing more can come of them.
  RunEnds Ends(bool over) const;

  // Everything above and what is open, the window apart. The sets are read before it; counts_,
  // numbers_ and plans are found again, missing_, lists_ and spare_ are memory. The version that
  // was written.
  uint32_t Persist(Archive& archive);
  static constexpr uint32_t kRulesCounted = 5;   // from this one on RunRules stands behind it
  static constexpr uint32_t kReturnsKept = 6;    // ... and what follows a return is written
  static constexpr uint32_t kSeriesCounted = 7;  // ... and which series the rules judge
  static constexpr uint32_t kResumedKept = 8;    // ... and whether the run was forgotten before

 private:
  static constexpr int64_t kNever = RankProgress::kNever;

  using Columns = std::shared_ptr<const SeriesColumns>;
  struct Held {
    std::shared_ptr<const v1::Batch> batch;  // keeps the two pointers alive
    const v1::Source* source;
    const v1::Evidence* evidence;
    bool read = false;  // a scalar of which it is known that some rule reads it
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
    ProcessEnds endings;
    std::map<int64_t, OpenStep> open;  // by step
    // What came after its step was closed: by rank and step, until the rank says that this is all.
    std::map<uint32_t, std::map<int64_t, OpenStep>> late;
    int64_t closed = kNever;
    int64_t newest_step = kNever;
    uint64_t bytes = 0;  // of what is open or late
    // By the lists of a step's rows, and how many sites they hold; found again.
    std::map<std::vector<const SeriesColumns*>, RowPlan> plans;
    size_t planned = 0;
  };
  using StepNode = std::map<int64_t, OpenStep>::node_type;
  using GroupKey = std::pair<uint32_t, v1::Role>;  // (attempt, role)
  // Of rows whose source is the one of the row before: what is asked of a source once.
  struct RowSource {
    const v1::Source* source = nullptr;
    bool ours = false;
    Group* group = nullptr;
    int64_t superseded_from = std::numeric_limits<int64_t>::max();  // step
  };
  // Where the values of a list are counted: one a column, inside summary_.
  using Counts = std::vector<RunSummary::SiteCount*>;

  void PersistGroup(Group& group, Archive& archive);
  static void WriteOpen(const OpenStep& open, Archive& archive);
  OpenStep ReadOpen(Archive& archive);
  Group& GroupOf(const v1::Source& source);
  void Declare(const v1::Batch& batch, const v1::SiteDeclaration& declaration);
  void CountLate(const Group* group, const v1::Source& source, int64_t step, const v1::Site& site);
  OpenStep& StepOf(Group& group, const v1::Source& source, int64_t step);
  OpenStep& OpenAt(Group& group, int64_t step);
  void Charge(const v1::Batch& batch);
  OpenStep TakeOut(Group& group, std::map<int64_t, OpenStep>* of,
                   std::map<int64_t, OpenStep>::iterator step);
  void PersistSteps(Group& group, std::map<int64_t, OpenStep>& list, Archive& archive);
  void CloseLate(const GroupKey& key, Group& group, bool all, const OnClose& on_close);
  void CloseLateSpokenOf(const GroupKey& key, Group& group, const OnClose& on_close);
  void CloseLateOf(const GroupKey& key, Group& group, uint32_t rank, bool all,
                   const OnClose& on_close);
  void TellLate(const SiteStep& common, OpenStep open, const Group& group, const OnClose& on_close);
  void TellOfLate(const OnClose& on_close);
  void FindLastWords(const v1::Batch& batch);
  SiteStep CommonOf(const GroupKey& key, const Group& group, int64_t step) const;
  static std::vector<Held> HeldOf(const OpenStep& open, std::deque<v1::Evidence>* made);
  bool KeepRank(std::set<uint32_t>* ranks, uint32_t rank);
  void Hold(const std::shared_ptr<const v1::Batch>& batch, const v1::Evidence& evidence);
  void HoldRows(const std::shared_ptr<const v1::Batch>& batch, const v1::SeriesRows& rows,
                bool stored);
  // The group that the batch's rows are of, where they can be judged as they lie, one step after
  // the other: all of one rank that nobody beside is waited for, with nothing open before them, and
  // whole as the batch itself says. nullptr: they are to be held.
  Group* GoesStraight(const v1::Batch& batch);
  void CountStraight(const v1::Batch& batch);
  void CloseStraight(const GroupKey& key, Group& group,
                     const std::shared_ptr<const v1::Batch>& batch, const OnClose& on_close);
  void TellRows(const GroupKey& key, const Group& group, size_t count, RowPlan* plan,
                const OnClose& on_close);
  static SeriesRow ViewOf(const v1::SeriesRows& rows, int row, uint32_t rank, size_t columns);
  void Extend(int64_t step, bool first);
  RowSource AskOf(const v1::Source& source);
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
  void CloseStep(const GroupKey& key, Group& group, int64_t step, const OnClose& on_close);
  // What stood open of it. `plan`: of its rows, nullptr: there is none.
  void TellStep(const GroupKey& key, Group& group, int64_t step, OpenStep* open, RowPlan* plan,
                const OnClose& on_close);
  // One list's row of a plan, as who stores series is shown it.
  StepSeries SeriesOf(const GroupKey& key, const Group& group, int64_t step, const RowPlan& plan,
                      size_t list, const SeriesRow& row) const {
    return {summary_.run,     key.first, key.second, step,    group.world_size,
            plan.lists[list], {&row, 1}, false,      resumed_};
  }
  void CloseRow(const GroupKey& key, Group& group, int64_t step, const OpenStep& open,
                RowPlan* plan, const OnClose& on_close);
  RowPlan* PlanOf(const GroupKey& key, Group& group, const OpenStep& open);
  bool MakePlan(const GroupKey& key, Group& group, RowPlan* plan);
  uint32_t NumberOf(v1::Role role, const v1::Site& site);
  OpenStep& AddOpen(Group& group, int64_t step);
  void KeepSpare(StepNode node);
  static void ReadRows(const std::vector<HeldRow>& rows, std::vector<Held>* items,
                       std::deque<v1::Evidence>* made);
  void TellSites(const SiteStep& common, const std::vector<Held>& held,
                 const RankProgress& progress, const OnClose& on_close);
  void TellSeries(const SiteStep& common, OpenStep* open, const OnClose& on_close);
  bool FarBehind(const Group& group, int64_t step) const;
  bool Ready(const Group& group, int64_t step) const;

  const Options options_;
  SeriesSets* const sets_;
  RunSummary summary_;
  std::set<uint32_t> ranks_seen_;
  std::map<std::pair<std::string, std::string>, std::set<uint32_t>> declared_;
  std::unordered_map<Columns, Counts> counts_;
  std::deque<v1::Evidence> made_;  // of the step that closes, from rows: used again and again
  // Memory that is used again: of the step that closes, and of those that are closed.
  std::vector<uint32_t> missing_;
  std::vector<const SeriesColumns*> lists_;
  std::vector<StepNode> spare_;
  OpenStep straight_;
  std::map<std::tuple<v1::Role, std::string, std::string>, uint32_t> numbers_;  // of sites
  std::map<GroupKey, Group> groups_;
  std::map<GroupKey, std::set<uint32_t>> expected_;  // ranks
  uint32_t newest_attempt_ = 0;
  // The first steps of attempts that followed another one, by attempt. Those that a later attempt
  // has repeated from their first step on are left out, so the steps ascend.
  std::map<uint32_t, int64_t> firsts_;
  bool over_ = false;
  bool resumed_ = false;
  std::set<uint64_t> streams_;  // that brought evidence; more than kMostStreams are forgotten
  uint64_t last_stream_ = 0;    // of these, the one of the newest batch
  uint64_t open_bytes_ = 0;     // of all groups
  uint64_t closed_for_room_ = 0;
  uint64_t kept_ranks_ = 0;  // in declared_ and in the losses of summary_
  // Of the batch that is taken: its newest step, by group; the same of late ones, by rank too.
  std::map<Group*, int64_t> held_until_;
  std::map<std::pair<Group*, uint32_t>, int64_t> late_until_;
  // Whose late steps that batch speaks of, by itself or by how far they are.
  std::set<std::pair<Group*, uint32_t>> late_of_;
  std::map<std::string, uint64_t> fresh_late_;  // by cause, not told of yet
  std::map<std::string, uint64_t> fresh_lost_;  // likewise, of losses that no agent reported
  bool late_told_ = false;                      // a late step was, since they were told of
  // Of the batch that is taken: who says goodbye in it, and the last step that each ended.
  std::unordered_map<const v1::Source*, int64_t> last_words_;
};

// Where a verdict belongs, as far as its rule left it open. `step`: what was judged; nullptr: the
// run as a whole, or one of its steps. A rule that named layer, steps or ranks keeps them.
void FillSite(const RunState& state, const SiteStep* step, v1::FindingSite* site);

}  // namespace plumbline::rules
