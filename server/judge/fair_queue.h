// What waits to be judged, and who is next. Work that speaks of one run is done in the order in
// which it came, one piece after the other; a flow holds what waits of one run, or of several that
// a piece of work, or a stream with work in it, has tied together. Flows have nothing in
// common, and work of different ones may be done at the same time. A flow is gone when nothing is
// left in it.
//
// While nothing waits long all is begun in the order in which it came. Once the oldest that could
// begin has waited for kPatience, flows take turns by the time that they used: who used little is
// not behind what others pile up. (Start-time fair queueing: a flow's tag is the time that it used,
// and one that was away begins where the others are. Until it has used kCredit it goes before those
// that have, however many they are; of several such the one that used least.)
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
    std::vector<std::string> runs;  // that it speaks of
    uint64_t stream = 0;            // that it came by; 0: by none
    uint64_t entry = 0;             // of the journal, ascending; 0: it is none
    Time since{};                   // it waits
    std::shared_ptr<JudgeItem> item;
    bool room = false;  // it makes room: it goes before all that does not
  };
  // A piece of work that was begun.
  struct Begun {
    Work work;
    bool overtakes = false;  // an entry before its own is not done
    Time since{};
  };

  void Push(Work work);
  // Before what waits in its flow, behind what was pushed so before.
  void PushFirst(Work work);
  // kRoom: only what makes room. kInOrder: no entry before one that came earlier is done.
  enum class Which { kAny, kRoom, kInOrder };
  // Nothing: all that waits is behind something that goes on, or is held back.
  std::optional<Begun> Next(Time now, Which which = Which::kAny);
  // It has taken so long.
  void Done(const Begun& begun, Nanos used);
  // The run's flow is taken without any work; nothing when something of it goes on.
  std::optional<Begun> Occupy(const std::string& run);

  // Runs of which something goes on begin nothing more until HoldNone.
  void HoldBackBusy();
  void HoldNone();

  bool empty() const { return flows_.empty(); }
  size_t going_on() const { return going_on_; }
  // Something of the run goes on.
  bool Busy(const std::string& run) const;
  // What was pushed by PushFirst waits there.
  bool Urgent(const std::string& run) const;
  // Since when the oldest waits, what goes on included; Time::max(): nothing does.
  Time WaitsSince(const std::string& run) const;

  // All entries up to this one are done.
  uint64_t through() const;
  // ... and no other is, nor goes on.
  bool in_order() const { return going_on_ == 0 && ahead_.empty(); }
  // ... of the run.
  uint64_t ThroughOf(const std::string& run) const;
  // Runs that are further than `through`, and how far.
  std::map<std::string, uint64_t> Ahead() const;
  // Entries up to this one were done by somebody else. While it is empty.
  void SetThrough(uint64_t entry) { newest_ = entry; }

 private:
  struct Waiting {
    Work work;
    uint64_t order = 0;
  };
  // Not fresh, tag, order of the first work.
  using Turn = std::tuple<bool, Nanos, uint64_t>;
  struct Flow {
    std::deque<Waiting> first, rest;
    size_t going_on = 0;
    std::multiset<Time> since;  // of what goes on
    // In its credit: the time that it used of it. Else it counts on from where the others are.
    bool fresh = true;
    Nanos tag{0};
    std::set<std::string> runs;
    std::set<uint64_t> streams;
    bool listed = false;  // among those that can begin, with these two
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
  // Senders choose the names.
  std::unordered_map<std::string, Flow*, absl::Hash<std::string>> by_run_;
  std::unordered_map<uint64_t, Flow*, absl::Hash<uint64_t>> by_stream_;
  std::map<uint64_t, Flow*> by_order_;  // that can begin, by their first work
  std::map<Turn, Flow*> by_turn_;       // the same
  std::map<uint64_t, Flow*> by_room_;   // those whose first work makes room
  Nanos now_tag_{0};                    // of what was begun last, the greatest
  // Of runs without a flow that had used more than the others.
  std::unordered_map<std::string, Nanos, absl::Hash<std::string>> tags_;
  size_t most_tags_ = 64;  // beyond it those that say nothing any more are forgotten
  std::set<std::string> held_back_;
  std::set<Flow*> busy_;  // something of it goes on
  size_t going_on_ = 0;
  std::set<uint64_t> undone_;  // entries
  uint64_t newest_ = 0;        // entry
  std::map<std::string, uint64_t> ahead_;
  uint64_t furthest_ = 0;  // of ahead_
};

}  // namespace plumbline::server
