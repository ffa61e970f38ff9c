#include "analysis/timeline/loop.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "analysis/timeline/intervals.h"
#include "analysis/timeline/names.h"

namespace plumbline::timeline {
namespace {

constexpr int kMostNumbered = 8;  // waits of one kind per step that have different names

// Returns the class of a span in the loop. If it is work, returns 0.
uint8_t ClassOfSpan(v1::Span::Kind kind, std::string_view name) {
  switch (kind) {
    case v1::Span::KIND_DATA:
      return kDataLoading;
    case v1::Span::KIND_CHECKPOINT:
      return kCheckpoint;
    case v1::Span::KIND_COMPILE:
      return kCompilation;
    case v1::Span::KIND_COLLECTIVE:
      return kCommunication;
    case v1::Span::KIND_OTHER:
      return ClassesOfHost(name) & kGarbageCollection;
    default:
      return 0;
  }
}

// Returns true for a declared stage in which the loop does no step, whatever else is declared
// inside.
bool NoStepIn(v1::Span::Kind kind) {
  return kind == v1::Span::KIND_EVALUATION || kind == v1::Span::KIND_PAUSE;
}

// Returns the part of `of` that is not in `without`, within the window.
Intervals Without(const Intervals& of, const Intervals& without, const Interval& window) {
  return Union(of.GapsWithin(window.start, window.end), without)
      .GapsWithin(window.start, window.end);
}

class LoopColumns {
 public:
  explicit LoopColumns(const std::vector<LoopStep>& steps) : steps_(steps) {
    if (!steps.empty()) window_ = {steps.front().start, steps.back().end};
  }

  Columns Take(const std::vector<LoopSpan>& spans) {
    if (steps_.empty()) return std::move(out_);
    AddSpans(spans);
    for (const LoopStep& step : steps_) out_.steps.push_back({step.number, step.start, step.end});
    NameEnders();
    const Intervals busy_waiting = Union(waits_, collectives_);
    AddWork(busy_waiting.GapsWithin(window_.start, window_.end), false);
    AddWork(Without(collectives_, waits_, window_), true);
    CountSteps();
    out_.host_events = spans.size();
    return std::move(out_);
  }

 private:
  uint32_t Name(std::string_view name) {
    const auto [known, fresh] = names_.try_emplace(std::string(name), out_.names.size());
    if (fresh) out_.names.emplace_back(name);
    return static_cast<uint32_t>(known->second);
  }

  void AddSpans(const std::vector<LoopSpan>& spans) {
    std::vector<Interval> data, waits, collectives, stages;
    uint32_t data_name = 0;
    for (const LoopSpan& span : spans) {
      const Interval whole = {span.start, span.end};
      const uint8_t classes = ClassOfSpan(span.kind, span.name);
      if (NoStepIn(span.kind) || classes == kCheckpoint) stages.push_back(whole);
      if (classes == kDataLoading) {
        data_name = Name(span.name);
        data.push_back(whole);
      } else if (classes == kCommunication) {
        collectives.push_back(whole);
      } else if (classes != 0) {
        waits.push_back(whole);
        out_.spans.push_back({span.start, span.end, 0, Name(span.name), classes});
      }
    }
    const Intervals loaded =
        Without(Intervals(std::move(data)), Intervals(std::move(stages)), window_);
    for (const Interval& part : loaded.parts())
      out_.spans.push_back({part.start, part.end, 0, data_name, kDataLoading});
    waits_ = Union(loaded, Intervals(std::move(waits)));
    collectives_ = Intervals(std::move(collectives));
  }

  // Names the end of a wait by its class, and by its number among the step's waits of that class.
  // So each name occurs at most once per step.
  void NameEnders() {
    std::vector<const HostSpan*> spans;
    for (const HostSpan& span : out_.spans) spans.push_back(&span);
    std::sort(spans.begin(), spans.end(), [](const HostSpan* a, const HostSpan* b) {
      return std::tie(a->start, a->end) < std::tie(b->start, b->end);
    });
    size_t next = 0, step = 0;
    std::map<int, int> waits;  // of the step, by class
    for (const Interval& wait : waits_.parts()) {
      std::array<int64_t, kHostClasses> lengths{};
      for (; next < spans.size() && spans[next]->start < wait.end; ++next)
        lengths[ClassNumber(spans[next]->classes)] += spans[next]->end - spans[next]->start;
      const auto longest =
          static_cast<int>(std::max_element(lengths.begin(), lengths.end()) - lengths.begin());
      for (; step < steps_.size() && steps_[step].end <= wait.start; ++step) waits.clear();
      const int number = std::min(++waits[longest], kMostNumbered);
      std::string name = std::string("work after ") + CauseName(CauseOf(longest));
      if (number > 1) name += " " + std::to_string(number);
      const uint32_t id = Name(name);
      enders_[wait.end] = id;
      used_.insert(id);
    }
  }

  static size_t ClassNumber(uint8_t classes) {
    size_t number = 0;
    while (number + 1 < kHostClasses && (classes >> number & 1) == 0) ++number;
    return number;
  }

  // Cuts at each step's end. All work is recorded as launched long before by the loop's thread, so
  // no gap waits for a launch.
  void AddWork(const Intervals& set, bool communicates) {
    const uint32_t plain = Name(communicates ? "collective" : "work");
    size_t step = 0;
    for (Interval rest : set.parts()) {
      const auto ends = enders_.find(rest.start);
      uint32_t name = ends == enders_.end() ? plain : ends->second;
      while (rest.start < rest.end && step < steps_.size()) {
        if (steps_[step].end <= rest.start) {
          ++step;
          continue;
        }
        const int64_t end = std::min(rest.end, steps_[step].end);
        AddOperation({rest.start, end}, name, communicates);
        name = plain;
        rest.start = end;
      }
    }
  }

  // Adds one operation of almost no length per name at every step's end. The reduction counts the
  // operations between two gaps of one name. With these operations its count is a number of steps.
  void CountSteps() {
    waits_.Index();
    for (const LoopStep& step : steps_) {
      if (waits_.LengthWithin(step.end - 1, step.end) > 0) continue;
      for (const uint32_t name : used_) AddOperation({step.end - 1, step.end}, name, false);
    }
  }

  void AddOperation(const Interval& at, uint32_t name, bool communicates) {
    const auto number = static_cast<uint32_t>(out_.launches.size());
    out_.launches.push_back({.start = window_.start, .correlation = number});
    GpuWork work;
    work.start = at.start;
    work.end = at.end;
    work.name = name;
    work.correlation = number;
    work.communicates = communicates;
    out_.gpu.push_back(work);
  }

  const std::vector<LoopStep>& steps_;
  Interval window_;
  Columns out_;
  std::map<std::string, size_t> names_;
  std::map<int64_t, uint32_t> enders_;  // names of the operations that begin where a wait ends
  std::set<uint32_t> used_;             // names in use
  Intervals waits_, collectives_;
};

}  // namespace

bool ReportsLoop(v1::Span::Kind kind, std::string_view name) {
  return NoStepIn(kind) || ClassOfSpan(kind, name) != 0;
}

Columns ColumnsOfLoop(const std::vector<LoopStep>& steps, const std::vector<LoopSpan>& spans) {
  return LoopColumns(steps).Take(spans);
}

}  // namespace plumbline::timeline
