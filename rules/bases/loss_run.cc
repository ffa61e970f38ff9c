#include "rules/bases/loss_run.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace plumbline::rules {

namespace {

bool IsRead(SeriesRole role) {
  return role == SeriesRole::kLoss || role == SeriesRole::kEvaluationLoss ||
         role == SeriesRole::kRate;
}

}  // namespace

bool LossRun::Reads(const v1::Site& site, const SeriesRoles& said) {
  return IsRead(said.Of(site.op()));
}

// To read a name costs more than to judge a point.
SeriesRole LossRun::RoleOf(const std::string& name, const SeriesRoles& said) {
  constexpr size_t kMost = 4096;
  if (roles_.size() > kMost) roles_.clear();
  const auto [entry, fresh] = roles_.try_emplace(name, SeriesRole::kNone);
  if (fresh) entry->second = said.Of(name);
  return entry->second;
}

void LossRun::Take(const SiteStep& step, const SeriesRoles& said) {
  if (step.items.empty() || !step.items.front().evidence->has_scalar()) return;
  const SeriesRole role = RoleOf(step.site.op(), said);
  if (!IsRead(role)) return;
  const Item* taken = nullptr;
  for (const Item& item : step.items) {
    if (!item.evidence->has_scalar()) continue;
    if (taken != nullptr && item.source->rank() != taken->source->rank()) break;
    taken = &item;
  }
  if (taken == nullptr) return;
  waiting_[{step.role, step.site.layer(), step.site.op()}] = {role, taken->source->rank(),
                                                              taken->evidence->scalar().value()};
}

const std::vector<LossRun::Told>& LossRun::Close(const StepEnd& step) {
  const std::tuple key(step.attempt, step.role, step.step);
  if (closed_ == key && waiting_.empty()) return told_;
  closed_ = key;
  told_.clear();
  touched_.clear();
  if (waiting_.empty()) return told_;  // most steps of most runs tell no loss
  const std::map<Key, Value> values = std::exchange(waiting_, {});
  bool restarts = false;
  for (const auto& [of, value] : values) {
    if (value.role == SeriesRole::kRate) restarts |= rates_[of].Restarts(value.value);
  }
  for (auto& [of, series] : series_) {
    if (restarts && std::get<0>(of) == step.role) series.detector.RestartRate();
  }
  for (const auto& [of, value] : values) {
    if (value.role != SeriesRole::kRate) Judge(step, of, value);
  }
  return told_;
}

void LossRun::Judge(const StepEnd& step, const Key& key, const Value& value) {
  const auto [entry, fresh] = series_.try_emplace(key);
  LossSeries& series = entry->second;
  if (fresh) {
    std::tie(series.of, series.layer, series.op) = key;
    series.role = value.role;
    series.step_first = step.step;
  }
  series.rank = value.rank;
  series.step_first = std::min(series.step_first, step.step);
  series.step_last = std::max(series.step_last, step.step);
  series.attempt = step.attempt;
  series.rate_known |= std::any_of(rates_.begin(), rates_.end(), [&](const auto& rate) {
    return std::get<0>(rate.first) == series.of;
  });
  std::vector<SeriesEvent> events;
  series.detector.Take(step.attempt, step.step, value.value, &events);
  if (series.evaluation()) Compare(value.value, step.step, &series);
  touched_.push_back(&series);
  for (SeriesEvent& event : events) told_.push_back({&series, std::move(event)});
}

// An evaluation beside the training loss.
void LossRun::Compare(double value, int64_t step, LossSeries* series) {
  if (std::isfinite(value)) series->newest.push_back(value);
  if (series->newest.size() > LossSeries::kNewest) series->newest.pop_front();
  const double level = series->detector.value(series->detector.level());
  if (level < series->lowest) {
    series->lowest = level;
    series->lowest_step = step;
  }
  const LossSeries* training = Training(series->of);
  series->training = training == nullptr ? NAN : training->detector.level();
  // A history that began anew has no best block yet: the one before counts.
  const uint64_t best_at = series->detector.best_at();
  if (best_at == 0 || best_at == series->best_at) return;
  series->best_at = best_at;
  series->training_at_best = series->training;
}

// The one with most points.
const LossSeries* LossRun::Training(v1::Role of) const {
  const LossSeries* found = nullptr;
  for (const auto& [key, series] : series_) {
    if (series.of != of || series.role != SeriesRole::kLoss) continue;
    if (found == nullptr || series.detector.points() > found->detector.points()) found = &series;
  }
  return found;
}

const std::vector<LossRun::Told>& LossRun::Finish() {
  if (finished_) return told_;
  finished_ = true;
  told_.clear();
  for (auto& [key, series] : series_) {
    std::vector<SeriesEvent> events;
    series.detector.End(&events);
    for (SeriesEvent& event : events) told_.push_back({&series, std::move(event)});
  }
  return told_;
}

void SharedLossRun::Take(const SiteStep& step, const SeriesRoles& said) {
  run_ = step.cache.Get<LossRun>([&] {
    run_->Take(step, said);
    return run_;
  });
}

}  // namespace plumbline::rules
