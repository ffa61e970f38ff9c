#include "analysis/weights/average_follow.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/sample/sample.h"
#include "base/half.h"

namespace plumbline::analysis {
namespace {

constexpr uint64_t kStillIntervals = 3;
constexpr uint64_t kEqualCheckpoints = 3;
constexpr size_t kMostFollowed = size_t{1} << 16;
constexpr size_t kFewestSampled = 64;
constexpr double kFarAway = 64;  // units in the last place

uint64_t HashOfValues(const std::vector<double>& values) {
  uint64_t state = 0xcbf29ce484222325ULL;
  for (const double value : values)
    state = (state ^ std::bit_cast<uint64_t>(value)) * 0x100000001b3ULL;
  return state;
}

std::string ExplainFollow(const char* what, const std::string& name, int64_t first, int64_t last,
                          size_t others) {
  return absl::StrFormat(
      "%s: the average %s in each checkpoint from step %d to step %d, while the "
      "weight changes; so do the averages of %d other tensors.",
      name, what, first, last, others);
}

v1::Verdict FollowFound(bool equal, const std::string& name, const AverageFollow& follow,
                        uint32_t rank, size_t others) {
  const int64_t first = equal ? follow.step_first : follow.still_first;
  return FindingBuilder(v1::LEVEL_WARNING, v1::STRENGTH_PROVED)
      .Title(equal ? "a moving average is a copy of its weights"
                   : "a moving average is not updated")
      .Explain(ExplainFollow(equal ? "equals its weight" : "has the same bits", name, first,
                             follow.step, others))
      .Cause(equal ? "copied-weights" : "not-updated", 0.9)
      .Measured(equal ? "checkpoints with equal values" : "checkpoints with the same bits",
                static_cast<double>(equal ? follow.equal : follow.still + 1), "checkpoints")
      .Threshold(static_cast<double>(equal ? kEqualCheckpoints : kStillIntervals + 1),
                 "consecutive checkpoints")
      .Fix(equal
               ? "Save the averaged tensors: a state_dict of the model, or a decay of 0, gives the "
                 "weights."
               : "Update the average after each optimizer step, over the parameters that the "
                 "optimizer holds, and save that object.")
      .Samples(equal ? follow.equal : follow.still + 1)
      .At(name, "average", first, follow.step, std::vector<uint32_t>{rank})
      .Take();
}

}  // namespace

void AverageFollows::Take(const SiteStep& step) {
  const bool average = step.site.op() == "average";
  if (!average && step.site.op() != "weight") return;
  for (const Item& item : step.items) {
    const v1::Evidence& evidence = *item.evidence;
    if (!evidence.has_tensor()) continue;
    const uint32_t rank = item.source->rank();
    if (average && step.site.layer().ends_with("n_averaged"))
      counts_[rank] = evidence.tensor().summary().max();
    if (!evidence.tensor().has_sample()) continue;
    const auto place = std::pair(rank, step.site.layer());
    if (!average && !open_.contains(place)) continue;  // sites are sorted by name
    const auto sample = DecodeTensor(evidence.tensor());
    if (!sample.ok() || sample->offsets.size() < kFewestSampled) continue;
    open_[place].Take(average, *sample);
  }
}

bool AverageFollows::AtRest(const StepEnd& step, uint32_t rank) {
  const auto count = counts_.find(rank);
  if (count == counts_.end()) return false;
  const auto [before, is_new] = counters_.try_emplace({step.role, rank}, count->second);
  return is_new || count->second <= before->second || before->second <= 0;
}

void AverageFollows::Close(const StepEnd& step) {
  for (const auto& [place, open] : open_) {
    if (open.weight.empty() || !IsFloating(open.dtype)) continue;
    const Key key{step.role, place.first, place.second};
    if (follows_.size() >= kMostFollowed && !follows_.contains(key)) continue;
    AverageFollow& follow = follows_[key];
    size_t equal = 0, far = 0, finite = 0;
    for (size_t i = 0; i < open.average.size(); ++i) {
      const double gap = std::fabs(open.average[i] - open.weight[i]);
      finite += std::isfinite(gap) ? 1 : 0;
      equal += gap == 0 ? 1 : 0;
      far += gap > kFarAway * UlpOf(open.average[i], open.dtype) ? 1 : 0;
    }
    const uint64_t average = HashOfValues(open.average), weight = HashOfValues(open.weight);
    const bool first = follow.checkpoints++ == 0;
    if (first) follow.step_first = step.step;
    const bool usable = finite == open.average.size();
    const bool moved = !first && weight != follow.weight;
    const bool wide = open.dtype == DType::kF32 || open.dtype == DType::kF64;
    const bool still = usable && moved && average == follow.average && 2 * far >= finite && wide &&
                       !AtRest(step, place.first);
    const bool rests = usable && !first && !moved && average == follow.average;
    if (!still && !rests) {
      // An average that is updated every k steps stands for a while, and moves again.
      if (average != follow.average) follow.longest = std::max(follow.longest, follow.still);
      follow.still = 0;
      follow.still_first = step.step;
    }
    follow.still += still ? 1 : 0;
    // Equal from the first checkpoint on, with another content in each.
    const auto count = counts_.find(place.first);
    const bool begun = count == counts_.end() || count->second > 1;
    const bool copy = usable && begun && equal == finite && (first || moved) &&
                      follow.equal + 1 == follow.checkpoints;
    follow.equal = copy ? follow.equal + 1 : 0;
    follow.average = average;
    follow.weight = weight;
    follow.step = step.step;
  }
  for (const auto& [rank, count] : counts_) counters_[{step.role, rank}] = count;
  open_.clear();
  counts_.clear();
}

// Reports averages that stand, or are copies of their weights, to the end. Before its first update,
// an average may do so, too.
void AverageFollows::Rest(VerdictSink& out) const {
  using Averages = std::vector<std::pair<const std::string*, const AverageFollow*>>;
  std::map<std::pair<bool, uint32_t>, Averages> found;  // by kind (equal) and rank
  for (const auto& [key, follow] : follows_) {
    const std::pair<const std::string*, const AverageFollow*> one{&std::get<2>(key), &follow};
    if (follow.equal >= kEqualCheckpoints) found[{true, std::get<1>(key)}].push_back(one);
    if (follow.still >= kStillIntervals && follow.still > follow.longest)
      found[{false, std::get<1>(key)}].push_back(one);
  }
  for (const auto& [place, averages] : found) {
    out.Add(FollowFound(place.first, *averages[0].first, *averages[0].second, place.second,
                        averages.size() - 1));
  }
}

}  // namespace plumbline::analysis
