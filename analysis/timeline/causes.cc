#include "analysis/timeline/causes.h"

#include <algorithm>
#include <utility>

namespace plumbline::timeline {

const Launch* FindLaunch(const Columns& columns, const GpuWork& work) {
  if (work.correlation == kNoCorrelation) return nullptr;
  const auto found = std::lower_bound(
      columns.launches.begin(), columns.launches.end(), work.correlation,
      [](const Launch& launch, uint32_t wanted) { return launch.correlation < wanted; });
  const bool is = found != columns.launches.end() && found->correlation == work.correlation;
  return is ? &*found : nullptr;
}

HostSide::HostSide(const Columns& columns) : in_(columns) {
  for (const Launch& launch : in_.launches) launches_[launch.thread] += launch.kernel ? 1 : 0;
  std::erase_if(launches_, [](const auto& thread) { return thread.second == 0; });
  uint64_t most = 0;
  for (const auto& [thread, count] : launches_) {
    if (count > most) busiest_ = thread;
    most = std::max(most, count);
  }
  // Finds the first kernel at or after each event.
  next_kernel_.resize(in_.gpu.size());
  auto next = static_cast<uint32_t>(in_.gpu.size());
  for (size_t i = in_.gpu.size(); i-- > 0;) {
    if (in_.gpu[i].kind == GpuKind::kKernel) next = static_cast<uint32_t>(i);
    next_kernel_[i] = next;
  }
  // Spans are sorted by start, so unions are built by appending.
  for (const HostSpan& span : in_.spans) {
    if (!launches_.contains(span.thread)) continue;
    Thread& thread = threads_[span.thread];
    for (int i = 0; i < kHostClasses; ++i) {
      if (span.classes >> i & 1) thread.classes[i].Append({span.start, span.end});
    }
    if ((span.classes & kSynchronisation) == 0) continue;
    thread.synchronising.push_back({span.start, span.end});
    const int64_t before = thread.open_until.empty() ? span.end : thread.open_until.back();
    thread.open_until.push_back(std::max(before, span.end));
  }
  for (auto& [id, thread] : threads_) {
    for (Intervals& spans : thread.classes) spans.Index();
  }
}

const HostSide::Thread* HostSide::ThreadAfter(size_t ender) const {
  if (launches_.empty()) return nullptr;
  uint32_t id = busiest_;
  if (const uint32_t kernel = next_kernel_[ender]; kernel < in_.gpu.size()) {
    if (const Launch* launch = FindLaunch(in_, in_.gpu[kernel])) id = launch->thread;
  }
  const auto found = threads_.find(id);
  return found == threads_.end() ? nullptr : &found->second;
}

bool HostSide::Synchronised(const Thread& thread, const Interval& gap) {
  const int64_t slack = std::max<int64_t>(200'000, (gap.end - gap.start) / 10);
  const auto& calls = thread.synchronising;
  // Search backwards from the last call that began before the gap, while an earlier one may still
  // be open.
  auto i = static_cast<size_t>(
      std::upper_bound(calls.begin(), calls.end(), gap.start,
                       [](int64_t at, const Interval& call) { return at < call.start; }) -
      calls.begin());
  for (int looked = 0; i-- > 0 && thread.open_until[i] >= gap.start && looked < 256; ++looked) {
    if (calls[i].end >= gap.start && calls[i].end <= gap.start + slack) return true;
  }
  return false;
}

v1::TimelineGap::Cause HostSide::CauseOfGap(const Interval& gap, size_t ender) const {
  const Thread* thread = ThreadAfter(ender);
  if (thread == nullptr) return v1::TimelineGap::CAUSE_UNKNOWN;
  for (int i = 0; i < kHostClasses; ++i) {
    if (CauseOf(i) == v1::TimelineGap::CAUSE_SYNCHRONISATION) continue;
    if (2 * thread->classes[i].LengthWithin(gap.start, gap.end) >= gap.end - gap.start)
      return CauseOf(i);
  }
  return Synchronised(*thread, gap) ? v1::TimelineGap::CAUSE_SYNCHRONISATION
                                    : v1::TimelineGap::CAUSE_UNKNOWN;
}

int64_t HostSide::Overlap(const Interval& gap, const Launch& launch) {
  const int64_t launched = std::min(gap.end, launch.start + launch.duration);
  return std::max<int64_t>(0, launched - gap.start);
}

int64_t HostSide::WaitedForLaunch(const Interval& gap, const GpuWork& ender) const {
  const Launch* launch = FindLaunch(in_, ender);
  return launch == nullptr ? 0 : Overlap(gap, *launch);
}

HostSide::Class HostSide::OfClass(int i, int64_t first, int64_t last, const Interval& gap) const {
  Class found;
  std::pair<int64_t, int64_t> best{-1, -1};  // coverage of the gap, total coverage
  for (const HostSpan& span : in_.spans) {
    if ((span.classes >> i & 1) == 0 || !launches_.contains(span.thread)) continue;
    const Interval within = {std::max(span.start, first), std::min(span.end, last)};
    if (within.end <= within.start) continue;
    found.all.Append(within);
    const std::pair<int64_t, int64_t> covers = {
        std::max<int64_t>(0, std::min(span.end, gap.end) - std::max(span.start, gap.start)),
        span.end - span.start};
    if (covers <= best) continue;
    best = covers;
    found.name = span.name;
  }
  return found;
}

}  // namespace plumbline::timeline
