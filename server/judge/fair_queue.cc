#include "server/judge/fair_queue.h"

#include <algorithm>
#include <iterator>

namespace plumbline::server {

void FairQueue::Push(Work work) { Add(std::move(work), false); }
void FairQueue::PushFirst(Work work) { Add(std::move(work), true); }

void FairQueue::Add(Work work, bool first) {
  if (work.runs.empty() && work.stream == 0) work.runs.emplace_back();
  if (work.entry != 0) {
    undone_.insert(undone_.end(), work.entry);
    newest_ = std::max(newest_, work.entry);
  }
  Flow* flow = FlowOf(work);
  Unlist(flow);
  (first ? flow->first : flow->rest).push_back({std::move(work), ++last_order_});
  List(flow);
}

// ---- flows -----------------------------------------------------------------------------------

FairQueue::Flow* FairQueue::FlowOf(const Work& work) {
  Flow* flow = nullptr;
  for (const std::string& run : work.runs) flow = TieRun(flow, run);
  return work.stream == 0 ? flow : TieStream(flow, work.stream);
}

FairQueue::Flow* FairQueue::NewFlow() {
  auto fresh = std::make_unique<Flow>();
  Flow* const flow = fresh.get();
  flows_.emplace(flow, std::move(fresh));
  return flow;
}

// Adds `run` to the flow; `flow` may be null. Returns the flow that the run belongs to.
FairQueue::Flow* FairQueue::TieRun(Flow* flow, const std::string& run) {
  Flow*& known = by_run_[run];
  if (known != nullptr) return flow == nullptr ? known : Tie(flow, known);
  if (flow == nullptr) flow = NewFlow();
  known = flow;
  flow->runs.insert(run);
  const auto tag = tags_.find(run);
  if (tag == tags_.end()) return flow;
  Unlist(flow);
  GoOnFrom(tag->second, flow);
  tags_.erase(tag);
  List(flow);
  return flow;
}

FairQueue::Flow* FairQueue::TieStream(Flow* flow, uint64_t stream) {
  Flow*& known = by_stream_[stream];
  if (known != nullptr) return flow == nullptr ? known : Tie(flow, known);
  if (flow == nullptr) flow = NewFlow();
  known = flow;
  flow->streams.insert(stream);
  return flow;
}

// Merges two flows; their work keeps its order of arrival.
FairQueue::Flow* FairQueue::Tie(Flow* a, Flow* b) {
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
  if (a->fresh == b->fresh) {
    a->tag = std::max(a->tag, b->tag);
  } else if (a->fresh) {
    a->fresh = false;
    a->tag = b->tag;
  }
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
  flows_.erase(b);
  List(a);
  return a;
}

const FairQueue::Flow* FairQueue::Find(const std::string& run) const {
  const auto found = by_run_.find(run);
  return found == by_run_.end() ? nullptr : found->second;
}

void FairQueue::Forget(Flow* flow) {
  for (const std::string& run : flow->runs) {
    by_run_.erase(run);
    KeepTag(run, *flow);
  }
  for (const uint64_t stream : flow->streams) by_stream_.erase(stream);
  flows_.erase(flow);
}

// Keeps the rest of the run's credit until its next flow.
void FairQueue::KeepTag(const std::string& run, const Flow& flow) {
  const Nanos tag = flow.fresh ? now_tag_ - kCredit + flow.tag : flow.tag;
  if (tag <= now_tag_ - kCredit) return;
  tags_[run] = tag;
  if (tags_.size() <= most_tags_) return;
  std::erase_if(tags_, [this](const auto& t) { return t.second <= now_tag_ - kCredit; });
  most_tags_ = std::max<size_t>(64, 2 * tags_.size());
}

// Continues from the tag that a run had when its flow ended, because the flow has used at least
// that time.
void FairQueue::GoOnFrom(Nanos tag, Flow* flow) const {
  if (!flow->fresh) {
    flow->tag = std::max(flow->tag, tag);
  } else if (tag >= now_tag_) {
    flow->fresh = false;
    flow->tag = tag;
  } else {
    flow->tag = std::max(flow->tag, tag - (now_tag_ - kCredit));
  }
}

// ---- scheduling ------------------------------------------------------------------------------

bool FairQueue::HeldBack(const Flow& flow) const {
  return !held_back_.empty() &&
         std::any_of(flow.runs.begin(), flow.runs.end(),
                     [this](const std::string& run) { return held_back_.contains(run); });
}

void FairQueue::List(Flow* flow) {
  if (flow->listed || flow->going_on > 0 || !flow->waits() || HeldBack(*flow)) return;
  flow->listed = true;
  flow->order = flow->front().order;
  flow->turn = {!flow->fresh, flow->tag, flow->order};
  by_order_[flow->order] = flow;
  by_turn_[flow->turn] = flow;
  if (flow->front().work.room) by_room_[flow->order] = flow;
}

void FairQueue::Unlist(Flow* flow) {
  if (!flow->listed) return;
  flow->listed = false;
  by_order_.erase(flow->order);
  by_turn_.erase(flow->turn);
  by_room_.erase(flow->order);
}

std::optional<FairQueue::Begun> FairQueue::Next(Time now, Which which) {
  Flow* flow = nullptr;
  if (!by_room_.empty()) {
    flow = by_room_.begin()->second;
  } else if (which == Which::kRoom || by_order_.empty()) {
    return std::nullopt;
  } else {
    flow = by_order_.begin()->second;
    if (which == Which::kInOrder) {
      const auto due = std::find_if(by_order_.begin(), by_order_.end(), [this](const auto& listed) {
        const uint64_t entry = listed.second->front().work.entry;
        return entry == 0 || entry == *undone_.begin();
      });
      if (due == by_order_.end()) return std::nullopt;
      flow = due->second;
    } else if (now - flow->front().work.since >= kPatience) {
      flow = by_turn_.begin()->second;
    }
  }
  Unlist(flow);
  std::deque<Waiting>& from = flow->first.empty() ? flow->rest : flow->first;
  Work work = std::move(from.front().work);
  from.pop_front();
  return Begin(flow, std::move(work));
}

FairQueue::Begun FairQueue::Begin(Flow* flow, Work work) {
  if (!flow->fresh) now_tag_ = std::max(now_tag_, flow->tag);
  ++flow->going_on;
  ++going_on_;
  busy_.insert(flow);
  flow->since.insert(work.since);
  Begun begun;
  begun.since = work.since;
  begun.overtakes = work.entry != 0 && *undone_.begin() < work.entry;
  begun.work = std::move(work);
  return begun;
}

std::optional<FairQueue::Begun> FairQueue::Occupy(const std::string& run) {
  if (Busy(run)) return std::nullopt;
  Flow* flow = TieRun(nullptr, run);
  Unlist(flow);
  Work work;
  work.runs = {run};
  work.since = Time::max();  // nothing waits for it
  return Begin(flow, std::move(work));
}

void FairQueue::Done(const Begun& begun, Nanos used) {
  const Work& work = begun.work;
  NoteDone(work);
  Flow* flow = work.runs.empty() ? by_stream_.at(work.stream) : by_run_.at(work.runs.front());
  if (--flow->going_on == 0) busy_.erase(flow);
  --going_on_;
  flow->since.erase(flow->since.find(begun.since));
  flow->tag += used;
  if (flow->fresh && flow->tag >= kCredit) {
    flow->fresh = false;
    flow->tag += now_tag_ - kCredit;
  }
  if (flow->going_on == 0 && !flow->waits()) {
    Forget(flow);
  } else {
    List(flow);
  }
}

// Flows with work in progress are not listed, so they need no update.
void FairQueue::HoldBackBusy() {
  for (const Flow* flow : busy_) held_back_.insert(flow->runs.begin(), flow->runs.end());
}

void FairQueue::HoldNone() {
  if (held_back_.empty()) return;
  held_back_.clear();
  for (const auto& [key, flow] : flows_) List(flow.get());
}

// ---- state -----------------------------------------------------------------------------------

bool FairQueue::Busy(const std::string& run) const {
  const Flow* flow = Find(run);
  return flow != nullptr && flow->going_on > 0;
}

bool FairQueue::Urgent(const std::string& run) const {
  const Flow* flow = Find(run);
  return flow != nullptr && !flow->first.empty();
}

FairQueue::Time FairQueue::WaitsSince(const std::string& run) const {
  const Flow* flow = Find(run);
  if (flow == nullptr) return Time::max();
  Time since = flow->since.empty() ? Time::max() : *flow->since.begin();
  if (!flow->rest.empty()) since = std::min(since, flow->rest.front().work.since);
  return since;
}

void FairQueue::NoteDone(const Work& work) {
  if (work.entry == 0) return;
  undone_.erase(work.entry);
  if (through() >= work.entry) {
    if (through() >= furthest_) ahead_.clear();
    return;
  }
  for (const std::string& run : work.runs) ahead_[run] = work.entry;
  furthest_ = std::max(furthest_, work.entry);
}

uint64_t FairQueue::through() const { return undone_.empty() ? newest_ : *undone_.begin() - 1; }

uint64_t FairQueue::ThroughOf(const std::string& run) const {
  const auto ahead = ahead_.find(run);
  return ahead == ahead_.end() ? through() : std::max(through(), ahead->second);
}

std::map<std::string, uint64_t> FairQueue::Ahead() const {
  std::map<std::string, uint64_t> ahead;
  for (const auto& [run, entry] : ahead_) {
    if (entry > through()) ahead.emplace(run, entry);
  }
  return ahead;
}

}  // namespace plumbline::server
