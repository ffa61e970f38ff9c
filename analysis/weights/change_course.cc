#include "analysis/weights/change_course.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/sample/sample.h"
#include "analysis/weights/upper_median.h"

namespace plumbline::analysis {
namespace {

constexpr size_t kMostChanges = size_t{1} << 16;

// Hashes the indices with FNV-1a, to detect whether two samples have the same elements.
uint64_t HashOf(const std::vector<uint64_t>& indices) {
  uint64_t state = 0xcbf29ce484222325ull;
  for (const uint64_t index : indices) state = (state ^ index) * 0x100000001b3ull;
  return state;
}

// Returns log10 of |after - before| over |before|. If nothing changed, or there is nothing to
// change, returns nullopt.
std::optional<double> LogRatio(const std::vector<float>& before, const std::vector<double>& after) {
  double change = 0, weight = 0;
  for (size_t i = 0; i < after.size(); ++i) {
    const double was = before[i], by = after[i] - was;
    change += by * by;
    weight += was * was;
  }
  if (!(change > 0) || !(weight > 0)) return std::nullopt;
  return 0.5 * std::log10(change / weight);
}

}  // namespace

// Collects a step's sampled matrices and their rates.
void ChangeCourses::Take(const SiteStep& step) {
  for (const Item& item : step.items) {
    const v1::Evidence& evidence = *item.evidence;
    if (evidence.has_scalar() && ReadsScalar(step.site))
      open_[{item.source->rank(), step.site.layer()}].rate = evidence.scalar().value();
    if (!evidence.has_tensor() || step.site.op() != "weight" || evidence.call() > 0) continue;
    const auto place = std::pair(item.source->rank(), step.site.layer());
    const v1::TensorState& state = evidence.tensor();
    const auto axes = std::count_if(state.shape().begin(), state.shape().end(),
                                    [](int64_t extent) { return extent > 1; });
    if (state.role() != "weight" || !state.has_sample() || axes < 2) continue;
    const auto sample = DecodeTensor(state);
    if (!sample.ok() || sample->offsets.empty()) continue;
    Open& open = open_[place];
    open.values = sample->values;
    open.which = HashOf(sample->offsets);
    for (const double value : sample->values) open.poisoned |= !std::isfinite(value);
  }
}

void ChangeCourses::Close(const StepEnd& step, VerdictSink& out) {
  std::map<uint32_t, std::pair<std::vector<Way>, uint64_t>> ranks;
  // Changes are divided by the rate only if every weight of the step has one.
  const bool rated = std::all_of(open_.begin(), open_.end(), [](const auto& entry) {
    const Open& open = entry.second;
    return open.values.empty() || (open.rate && *open.rate > 0 && std::isfinite(*open.rate));
  });
  // Compute how far each weight moved since the previous checkpoint.
  for (const auto& [place, open] : open_) {
    if (open.values.empty() || open.poisoned) continue;
    Key key{step.role, place.first, place.second};
    if (!courses_.contains(key) && courses_.size() >= kMostChanges) continue;
    const auto at = courses_.try_emplace(std::move(key)).first;
    ChangeCourse& course = at->second;
    auto& [ways, unchanged] = ranks[place.first];
    if (!course.last.empty() && course.which == open.which) {
      if (const auto ratio = LogRatio(course.last, open.values)) {
        if (course.rated != rated) course.adjacent = 0;
        course.rated = rated;
        ways.push_back(
            {&at->first, &course, *ratio, rated ? *ratio - std::log10(*open.rate) : *ratio});
      } else {
        ++unchanged;
        course.adjacent = 0;
      }
    }
    course.last.assign(open.values.begin(), open.values.end());
    course.which = open.which;
  }
  // Compare weights with those of their own rank.
  for (auto& [rank, of_rank] : ranks)
    CloseRank(step, rank, std::move(of_rank.first), of_rank.second, out);
  for (const auto& [place, open] : open_) {
    const auto at = courses_.find({step.role, place.first, place.second});
    if (at != courses_.end() && !open.values.empty()) at->second.step = step.step;
  }
  open_.clear();
}

void ChangeCourses::CloseRank(const StepEnd& step, uint32_t rank, std::vector<Way> ways,
                              uint64_t unchanged, VerdictSink& out) {
  if (ways.empty()) return;
  ChangesShown& shown = shown_[{step.role, rank}];
  if (shown.intervals == 0) shown.step_first = ways[0].course->step;
  shown.step_last = step.step;
  // Set the values to display.
  std::vector<double> ratios, compared;
  for (const Way& way : ways) {
    ratios.push_back(way.log_ratio);
    compared.push_back(way.compared);
  }
  const auto [low, high] =
      std::minmax_element(ways.begin(), ways.end(),
                          [](const Way& a, const Way& b) { return a.log_ratio < b.log_ratio; });
  shown.weights = ways.size();
  shown.unchanged = unchanged;
  ++shown.intervals;
  shown.median = UpperMedian(ratios);
  shown.low = low->log_ratio;
  shown.high = high->log_ratio;
  shown.lowest = std::get<2>(*low->key);
  shown.highest = std::get<2>(*high->key);
  // Find weights that move differently from the others.
  const double median = UpperMedian(compared);
  for (const Way& way : ways) {
    ChangeCourse& course = *way.course;
    ++course.intervals;
    course.log_ratio = way.log_ratio;
    const double off = way.compared - median;
    const int side = ways.size() < kFewestWeights || !(std::fabs(off) >= kDecades) ? 0
                     : off > 0                                                     ? 1
                                                                                   : -1;
    // Count consecutive intervals on one side. If the side changes, start again.
    if (side == 0 || side != course.side) {
      course.adjacent = 0;
      course.next_to_first = course.step;
    }
    course.side = side;
    course.adjacent += side != 0 ? 1 : 0;
    if (course.adjacent < kIntervals || course.reported) continue;
    course.reported = shown.reported = true;
    v1::Verdict found = Found(way, median, ways.size());
    SetPlace(found, std::get<2>(*way.key), "weight", course.next_to_first, step.step,
             std::vector<uint32_t>{rank});
    out.Add(std::move(found));
  }
}

v1::Verdict ChangeCourses::Found(const Way& way, double median, size_t weights) {
  const ChangeCourse& course = *way.course;
  const double off = way.compared - median;
  const bool small = off < 0;
  return FindingBuilder(v1::LEVEL_NOTE, v1::STRENGTH_HEURISTIC)
      .Title(small ? "a weight changes far less than the other weights of the run"
                   : "a weight changes far more than the other weights of the run")
      .Explain(absl::StrFormat(
          "%s: between checkpoints it changes by 10^%.1f of its norm. In %d consecutive "
          "checkpoints this is 10^%.1f times the median of %d weights%s.",
          std::get<2>(*way.key), way.log_ratio, course.adjacent, off, weights,
          course.rated ? ", each divided by the learning rate of its group" : ""))
      .Cause(small ? "updates-too-small" : "updates-too-large", 0.6)
      .Measured("log10(its change / the median change)", off)
      .Threshold(small ? -kDecades : kDecades, "customary: a thousand times")
      .Fix(
          "Check what scales its gradient or its step: a multiplier per layer, a gradient that is "
          "scaled twice or detached, a wrong initialisation.")
      .Samples(weights)
      .Witness("log10_change_over_weight", way.log_ratio)
      .Take();
}

// Reports the displayed values if there was no finding.
void ChangeCourses::Rest(VerdictSink& out) const {
  for (const auto& [key, shown] : shown_) {
    google::protobuf::Struct details;
    Put(details, "weights", static_cast<double>(shown.weights));
    Put(details, "unchanged", static_cast<double>(shown.unchanged));
    Put(details, "median_log10", shown.median);
    Put(details, "lowest_log10", shown.low);
    Put(details, "lowest", shown.lowest);
    Put(details, "highest_log10", shown.high);
    Put(details, "highest", shown.highest);
    v1::Verdict verdict =
        shown.intervals < kIntervals
            ? Inconclusive(absl::StrCat("few-checkpoints: fewer than ", kIntervals + 1),
                           std::move(details))
        : shown.weights < kFewestWeights
            ? Inconclusive(
                  absl::StrCat("few-weights: fewer than ", kFewestWeights, " to compare with"),
                  std::move(details))
        : shown.reported ? Pass("the other weights change by similar amounts", std::move(details))
                         : Pass("no weight changes a thousand times more or less than the others",
                                std::move(details));
    SetPlace(verdict, "", "weights", shown.step_first, shown.step_last,
             std::vector<uint32_t>{key.second});
    out.Add(std::move(verdict));
  }
}

}  // namespace plumbline::analysis
