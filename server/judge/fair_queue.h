// Holds the work to be judged and chooses the next item. Work of one run is done in order of
// arrival, one item after the other. A flow holds the waiting work of one run, or of several runs
// that an item, or a stream with work in it, has tied together. Flows share nothing, and work of
// different flows may be done at the same time. A flow is deleted when it is empty.
//
// While no item waits long, all work begins in order of arrival. Once the oldest item that could
// begin has waited for kPatience, flows take turns by the time that they used, so that a flow that
// used little does not wait for the backlog of others. (Start-time fair queueing: a flow's tag is
// the time that it used, and a flow that returns begins at the tag of the others. Until a flow has
// used kCredit, it goes before all flows that have used theirs. Among several such flows, the one
// that used least goes first.)
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/hash/hash.h"

namespace plumbline::server {

struct JudgeItem;

// Not thread-safe. Time is passed in, so that tests need not wait.
class FairQueue {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Nanos = std::chrono::nanoseconds;

  static constexpr std::chrono::milliseconds kPatience{30};
  static constexpr std::chrono::milliseconds kCredit{20};

  struct Work {
    std::vector<std::string> runs;  // that it belongs to
    uint64_t stream = 0;            // that it came from; 0: none
    uint64_t entry = 0;             // of the journal, ascending; 0: not an entry
    Time since{};                   // when it began to wait
    std::shared_ptr<JudgeItem> item;
    bool room = false;  // it frees memory, so it goes before all other work
  };
  // Work that was begun.
  struct Begun {
    Work work;
    bool overtakes = false;  // true if an earlier entry is not done yet
    Time since{};
  };

  void Push(Work work);
  // Adds work before what waits in its flow, after earlier calls of PushFirst.
  void PushFirst(Work work);
  // kRoom: only work that frees memory. kInOrder: never an entry while an earlier one is not done.
  enum class Which { kAny, kRoom, kInOrder };
  // Returns the next work. Returns nothing if all waiting work must wait for work in progress, or
  // is held back.
  std::optional<Begun> Next(Time now, Which which = Which::kAny);
  // Ends the work, which took `used`.
  void Done(const Begun& begun, Nanos used);
  // Occupies the run's flow without any work. Returns nothing if work of the flow is in progress.
  std::optional<Begun> Occupy(const std::string& run);

  // Lets runs with work in progress begin nothing more until HoldNone.
  void HoldBackBusy();
  void HoldNone();

  bool empty() const { return flows_.empty(); }
  size_t flows() const { return flows_.size(); }
  size_t going_on() const { return going_on_; }
  // Returns true if work of the run is in progress.
  bool Busy(const std::string& run) const;
  // Returns true if work that was added by PushFirst waits in the run's flow.
  bool Urgent(const std::string& run) const;
  // Returns when the oldest waiting or unfinished work of the run began to wait; Time::max() if
  // there is none.
  Time WaitsSince(const std::string& run) const;

  // Returns the entry up to which all entries are done.
  uint64_t through() const;
  // Returns true if no later entry is done or in progress.
  bool in_order() const { return going_on_ == 0 && ahead_.empty(); }
  // Returns the entry up to which the run's entries are done.
  uint64_t ThroughOf(const std::string& run) const;
  // Returns the runs whose entries are done beyond `through`, and up to which entry.
  std::map<std::string, uint64_t> Ahead() const;
  // Sets the entry up to which other code has done all entries. The queue must be empty.
  void SetThrough(uint64_t entry) { newest_ = entry; }

 private:
  struct Waiting {
    Work work;
    uint64_t order = 0;
  };
  // (not fresh, tag, order of the first work)
  using Turn = std::tuple<bool, Nanos, uint64_t>;
  struct Flow {
    std::deque<Waiting> first, rest;
    size_t going_on = 0;
    std::multiset<Time> since;  // the `since` of each work in progress
    // If fresh, `tag` is the part of the credit that was used. Otherwise it continues from the tag
    // of the others.
    bool fresh = true;
    Nanos tag{0};
    std::set<std::string> runs;
    std::set<uint64_t> streams;
    bool listed = false;  // in by_order_ and by_turn_, with the next two members as keys
    uint64_t order = 0;
    Turn turn;

    const Waiting& front() const { return first.empty() ? rest.front() : first.front(); }
    bool waits() const { return !first.empty() || !rest.empty(); }
  };

  void Add(Work work, bool first);
  Flow* FlowOf(const Work& work);
  Flow* Tie(Flow* a, Flow* b);
  Flow* NewFlow();
  Flow* TieRun(Flow* flow, const std::string& run);
  Flow* TieStream(Flow* flow, uint64_t stream);
  Begun Begin(Flow* flow, Work work);
  void List(Flow* flow);
  void Unlist(Flow* flow);
  bool HeldBack(const Flow& flow) const;
  const Flow* Find(const std::string& run) const;
  void Forget(Flow* flow);
  void NoteDone(const Work& work);
  void KeepTag(const std::string& run, const Flow& flow);
  void GoOnFrom(Nanos tag, Flow* flow) const;

  std::unordered_map<const Flow*, std::unique_ptr<Flow>> flows_;
  uint64_t last_order_ = 0;
  // Seeded hashes, because senders choose the names.
  std::unordered_map<std::string, Flow*, absl::Hash<std::string>> by_run_;
  std::unordered_map<uint64_t, Flow*, absl::Hash<uint64_t>> by_stream_;
  std::map<uint64_t, Flow*> by_order_;  // flows that can begin, by their first work
  std::map<Turn, Flow*> by_turn_;       // the same flows
  std::map<uint64_t, Flow*> by_room_;   // flows whose first work frees memory
  Nanos now_tag_{0};                    // the greatest tag of the work begun so far
  // Tags of runs that have no flow and had used more than the others.
  std::unordered_map<std::string, Nanos, absl::Hash<std::string>> tags_;
  size_t most_tags_ = 64;  // if there are more, tags without effect are deleted
  std::set<std::string> held_back_;
  std::set<Flow*> busy_;  // with work in progress
  size_t going_on_ = 0;
  std::set<uint64_t> undone_;  // entries
  uint64_t newest_ = 0;        // entry
  std::map<std::string, uint64_t> ahead_;
  uint64_t furthest_ = 0;  // largest entry in ahead_
};

}  // namespace plumbline::server
