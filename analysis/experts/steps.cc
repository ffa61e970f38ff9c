#include "analysis/experts/steps.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <set>

#include "base/real.h"
#include "base/router/scores.h"

namespace plumbline::analysis {
namespace {

template <typename Counts>
uint64_t SumOfCounts(const Counts& counts) {
  return std::accumulate(counts.begin(), counts.end(), uint64_t{0});
}

// Counts come from other processes. If they do not add up, they are not used.
bool Readable(const v1::Routing& routing) {
  const v1::RoutingSummary& s = routing.summary();
  const int experts = s.load_size();
  if (!routing.has_summary() || experts < 1 || experts > kMaxExperts) return false;
  if (s.refused_size() != 0 && s.refused_size() != experts) return false;
  if (SumOfCounts(s.refused()) != s.dropped() || s.dropped() > s.choices()) return false;
  if (s.choices() > std::numeric_limits<uint32_t>::max()) return false;
  const uint64_t made = SumOfCounts(s.load()) + s.dropped();
  return made >= s.choices() && (s.padding() > 0 || made == s.choices());
}

// If two ranks have the same tokens, their means agree to the last bit; otherwise they do not.
using Signature = std::tuple<uint32_t, uint64_t, double, double, std::vector<uint32_t>>;

Signature SignatureOf(const v1::Evidence& evidence) {
  const v1::RoutingSummary& s = evidence.routing().summary();
  return {evidence.call(), s.choices(), s.margin_mean(), s.entropy_mean(),
          std::vector<uint32_t>(s.load().begin(), s.load().end())};
}

// Sums one layer's loads of a step over its ranks and calls. If a call cannot be read, or is
// recorded twice (ranks of a tensor-parallel group route the same tokens), it is a gap and not a
// load.
class Joiner {
 public:
  explicit Joiner(MixtureKey key) : joined_{std::move(key), nullptr, {}} {}

  void Add(const Item& item, int64_t step) {
    const v1::Evidence& evidence = *item.evidence;
    if (!Readable(evidence.routing()) || (has_step_ && evidence.routing().summary().load_size() !=
                                                           static_cast<int>(wanted_.size()))) {
      ++joined_.gaps.unreadable;
      return;
    }
    const v1::RoutingSummary& s = evidence.routing().summary();
    if (std::isfinite(s.margin_mean()) && std::isfinite(s.entropy_mean())) {
      const auto [found, fresh] = seen_.try_emplace(SignatureOf(evidence), item.source->rank());
      if (!fresh && found->second != item.source->rank()) {
        ++joined_.gaps.repeated;
        return;
      }
    }
    Count(s, step);
  }

  // Returns the step. If no call could be read, or if a sum exceeds its field, returns no step.
  JoinedMixture Finish() {
    if (!has_step_) return std::move(joined_);
    const auto fits = [](const std::vector<uint64_t>& v) {
      return std::all_of(v.begin(), v.end(),
                         [](uint64_t n) { return n <= std::numeric_limits<uint32_t>::max(); });
    };
    if (!fits(wanted_)) {
      ++joined_.gaps.unreadable;
      return std::move(joined_);
    }
    step_.wanted.assign(wanted_.begin(), wanted_.end());
    if (kept_ != wanted_) step_.kept.assign(kept_.begin(), kept_.end());
    step_.entropy = entropy_rows_ > 0 ? entropy_ / entropy_rows_ : kNaN;
    joined_.step = std::make_shared<const MixtureStep>(std::move(step_));
    return std::move(joined_);
  }

 private:
  void Count(const v1::RoutingSummary& s, int64_t step) {
    has_step_ = true;
    step_.step = step;
    const auto experts = static_cast<size_t>(s.load_size());
    wanted_.resize(experts);
    kept_.resize(experts);
    for (size_t e = 0; e < experts; ++e) {
      const auto at = static_cast<int>(e);
      kept_[e] += s.load(at);
      wanted_[e] += s.load(at) + (s.refused_size() > 0 ? s.refused(at) : 0u);
    }
    step_.choices += s.choices();
    step_.dropped += s.dropped();
    step_.padding_choices += SumOfCounts(s.load()) + s.dropped() - s.choices();
    // A non-finite mean is ignored, and does not affect the other calls.
    const uint64_t adjacent = s.padding() + s.non_finite();
    if (std::isfinite(s.entropy_mean()) && s.tokens() > adjacent) {
      const auto rows = static_cast<double>(s.tokens() - adjacent);
      entropy_ += s.entropy_mean() * rows;
      entropy_rows_ += rows;
    }
    if (s.dropped() > 0) CountPositions(s);
  }

  // Counts the positions of refused choices in their sequences. If one call has none, the step has
  // none.
  void CountPositions(const v1::RoutingSummary& s) {
    if (s.drop_histogram_size() != kPositionBins || s.offered_histogram_size() != kPositionBins) {
      step_.positions = false;
      return;
    }
    for (size_t b = 0; b < kPositionBins; ++b) {
      const auto at = static_cast<int>(b);
      if (s.drop_histogram(at) > s.offered_histogram(at)) step_.positions = false;
      step_.refused[b] += s.drop_histogram(at);
      step_.offered[b] += s.offered_histogram(at);
    }
  }

  JoinedMixture joined_;
  MixtureStep step_;
  bool has_step_ = false;
  std::vector<uint64_t> wanted_;
  std::vector<uint64_t> kept_;
  double entropy_ = 0;
  double entropy_rows_ = 0;
  std::map<Signature, uint32_t> seen_;  // rank on which it was first seen
};

std::vector<JoinedMixture> JoinMixtures(const SiteStep& step) {
  std::map<bool, Joiner> joiners;  // by whether it is an evaluation
  const std::string op = step.site.op() == kLoadsOp ? kRoutingOp : step.site.op();
  for (const Item& item : step.items) {
    if (!item.evidence->has_routing()) continue;
    const bool evaluation = item.evidence->routing().config().mode() == "eval";
    const auto at =
        joiners.try_emplace(evaluation, MixtureKey{step.role, step.site.layer(), op, evaluation});
    at.first->second.Add(item, step.step);
  }
  std::vector<JoinedMixture> joined;
  for (auto& [evaluation, joiner] : joiners) joined.push_back(joiner.Finish());
  return joined;
}

}  // namespace

// Fits a line through the bins' shares, each weighted by its choices.
double MixtureStep::SlopePoints() const {
  if (dropped == 0) return 0;
  if (!positions) return kNaN;
  double weight = 0;
  double mean_x = 0;
  double mean_y = 0;
  for (size_t b = 0; b < kPositionBins; ++b) {
    weight += static_cast<double>(offered[b]);
    mean_x += static_cast<double>(b) * static_cast<double>(offered[b]);
    mean_y += static_cast<double>(refused[b]);
  }
  if (!(weight > 0)) return kNaN;
  mean_x /= weight;
  mean_y /= weight;
  double cross = 0;
  double spread = 0;
  for (size_t b = 0; b < kPositionBins; ++b) {
    const auto n = static_cast<double>(offered[b]);
    if (n == 0) continue;
    const double x = static_cast<double>(b) - mean_x;
    cross += n * x * (static_cast<double>(refused[b]) / n - mean_y);
    spread += n * x * x;
  }
  return spread > 0 ? 100 * (kPositionBins - 1) * cross / spread : kNaN;
}

double MixtureStep::LargestOverMean() const {
  const uint64_t total = SumOfCounts(wanted);
  if (total == 0) return kNaN;
  return static_cast<double>(*std::max_element(wanted.begin(), wanted.end())) *
         static_cast<double>(experts()) / static_cast<double>(total);
}

std::shared_ptr<const std::vector<JoinedMixture>> JoinMixture(const SiteStep& step) {
  using List = const std::vector<JoinedMixture>;
  return step.cache.Get<List>([&] { return std::make_shared<List>(JoinMixtures(step)); });
}

void MixtureWindow::Take(uint32_t attempt, std::shared_ptr<const MixtureStep> step) {
  if (attempt != attempt_) {  // if a restart repeats steps, its values replace the old ones
    while (!steps_.empty() && steps_.back()->step >= step->step) {
      Add(*steps_.back(), false);
      steps_.pop_back();
    }
    attempt_ = attempt;
  }
  if (step->experts() != wanted_.size()) {
    *this = MixtureWindow(size_);
    attempt_ = attempt;
    wanted_.assign(step->experts(), 0);
    kept_.assign(step->experts(), 0);
  }
  if (full()) {
    Add(*steps_.front(), false);
    steps_.pop_front();
  }
  Add(*step, true);
  steps_.push_back(std::move(step));
  ++taken_;
}

bool MixtureWindow::Spread() const {
  const int64_t steps = span();
  if (steps < static_cast<int64_t>(size_)) return false;
  size_t seen[4] = {};
  for (const auto& step : steps_) ++seen[(step->step - steps_.front()->step) * 4 / steps];
  return 2 * *std::max_element(seen, seen + 4) <= steps_.size();
}

bool MixtureWindow::enough_of_all() const {
  constexpr ptrdiff_t kLater = 3;
  if (steps_.size() < kFewestOfAll || span() < static_cast<int64_t>(size_)) return false;
  const int64_t quarter = steps_.front()->step + span() / 4;
  return std::count_if(steps_.begin(), steps_.end(),
                       [&](const auto& step) { return step->step >= quarter; }) >= kLater;
}

// Adds a step or removes it: integer sums return to the exact value.
void MixtureWindow::Add(const MixtureStep& step, bool add) {
  const auto count = [add](uint64_t& sum, uint64_t n) { sum = add ? sum + n : sum - n; };
  for (size_t e = 0; e < wanted_.size(); ++e) {
    count(wanted_[e], step.wanted[e]);
    count(kept_[e], step.kept_of(e));
  }
  count(choices_, step.choices);
  count(dropped_, step.dropped);
  count(padding_choices_, step.padding_choices);
}

}  // namespace plumbline::analysis
