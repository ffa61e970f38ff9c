#include "analysis/routing/train_infer/runs.h"

#include <algorithm>
#include <optional>

namespace plumbline::analysis {
namespace {

constexpr size_t kMaxBytes = 64u << 20;

// The process of a dump has neither a host nor a number.
bool FromDump(const v1::Source& source) { return source.pid() == 0 && source.host().empty(); }

}  // namespace

LayerSite SiteOf(const v1::Site& site) {
  constexpr int64_t kMost = 1'000'000'000;
  LayerSite out{site.layer(), site.op(), -1};
  for (char c : out.layer) {
    const bool digit = c >= '0' && c <= '9';
    if (!digit && out.number >= 0) break;
    if (digit) out.number = std::min(kMost, std::max<int64_t>(out.number, 0) * 10 + (c - '0'));
  }
  return out;
}

TrainInferRuns::Side TrainInferRuns::SideOf(const Item& item) {
  const bool inference =
      item.source->role() == v1::ROLE_ROLLOUT || item.evidence->routing().config().mode() == "eval";
  return inference ? kInfer : kTrain;
}

std::vector<ComparedStep> TrainInferRuns::Take(const SiteStep& step) {
  std::vector<ComparedStep> done;
  // The role that completed a step has moved past it, so no further layer will arrive.
  for (auto at = compared_.begin(); at != compared_.end() && at->first < step.step;) {
    if (at->second.completed_by != step.role) {
      ++at;
      continue;
    }
    done.push_back(std::move(at->second.step));
    at = compared_.erase(at);
  }
  std::optional<RoutedSide> sides[2];
  for (const Item& item : step.items) {
    if (!item.evidence->has_routing()) continue;
    const Side side = SideOf(item);
    seen_[side] = true;
    if (!item.evidence->routing().has_sample()) continue;
    if (!sides[side].has_value()) sides[side].emplace();
    sides[side]->Add(item.evidence->routing(), FromDump(*item.source), tokens_,
                     item.evidence->redacted_key());
  }
  const LayerSite site = SiteOf(step.site);
  for (auto& side : sides) {
    if (side.has_value()) side->Finish(tokens_);
  }
  if (sides[kTrain].has_value() && sides[kInfer].has_value()) {
    Compare(step.step, site, step.role, *sides[kTrain], *sides[kInfer]);
    return done;
  }
  for (const Side side : {kTrain, kInfer}) {
    if (sides[side].has_value()) Meet(step.step, site, step.role, side, std::move(*sides[side]));
  }
  return done;
}

// If an earlier attempt's step still waits, a later attempt's step replaces it.
void TrainInferRuns::Meet(int64_t step, const LayerSite& site, v1::Role role, Side side,
                          RoutedSide content) {
  const auto key = std::make_pair(step, site);
  const auto found = waiting_.find(key);
  if (found != waiting_.end() && found->second.side != side) {
    const RoutedSide& other = found->second.content;
    Compare(step, site, role, side == kTrain ? content : other, side == kTrain ? other : content);
  }
  if (found != waiting_.end()) {
    bytes_ -= found->second.content.bytes();
    const bool met = found->second.side != side;
    waiting_.erase(found);
    if (met) return;
  }
  content.tokens.shrink_to_fit();
  bytes_ += content.bytes();
  waiting_.emplace(key, Waiting{side, std::move(content)});
  while (bytes_ > kMaxBytes && waiting_.size() > 1) GiveUpOldest();
}

void TrainInferRuns::GiveUpOldest() {
  bytes_ -= waiting_.begin()->second.content.bytes();
  waiting_.erase(waiting_.begin());
  ++given_up_;
}

void TrainInferRuns::Compare(int64_t step, const LayerSite& site, v1::Role role,
                             const RoutedSide& train, const RoutedSide& infer) {
  Compared& compared = compared_[step];
  compared.completed_by = role;
  compared.step.step = step;
  compared.step.layers.insert_or_assign(site, CompareRouting(train, infer, factor_));
}

std::vector<ComparedStep> TrainInferRuns::Finish() {
  std::vector<ComparedStep> done;
  for (auto& [step, compared] : compared_) done.push_back(std::move(compared.step));
  compared_.clear();
  return done;
}

std::map<LayerSite, TrainInferRuns::Steps> TrainInferRuns::Unmatched() const {
  std::map<LayerSite, Steps> layers;
  for (const auto& [key, waiting] : waiting_) {
    const auto [at, fresh] = layers.try_emplace(key.second);
    Steps& steps = at->second;
    ++steps.count;
    steps.first = fresh ? key.first : std::min(steps.first, key.first);
    steps.last = fresh ? key.first : std::max(steps.last, key.first);
  }
  return layers;
}

}  // namespace plumbline::analysis
