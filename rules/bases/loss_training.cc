// LossRun: which of a run's losses is the one that is trained, and which may rise.
#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "rules/bases/loss_run.h"

namespace plumbline::rules {

namespace {

// Ranks a series as the training loss: a part counts only if there is no other; then the series
// with most points.
std::pair<int, uint64_t> RankAsTraining(const LossSeries& series) {
  return {static_cast<int>(series.share), series.detector.points()};
}

}  // namespace

// Compares an evaluation with the training loss.
void LossRun::Compare(double value, int64_t step, LossSeries* series) {
  const LossSeries* training = Training(series->of);
  double since = NAN;
  if (training != nullptr && training->summed > series->summed) {
    since = (training->sum - series->sum) / static_cast<double>(training->summed - series->summed);
    series->sum = training->sum;
    series->summed = training->summed;
  }
  series->overfit.Take(step, value, since);
  series->training = training == nullptr ? NAN : training->detector.level();
  // If the history started again, there is no best block yet, so the previous one is kept.
  const uint64_t best_at = series->detector.best_at();
  if (best_at == 0 || best_at == series->best_at) return;
  series->best_at = best_at;
  series->training_at_best = series->training;
}

// A discriminator or a generator has an opponent, whatever the name of its loss.
bool LossRun::IsGame() const {
  return sides_.size() >= 2 || sides_.contains(GameSide::kEpisodes) ||
         sides_.contains(GameSide::kDiscriminator) || sides_.contains(GameSide::kGenerator) ||
         HasActorAndCritic();
}

// Returns true if there are losses of an actor and a critic by one letter: "loss_a" and "loss_c",
// without "loss_b" or "loss_d" (of four tasks).
bool LossRun::HasActorAndCritic() const {
  constexpr size_t kMostSeries = 16;
  if (series_.size() > kMostSeries) return false;
  std::set<std::string> letters;
  for (const auto& [key, series] : series_) {
    if (series.role != SeriesRole::kLoss) continue;
    for (const std::string& word : PlainWordsOf(series.op)) {
      if (word.size() == 1) letters.insert(word);
    }
  }
  return letters == std::set<std::string>{"a", "c"};
}

bool LossRun::MayRise(const LossSeries& series, const SeriesRoles& roles) const {
  if (series.role != SeriesRole::kLoss || roles.stated().contains(series.op)) return false;
  if (IsGame() || series.is_penalty()) return true;
  if (series.share == LossSeries::Share::kWhole) return false;
  const auto whole = whole_.find(series.of);
  return (whole != whole_.end() && series.share < whole->second) || AnotherFalls(series);
}

// Without a loss that is the whole by its name, each is a part of a sum that is not recorded.
bool LossRun::AnotherFalls(const LossSeries& series) const {
  return std::any_of(series_.begin(), series_.end(), [&](const auto& other) {
    return &other.second != &series && other.second.of == series.of &&
           other.second.role == SeriesRole::kLoss && other.second.detector.LookForFall().stays;
  });
}

bool LossRun::TrainingFellSince(const LossSeries& series, int64_t step) const {
  return std::any_of(series_.begin(), series_.end(), [&](const auto& other) {
    return other.second.of == series.of && other.second.role == SeriesRole::kLoss &&
           ImprovedSince(other.second.detector.course(), -1, step, series.step_last, false);
  });
}

std::optional<std::pair<std::string, ScheduleRestart>> LossRun::RateJumped(v1::Role of,
                                                                           int64_t step,
                                                                           double within) const {
  std::optional<std::pair<std::string, ScheduleRestart>> found;
  for (const auto& [key, rate] : rates_) {
    const ScheduleRestart& jump = rate.jump();
    const bool near = std::fabs(static_cast<double>(jump.step - step)) <= within;
    if (std::get<0>(key) != of || !(jump.from > 0) || !near) continue;
    if (!found || jump.to / jump.from > found->second.to / found->second.from)
      found = {std::get<2>(key), jump};
  }
  return found;
}

const LossSeries* LossRun::EvaluationImproved(const LossSeries& series, int64_t onset) const {
  for (const auto& [key, other] : series_) {
    if (other.of == series.of && other.evaluation() &&
        ImprovedSince(other.detector.course(), -1, onset, series.step_last))
      return &other;
  }
  return nullptr;
}

void LossRun::NoteWhole(LossSeries* series) {
  series->share = MayBePart(series->op)     ? LossSeries::Share::kPart
                  : IsWholeLoss(series->op) ? LossSeries::Share::kWhole
                                            : LossSeries::Share::kEither;
  if (series->role != SeriesRole::kLoss) return;
  LossSeries::Share& most = whole_[series->of];
  most = std::max(most, series->share);
}

// Returns the training loss with most points. A part is used only if there is no other.
const LossSeries* LossRun::Training(v1::Role of) {
  const auto [found, fresh] = training_.try_emplace(of, nullptr);
  if (!fresh) return found->second;
  for (const auto& [key, series] : series_) {
    if (series.of != of || series.role != SeriesRole::kLoss) continue;
    if (found->second == nullptr || RankAsTraining(series) > RankAsTraining(*found->second))
      found->second = &series;
  }
  return found->second;
}

// Updates the training loss after a series got a point, or lost points at a resume.
void LossRun::KeepTraining(const LossSeries& series, uint64_t points_before) {
  const auto known = training_.find(series.of);
  if (known == training_.end() || series.role != SeriesRole::kLoss) return;
  const LossSeries*& best = known->second;
  if (best == &series) {
    if (series.detector.points() < points_before) training_.erase(known);
    return;
  }
  // If two are equal, the first by name is used.
  const auto name_of = [](const LossSeries& it) { return std::tie(it.layer, it.op); };
  const bool better =
      best == nullptr || RankAsTraining(series) > RankAsTraining(*best) ||
      (RankAsTraining(series) == RankAsTraining(*best) && name_of(series) < name_of(*best));
  if (better) best = &series;
}

}  // namespace plumbline::rules
