#include "analysis/timeline/comb.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <vector>

namespace plumbline::timeline {
namespace {

constexpr size_t kFewest = 3;          // gaps per group
constexpr double kLeastOfStep = 0.03;  // shorter gaps are not counted
constexpr double kSteady = 0.02, kSteadyShare = 0.75;

using Group = std::vector<const v1::TimelineGap*>;

int64_t EndOf(const v1::TimelineGap& gap) {
  return static_cast<int64_t>(gap.start_ns() + gap.duration_ns());
}

int64_t Median(std::vector<int64_t> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Returns the distances between neighbours; `of` returns a gap's place.
template <typename Of>
std::vector<int64_t> Distances(const Group& group, const Of& of) {
  std::vector<int64_t> distances;
  for (size_t i = 1; i < group.size(); ++i) distances.push_back(of(*group[i]) - of(*group[i - 1]));
  return distances;
}

int64_t StepLength(const v1::Timeline& timeline) {
  std::vector<int64_t> lengths;
  for (const v1::TimelineStep& step : timeline.steps())
    lengths.push_back(static_cast<int64_t>(step.duration_ns()));
  return lengths.empty() ? 0 : Median(std::move(lengths));
}

// Returns the gaps of the group that recur, and sets `*period`. If they do not recur, returns none.
Group Recurring(const Group& group, int64_t step, uint64_t span, int64_t* period) {
  if (group.size() < kFewest) return {};
  const int64_t every = step > 0 ? step : Median(Distances(group, EndOf));
  const double least = kLeastOfStep * static_cast<double>(every);
  Group teeth;
  for (const v1::TimelineGap* gap : group) {
    if (static_cast<double>(gap->duration_ns()) >= least) teeth.push_back(gap);
  }
  if (teeth.size() < kFewest) return {};
  const std::vector<int64_t> distances = Distances(
      teeth, [](const v1::TimelineGap& gap) { return static_cast<int64_t>(gap.occurrence()); });
  const auto median = static_cast<double>(Median(distances));
  const auto steady = std::count_if(distances.begin(), distances.end(), [&](int64_t distance) {
    return std::fabs(static_cast<double>(distance) - median) <= kSteady * median;
  });
  if (static_cast<double>(steady) < kSteadyShare * static_cast<double>(distances.size())) return {};
  *period = Median(Distances(teeth, EndOf));
  const int64_t reach = EndOf(*teeth.back()) - EndOf(*teeth.front()) + *period;
  return 2 * static_cast<double>(reach) >= static_cast<double>(span) ? teeth : Group();
}

}  // namespace

size_t StepsWithin(const v1::Timeline& timeline) {
  const auto span = static_cast<int64_t>(timeline.span_ns());
  return static_cast<size_t>(std::count_if(
      timeline.steps().begin(), timeline.steps().end(), [&](const v1::TimelineStep& step) {
        return step.start_ns() < span &&
               step.start_ns() + static_cast<int64_t>(step.duration_ns()) > 0;
      }));
}

const v1::TimelineGap* LongestGap(const v1::Timeline& timeline, v1::TimelineGap::Cause cause) {
  const v1::TimelineGap* longest = nullptr;
  for (const v1::TimelineGap& gap : timeline.gaps()) {
    if (gap.cause() != cause) continue;
    if (longest == nullptr || gap.duration_ns() > longest->duration_ns()) longest = &gap;
  }
  return longest;
}

Comb FindComb(const v1::Timeline& timeline) {
  Comb comb;
  const v1::TimelineGap* longest = nullptr;
  std::map<uint32_t, Group> groups;
  for (const v1::TimelineGap& gap : timeline.gaps()) {
    groups[gap.name()].push_back(&gap);
    if (longest == nullptr || gap.duration_ns() > longest->duration_ns()) longest = &gap;
  }
  const int64_t step = StepLength(timeline);
  std::array<int64_t, v1::TimelineGap::Cause_ARRAYSIZE> by_cause{};
  int64_t most = 0;
  for (const auto& [name, group] : groups) {
    int64_t period = 0, time = 0;
    const Group teeth = Recurring(group, step, timeline.span_ns(), &period);
    for (const v1::TimelineGap* gap : teeth) {
      const auto duration = static_cast<int64_t>(gap->duration_ns());
      time += duration;
      if (v1::TimelineGap::Cause_IsValid(gap->cause())) by_cause[gap->cause()] += duration;
      if (comb.longest == nullptr || duration > comb.longest_ns) {
        comb.longest = gap;
        comb.longest_ns = duration;
      }
    }
    if (teeth.empty()) continue;
    ++comb.groups;
    comb.gaps += teeth.size();
    comb.time_ns += time;
    if (time > most) comb.period_ns = period;
    most = std::max(most, time);
  }
  if (comb.gaps == 0 && longest != nullptr) {
    comb.longest = longest;
    comb.longest_ns = static_cast<int64_t>(longest->duration_ns());
  }
  const auto held = std::max_element(by_cause.begin(), by_cause.end());
  if (comb.time_ns > 0) {
    comb.cause_share = static_cast<double>(*held) / static_cast<double>(comb.time_ns);
    if (2 * *held >= comb.time_ns)
      comb.cause = static_cast<v1::TimelineGap::Cause>(held - by_cause.begin());
  }
  return comb;
}

}  // namespace plumbline::timeline
