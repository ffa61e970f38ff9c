#include "server/judge/lanes.h"

#include <algorithm>
#include <iterator>

namespace plumbline::server {

void Lanes::Push(Work work) { Add(std::move(work), false); }
void Lanes::PushFirst(Work work) { Add(std::move(work), true); }

void Lanes::Add(Work work, bool first) {
  if (work.runs.empty() && work.stream == 0) work.runs.emplace_back();
  if (work.entry != 0) {
    undone_.insert(undone_.end(), work.entry);
    newest_ = std::max(newest_, work.entry);
  }
  Lane* lane = LaneOf(work);
  Unlist(lane);
  (first ? lane->first : lane->rest).push_back({std::move(work), ++last_order_});
  List(lane);
}

// ---- which lane -------------------------------------------------------------------------------

Lanes::Lane* Lanes::LaneOf(const Work& work) {
  Lane* lane = nullptr;
  for (const std::string& run : work.runs) lane = TieRun(lane, run);
  return work.stream == 0 ? lane : TieStream(lane, work.stream);
}

// `lane` may be null.
Lanes::Lane* Lanes::TieRun(Lane* lane, const std::string& run) {
  Lane*& known = by_run_[run];
  if (known != nullptr) return lane == nullptr ? known : Tie(lane, known);
  if (lane == nullptr) {
    auto fresh = std::make_unique<Lane>();
    lane = fresh.get();
    lane->tag = now_tag_ - kCredit;
    lanes_.emplace(lane, std::move(fresh));
  }
  known = lane;
  lane->runs.insert(run);
  const auto tag = tags_.find(run);
  if (tag == tags_.end()) return lane;
  Unlist(lane);
  lane->tag = std::max(lane->tag, tag->second);
  tags_.erase(tag);
  List(lane);
  return lane;
}

Lanes::Lane* Lanes::TieStream(Lane* lane, uint64_t stream) {
  Lane*& known = by_stream_[stream];
  if (known != nullptr) return lane == nullptr ? known : Tie(lane, known);
  if (lane == nullptr) {
    auto fresh = std::make_unique<Lane>();
    lane = fresh.get();
    lane->tag = now_tag_ - kCredit;
    lanes_.emplace(lane, std::move(fresh));
  }
  known = lane;
  lane->streams.insert(stream);
  return lane;
}

// One of them from now on, in the order in which their work came.
Lanes::Lane* Lanes::Tie(Lane* a, Lane* b) {
  if (a == b) return a;
  if (a->runs.size() + a->streams.size() < b->runs.size() + b->streams.size()) std::swap(a, b);
  Unlist(a);
  Unlist(b);
  for (const std::string& run : b->runs) by_run_[run] = a;
  for (const uint64_t stream : b->streams) by_stream_[stream] = a;
  a->runs.merge(b->runs);
  a->streams.merge(b->streams);
  a->since.merge(b->since);
  a->going_on += b->going_on;
  if (busy_.erase(b) > 0) busy_.insert(a);
  a->tag = std::max(a->tag, b->tag);
  const auto merge = [](std::deque<Waiting>* into, std::deque<Waiting>* from) {
    std::deque<Waiting> merged;
    std::merge(std::make_move_iterator(into->begin()), std::make_move_iterator(into->end()),
               std::make_move_iterator(from->begin()), std::make_move_iterator(from->end()),
               std::back_inserter(merged),
               [](const Waiting& x, const Waiting& y) { return x.order < y.order; });
    *into = std::move(merged);
  };
  merge(&a->first, &b->first);
  merge(&a->rest, &b->rest);
  lanes_.erase(b);
  List(a);
  return a;
}

const Lanes::Lane* Lanes::Find(const std::string& run) const {
  const auto found = by_run_.find(run);
  return found == by_run_.end() ? nullptr : found->second;
}

void Lanes::Forget(Lane* lane) {
  for (const std::string& run : lane->runs) {
    by_run_.erase(run);
    KeepTag(run, lane->tag);
  }
  for (const uint64_t stream : lane->streams) by_stream_.erase(stream);
  lanes_.erase(lane);
}

void Lanes::KeepTag(const std::string& run, Nanos tag) {
  if (tag <= now_tag_ - kCredit) return;
  tags_[run] = tag;
  if (tags_.size() <= most_tags_) return;
  std::erase_if(tags_, [this](const auto& t) { return t.second <= now_tag_ - kCredit; });
  most_tags_ = std::max<size_t>(64, 2 * tags_.size());
}

// ---- who is next ------------------------------------------------------------------------------

bool Lanes::HeldBack(const Lane& lane) const {
  return !held_back_.empty() &&
         std::any_of(lane.runs.begin(), lane.runs.end(),
                     [this](const std::string& run) { return held_back_.contains(run); });
}

void Lanes::List(Lane* lane) {
  if (lane->listed || lane->going_on > 0 || !lane->waits() || HeldBack(*lane)) return;
  lane->listed = true;
  lane->order = lane->front().order;
  lane->listed_tag = lane->tag;
  by_order_[lane->order] = lane;
  by_tag_.insert({lane->listed_tag, lane->order, lane});
  if (lane->front().work.room) by_room_[lane->order] = lane;
}

void Lanes::Unlist(Lane* lane) {
  if (!lane->listed) return;
  lane->listed = false;
  by_order_.erase(lane->order);
  by_tag_.erase({lane->listed_tag, lane->order, lane});
  by_room_.erase(lane->order);
}

std::optional<Lanes::Begun> Lanes::Next(Time now, Which which) {
  Lane* lane = nullptr;
  if (!by_room_.empty()) {
    lane = by_room_.begin()->second;
  } else if (which == Which::kRoom || by_order_.empty()) {
    return std::nullopt;
  } else {
    lane = by_order_.begin()->second;
    if (which == Which::kInOrder) {
      const auto due = std::find_if(by_order_.begin(), by_order_.end(), [this](const auto& listed) {
        const uint64_t entry = listed.second->front().work.entry;
        return entry == 0 || entry == *undone_.begin();
      });
      if (due == by_order_.end()) return std::nullopt;
      lane = due->second;
    } else if (now - lane->front().work.since >= kPatience) {
      lane = std::get<Lane*>(*by_tag_.begin());
    }
  }
  Unlist(lane);
  std::deque<Waiting>& from = lane->first.empty() ? lane->rest : lane->first;
  Work work = std::move(from.front().work);
  from.pop_front();
  return Begin(lane, std::move(work));
}

Lanes::Begun Lanes::Begin(Lane* lane, Work work) {
  now_tag_ = std::max(now_tag_, lane->tag);
  ++lane->going_on;
  ++going_on_;
  busy_.insert(lane);
  lane->since.insert(work.since);
  Begun begun;
  begun.since = work.since;
  begun.overtakes = work.entry != 0 && *undone_.begin() < work.entry;
  begun.work = std::move(work);
  return begun;
}

std::optional<Lanes::Begun> Lanes::Occupy(const std::string& run) {
  if (Busy(run)) return std::nullopt;
  Lane* lane = TieRun(nullptr, run);
  Unlist(lane);
  Work work;
  work.runs = {run};
  work.since = Time::max();  // nothing waits for it
  return Begin(lane, std::move(work));
}

void Lanes::Done(const Begun& begun, Nanos used) {
  const Work& work = begun.work;
  NoteDone(work);
  Lane* lane = work.runs.empty() ? by_stream_.at(work.stream) : by_run_.at(work.runs.front());
  if (--lane->going_on == 0) busy_.erase(lane);
  --going_on_;
  lane->since.erase(lane->since.find(begun.since));
  lane->tag += used;
  if (lane->going_on == 0 && !lane->waits()) {
    Forget(lane);
  } else {
    List(lane);
  }
}

// A lane of which something goes on is not listed.
void Lanes::HoldBackBusy() {
  for (const Lane* lane : busy_) held_back_.insert(lane->runs.begin(), lane->runs.end());
}

void Lanes::HoldNone() {
  if (held_back_.empty()) return;
  held_back_.clear();
  for (const auto& [key, lane] : lanes_) List(lane.get());
}

// ---- how it stands ----------------------------------------------------------------------------

bool Lanes::Busy(const std::string& run) const {
  const Lane* lane = Find(run);
  return lane != nullptr && lane->going_on > 0;
}

bool Lanes::Urgent(const std::string& run) const {
  const Lane* lane = Find(run);
  return lane != nullptr && !lane->first.empty();
}

Lanes::Time Lanes::WaitsSince(const std::string& run) const {
  const Lane* lane = Find(run);
  if (lane == nullptr) return Time::max();
  Time since = lane->since.empty() ? Time::max() : *lane->since.begin();
  if (!lane->rest.empty()) since = std::min(since, lane->rest.front().work.since);
  return since;
}

void Lanes::NoteDone(const Work& work) {
  if (work.entry == 0) return;
  undone_.erase(work.entry);
  if (through() >= work.entry) {
    if (through() >= furthest_) ahead_.clear();
    return;
  }
  for (const std::string& run : work.runs) ahead_[run] = work.entry;
  furthest_ = std::max(furthest_, work.entry);
}

uint64_t Lanes::through() const { return undone_.empty() ? newest_ : *undone_.begin() - 1; }

uint64_t Lanes::ThroughOf(const std::string& run) const {
  const auto ahead = ahead_.find(run);
  return ahead == ahead_.end() ? through() : std::max(through(), ahead->second);
}

std::map<std::string, uint64_t> Lanes::Ahead() const {
  std::map<std::string, uint64_t> ahead;
  for (const auto& [run, entry] : ahead_) {
    if (entry > through()) ahead.emplace(run, entry);
  }
  return ahead;
}

}  // namespace plumbline::server
