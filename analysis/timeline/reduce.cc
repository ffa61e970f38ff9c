// Columns of a trace to v1::Timeline.
//
// The window reaches from the start of the first GPU event to the end of the last. With
// comp = U(kernels that compute, copies, memsets) and comm = U(kernels that communicate):
//   busy    = U(comm, comp)
//   exposed = U(comm, comp) - U(comp)
//   a gap   = a stretch of the window outside of busy
#include <algorithm>
#include <numeric>
#include <unordered_map>

#include "analysis/timeline/causes.h"
#include "analysis/timeline/columns.h"
#include "analysis/timeline/comb.h"
#include "analysis/timeline/intervals.h"
#include "analysis/timeline/names.h"

namespace plumbline::timeline {
namespace {

constexpr int64_t kGap = 1'000'000;       // ns; shorter gaps are not listed individually
constexpr int64_t kShortKernel = 10'000;  // ns
constexpr size_t kMostGaps = 1u << 14, kMostSteps = 1u << 12;

class Reduction {
 public:
  explicit Reduction(Columns* columns) : in_(*columns) {}

  v1::Timeline Take() {
    Sort();
    out_.set_host_events(in_.host_events);
    if (in_.stage >= 0) {
      out_.set_stage_known(true);
      out_.set_stage(static_cast<uint32_t>(in_.stage));
    }
    if (!in_.gpu.empty()) {
      Occupancy();
      Kernels();
      LeaveOutFrames();
      if (in_.serves) LeaveOutRequests();
      const HostSide host(in_);
      out_.set_launching_threads(host.threads());
      Gaps(host);
      for (int i = 0; i < kHostClasses; ++i) Waits(host, i);
    }
    Steps();
    return std::move(out_);
  }

 private:
  void Sort() {
    std::sort(in_.gpu.begin(), in_.gpu.end(), [](const GpuWork& a, const GpuWork& b) {
      return std::tie(a.start, a.end, a.stream, a.name) <
             std::tie(b.start, b.end, b.stream, b.name);
    });
    std::sort(in_.launches.begin(), in_.launches.end(), [](const Launch& a, const Launch& b) {
      return std::tie(a.correlation, a.start) < std::tie(b.correlation, b.start);
    });
    std::sort(in_.spans.begin(), in_.spans.end(), [](const HostSpan& a, const HostSpan& b) {
      return std::tie(a.start, a.end, a.thread) < std::tie(b.start, b.end, b.thread);
    });
    std::sort(in_.steps.begin(), in_.steps.end(), [](const StepMarked& a, const StepMarked& b) {
      return std::tie(a.number, a.start) < std::tie(b.number, b.start);
    });
  }

  void Occupancy() {
    for (const GpuWork& work : in_.gpu)
      (work.communicates ? comm_ : comp_).Append({work.start, work.end});
    busy_ = Union(comm_, comp_);
    for (Intervals* set : {&comm_, &comp_, &busy_}) set->Index();
    first_ = in_.gpu.front().start;
    last_ = first_;
    for (const GpuWork& work : in_.gpu) last_ = std::max(last_, work.end);
    out_.set_start_ns(first_);
    out_.set_span_ns(Length(last_ - first_));
    out_.set_busy_ns(Length(busy_.length()));
    out_.set_communication_ns(Length(comm_.length()));
    out_.set_exposed_ns(Length(busy_.length() - comp_.length()));
  }

  // Counts kernels. Streams that mostly communicate may have other kernels with unknown names.
  void Kernels() {
    struct Stream {
      int64_t communicates = 0, other = 0;
    };
    std::unordered_map<uint32_t, Stream> streams;
    uint64_t kernels = 0, shorter = 0, launched = 0, communicating = 0;
    int64_t time = 0;
    for (const GpuWork& work : in_.gpu) {
      if (work.kind != GpuKind::kKernel) continue;
      const int64_t duration = work.end - work.start;
      ++kernels;
      time += duration;
      shorter += duration < kShortKernel ? 1 : 0;
      launched += FindLaunch(in_, work) != nullptr ? 1 : 0;
      communicating += work.communicates ? 1 : 0;
      Stream& stream = streams[work.stream];
      (work.communicates ? stream.communicates : stream.other) += duration;
    }
    int64_t unclassified = 0;
    for (const auto& [id, stream] : streams)
      unclassified += stream.communicates > stream.other ? stream.other : 0;
    out_.set_gpu_events(in_.gpu.size());
    out_.set_kernels(kernels);
    out_.set_kernel_ns(Length(time));
    out_.set_short_kernels(shorter);
    out_.set_launched_kernels(launched);
    out_.set_communication_kernels(communicating);
    out_.set_unclassified_ns(Length(unclassified));
  }

  // Removes functions around the whole loop ("run_with_checkpoints"), which are not the cause of a
  // gap inside: spans that contain a whole step, or, without step marks, the whole window.
  void LeaveOutFrames() {
    std::vector<Interval> steps;
    for (const StepMarked& step : in_.steps) steps.push_back({step.start, step.end});
    std::sort(steps.begin(), steps.end());
    std::erase_if(in_.spans, [&](const HostSpan& span) {
      if (steps.empty()) return span.start <= first_ && span.end >= last_;
      const auto next =
          std::lower_bound(steps.begin(), steps.end(), span.start,
                           [](const Interval& step, int64_t start) { return step.start < start; });
      return next != steps.end() && next->end <= span.end;
    });
  }

  // A serving process waits for its next batch, and for the GPU, when there is nothing to do, so
  // such a wait does not explain a gap.
  void LeaveOutRequests() {
    constexpr uint8_t kOfRequests = kDataLoading | kSynchronisation;
    for (HostSpan& span : in_.spans) span.classes &= static_cast<uint8_t>(~kOfRequests);
    std::erase_if(in_.spans, [](const HostSpan& span) { return span.classes == 0; });
  }

  void Gaps(const HostSide& host) {
    gaps_ = busy_.GapsWithin(first_, last_);
    std::vector<uint64_t> occurrences(in_.names.size(), 0);
    size_t begun = 0;  // number of events counted so far
    int64_t launch_wait = 0;
    for (const Interval& gap : gaps_.parts()) {
      size_t ender = begun;
      while (in_.gpu[ender].start < gap.end) ++ender;
      for (; begun <= ender; ++begun) ++occurrences[in_.gpu[begun].name];
      v1::TimelineGap::Cause cause = v1::TimelineGap::CAUSE_UNKNOWN;
      if (gap.end - gap.start >= kGap) {
        cause = host.CauseOfGap(gap, ender);
        AddGap(gap, in_.gpu[ender].name, occurrences[in_.gpu[ender].name], cause);
      }
      const bool other_cause = cause != v1::TimelineGap::CAUSE_UNKNOWN &&
                               cause != v1::TimelineGap::CAUSE_SYNCHRONISATION;
      if (!other_cause && gap.end - gap.start < kGap)  // a longer gap is not due to a launch
        launch_wait += host.WaitedForLaunch(gap, in_.gpu[ender]);
    }
    out_.set_launch_wait_ns(Length(launch_wait));
    KeepLongest();
  }

  void AddGap(const Interval& gap, uint32_t name, uint64_t occurrence,
              v1::TimelineGap::Cause cause) {
    const auto [known, fresh] = names_.try_emplace(name, out_.names_size());
    if (fresh) out_.add_names(in_.names[name]);
    v1::TimelineGap& out = *out_.add_gaps();
    out.set_start_ns(Length(gap.start - first_));
    out.set_duration_ns(Length(gap.end - gap.start));
    out.set_name(static_cast<uint32_t>(known->second));
    out.set_occurrence(occurrence);
    out.set_cause(cause);
  }

  void KeepLongest() {
    auto& gaps = *out_.mutable_gaps();
    if (static_cast<size_t>(gaps.size()) <= kMostGaps) return;
    out_.set_gaps_left_out(static_cast<size_t>(gaps.size()) - kMostGaps);
    std::sort(gaps.begin(), gaps.end(), [](const auto& a, const auto& b) {
      return std::make_pair(b.duration_ns(), a.start_ns()) <
             std::make_pair(a.duration_ns(), b.start_ns());
    });
    gaps.DeleteSubrange(kMostGaps, gaps.size() - static_cast<int>(kMostGaps));
    std::sort(gaps.begin(), gaps.end(),
              [](const auto& a, const auto& b) { return a.start_ns() < b.start_ns(); });
  }

  // Returns the first of the longest gaps with this cause. If there is none, returns an empty
  // interval.
  Interval LongestGapOf(v1::TimelineGap::Cause cause) const {
    const v1::TimelineGap* longest = LongestGap(out_, cause);
    if (longest == nullptr) return {};
    const int64_t start = first_ + static_cast<int64_t>(longest->start_ns());
    return {start, start + static_cast<int64_t>(longest->duration_ns())};
  }

  void Waits(const HostSide& host, int i) {
    const HostSide::Class spans = host.OfClass(i, first_, last_, LongestGapOf(CauseOf(i)));
    if (spans.all.empty()) return;
    v1::TimelineWait& out = *out_.add_waits();
    out.set_cause(CauseOf(i));
    out.set_name(in_.names[spans.name]);
    out.set_spans(spans.all.parts().size());
    out.set_union_ns(Length(spans.all.length()));
    out.set_idle_ns(Length(CommonLength(spans.all, gaps_)));
    std::vector<int64_t> lengths, periods;
    uint64_t idle_spans = 0;
    int64_t before = 0;
    for (const Interval& part : spans.all.parts()) {
      const int64_t length = part.end - part.start;
      idle_spans += busy_.LengthWithin(part.start, part.end) < length ? 1 : 0;
      if (!lengths.empty()) periods.push_back(part.start - before);
      before = part.start;
      lengths.push_back(length);
    }
    out.set_idle_spans(idle_spans);
    out.set_median_ns(Length(MedianOf(std::move(lengths))));
    out.set_period_ns(Length(MedianOf(std::move(periods))));
  }

  // If a number is marked on several threads, it is one step, from its first mark's start to the
  // last mark's end.
  void Steps() {
    for (size_t i = 0; i < in_.steps.size();) {
      StepMarked step = in_.steps[i];
      for (; i < in_.steps.size() && in_.steps[i].number == step.number; ++i)
        step.end = std::max(step.end, in_.steps[i].end);
      if (static_cast<size_t>(out_.steps_size()) == kMostSteps) {
        out_.set_steps_left_out(out_.steps_left_out() + 1);
        continue;
      }
      v1::TimelineStep& out = *out_.add_steps();
      out.set_number(step.number);
      out.set_start_ns(step.start - first_);
      out.set_duration_ns(Length(step.end - step.start));
      const int64_t busy = busy_.LengthWithin(step.start, step.end);
      const int64_t compute = comp_.LengthWithin(step.start, step.end);
      out.set_busy_ns(Length(busy));
      out.set_compute_ns(Length(compute));
      out.set_communication_ns(Length(comm_.LengthWithin(step.start, step.end)));
      out.set_exposed_ns(Length(busy - compute));
    }
  }

  static uint64_t Length(int64_t ns) { return static_cast<uint64_t>(std::max<int64_t>(ns, 0)); }

  static int64_t MedianOf(std::vector<int64_t> values) {
    if (values.empty()) return 0;
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
  }

  Columns& in_;
  v1::Timeline out_;
  Intervals comm_, comp_, busy_, gaps_;
  int64_t first_ = 0, last_ = 0;
  std::unordered_map<uint32_t, int> names_;  // numbers of the columns to those of the timeline
};

}  // namespace

v1::Timeline Reduce(Columns* columns) { return Reduction(columns).Take(); }

}  // namespace plumbline::timeline
