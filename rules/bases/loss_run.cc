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

bool IsEpoch(const std::string& op) {
  return op == "epoch" || op == "train/epoch" || op == "train_epoch" || op == "epochs";
}

// The number of classes of the cross-entropy, which run.watch reports once.
bool IsClasses(const std::string& op) { return op == "trained/classes"; }

}  // namespace

bool LossRun::Reads(const v1::Site& site, const SeriesRoles& stated) {
  return IsRead(stated.Of(site.op())) || SideByName(site.op()) != GameSide::kNone ||
         IsEpoch(site.op()) || IsClasses(site.op()) ||
         Companions::KindOf(site.op()) != Companions::Kind::kNone;
}

// Reading a name costs more than judging a point.
LossRun::Known LossRun::Find(const SiteStep& step, const SeriesRoles& stated) {
  Known known{stated.Of(step.site.op()), nullptr};
  const GameSide side = SideByName(step.site.op());
  if (side == GameSide::kScore || side == GameSide::kWideScore) {
    known.score = side;
  } else if (side != GameSide::kNone) {
    sides_.insert(side);
  }
  known.epoch = IsEpoch(step.site.op());
  known.classes = IsClasses(step.site.op());
  if (Companions::KindOf(step.site.op()) != Companions::Kind::kNone)
    known.companion = companions_[step.role].Of(step.site.op());
  known.reference = side == GameSide::kReference;
  if (!IsRead(known.role)) return known;
  known.entry = &*places_.try_emplace({step.role, step.site.layer(), step.site.op()}).first;
  return known;
}

// A share of right answers is within [0, 1], a percentage or the output of a model of rewards
// within [-20, 100]. Any other score is what an episode brought.
void LossRun::TakeScore(GameSide score, double value) {
  const bool wide = score == GameSide::kWideScore;
  if (value < (wide ? -20 : 0) || value > (wide ? 100 : 1)) sides_.insert(GameSide::kEpisodes);
}

// Entries mostly arrive in the order of their keys.
void LossRun::Wait(Entry& entry, const Value& value) {
  entry.second.value = value;
  if (std::exchange(entry.second.waits, true)) return;
  const bool last = waiting_.empty() || waiting_.back()->first < entry.first;
  const auto at =
      last ? waiting_.end()
           : std::lower_bound(waiting_.begin(), waiting_.end(), &entry,
                              [](const Entry* a, const Entry* b) { return a->first < b->first; });
  waiting_.insert(at, &entry);
}

void LossRun::Take(const SiteStep& step, const SeriesRoles& stated) {
  if (step.items.empty() || !step.items.front().evidence->has_scalar()) return;
  const Known known = known_.Of(step, [&] { return Find(step, stated); });
  const bool score = known.score != GameSide::kNone;
  const bool other =
      known.epoch || known.classes || score || known.reference || known.companion != nullptr;
  if (known.entry == nullptr && !other) return;
  const Item* taken = ItemOf(step);
  if (taken == nullptr) return;
  const double number = taken->evidence->scalar().value();
  if (known.companion != nullptr) known.companion->Take(step.step, number);
  if (score) return TakeScore(known.score, number);
  if (known.reference) {
    kl_[step.role] = {step.step, number};
    return;
  }
  if (known.epoch || known.classes) {
    (known.epoch ? epochs_ : classes_)[step.role] = number;
    return;
  }
  if (known.entry != nullptr) Wait(*known.entry, {known.role, taken->source->rank(), number});
}

// Returns the last call of the lowest rank that reports one.
const Item* LossRun::ItemOf(const SiteStep& step) {
  const Item* taken = nullptr;
  for (const Item& item : step.items) {
    if (!item.evidence->has_scalar()) continue;
    if (taken != nullptr && item.source->rank() != taken->source->rank()) break;
    taken = &item;
  }
  return taken;
}

void LossRun::TakeLate(const SiteStep& step, const SeriesRoles& stated) {
  const Known known = Find(step, stated);
  const Item* taken = ItemOf(step);
  if (known.entry == nullptr || known.role == SeriesRole::kRate || taken == nullptr) return;
  const auto series = series_.find(known.entry->first);
  if (series != series_.end() && !series->second.detector.IsNews(step.attempt, step.step)) return;
  if (std::exchange(late_heard_, false)) {
    late_reported_.clear();
    late_touched_.clear();
    ++late_round_;
  }
  const StepEnd end{step.run, step.attempt, step.role, step.step, step.world_size};
  Place& place = known.entry->second;
  place.value = {known.role, taken->source->rank(), taken->evidence->scalar().value()};
  Judge(end, *known.entry, &late_reported_, &late_touched_);
}

bool LossRun::HearLate(uint64_t* heard) {
  late_heard_ = true;
  return std::exchange(*heard, late_round_) != late_round_;
}

const std::vector<LossRun::Reported>& LossRun::Close(const StepEnd& step) {
  const std::tuple key(step.attempt, step.role, step.step);
  if (closed_ == key && waiting_.empty()) return reported_;
  closed_ = key;
  reported_.clear();
  touched_.clear();
  if (waiting_.empty()) return reported_;  // most steps of most runs have no loss
  Moves moves;
  for (Entry* entry : waiting_) {
    Place& place = entry->second;
    if (place.value.role != SeriesRole::kRate) continue;
    if (place.rate == nullptr) place.rate = &rates_[entry->first];
    Add(step, place.value.value, place.rate, &moves);
  }
  ReportRates(step.role, moves);
  for (Entry* entry : waiting_) {
    if (entry->second.value.role != SeriesRole::kRate) Judge(step, *entry, &reported_, &touched_);
    entry->second.waits = false;
  }
  waiting_.clear();
  return reported_;
}

void LossRun::Add(const StepEnd& step, double value, RateWatch* rate, Moves* moves) {
  rates_now_.clear();
  const RateMove move = rate->Take(step.attempt, step.step, value);
  moves->rose |= move.rose;
  moves->back |= move.back;
  if (move.restarted) moves->restarted = &rate->restart();
}

// Reports changes of the rates. They are back to normal when none of them is raised.
void LossRun::ReportRates(v1::Role role, const Moves& moves) {
  if (!moves.rose && moves.restarted == nullptr && !moves.back) return;
  const bool up = std::any_of(rates_.begin(), rates_.end(), [&](const auto& rate) {
    return std::get<0>(rate.first) == role && rate.second.up();
  });
  for (auto& [of, series] : series_) {
    if (std::get<0>(of) != role) continue;
    if (moves.rose) series.detector.RestartRate();
    if (moves.restarted != nullptr) series.detector.FollowRestart(*moves.restarted);
    if (!moves.back || up) continue;
    std::vector<SeriesEvent> events;
    series.detector.RateIsBack(&events);
    Report(series, events, &reported_);
  }
}

size_t LossRun::TakeRows(const ScalarRows& rows, size_t first, const SeriesRoles& stated) {
  const Moment from(rows.end.attempt, rows.end.role, rows.steps[first]);
  if (taken_from_ == from) return taken_;
  // Find the role of each column.
  std::vector<std::pair<const ScalarColumn*, Entry*>> rates, losses;
  const ScalarColumn *epoch = nullptr, *kl = nullptr;
  std::vector<std::pair<const ScalarColumn*, GameSide>> scores;
  std::vector<std::pair<const ScalarColumn*, Companions::Series*>> companions;
  for (const ScalarColumn& column : rows.columns) {
    const Known known = known_.Of(column.any(), [&] { return Find(column.any(), stated); });
    if (known.epoch) epoch = &column;
    if (known.score != GameSide::kNone) scores.emplace_back(&column, known.score);
    if (known.companion != nullptr) companions.emplace_back(&column, known.companion);
    if (known.reference) kl = &column;
    if (known.classes) classes_[rows.end.role] = column.value(first);
    if (known.entry == nullptr) continue;
    const bool rate = known.role == SeriesRole::kRate;
    Place& place = known.entry->second;
    if (rate ? place.rate == nullptr : place.series == nullptr) return 0;
    place.value = {known.role, column.source().rank(), 0};
    (rate ? rates : losses).emplace_back(&column, known.entry);
  }
  // Judge row by row.
  StepEnd step = rows.end;
  size_t row = first;
  for (bool reported = false; row < rows.size() && !reported; ++row) {
    step.step = rows.steps[row];
    if (epoch != nullptr) epochs_[step.role] = epoch->value(row);
    for (const auto& [column, score] : scores) TakeScore(score, column->value(row));
    for (const auto& [column, companion] : companions)
      companion->Take(step.step, column->value(row));
    if (kl != nullptr) kl_[step.role] = {step.step, kl->value(row)};
    reported_.clear();
    touched_.clear();
    Moves moves;
    for (const auto& [column, entry] : rates)
      Add(step, column->value(row), entry->second.rate, &moves);
    ReportRates(step.role, moves);
    for (const auto& [column, entry] : losses) {
      entry->second.value.value = column->value(row);
      Judge(step, *entry, &reported_, &touched_);
      reported |= entry->second.series->LookIsDue();
    }
    reported |= !reported_.empty();
  }
  taken_from_ = from;
  closed_ = {step.attempt, step.role, step.step};
  return taken_ = row - first;
}

const void* LossRun::Mark() {
  static constexpr char kMark = 0;
  return &kMark;
}

// Collects all events except those that apply to norms only.
void LossRun::Report(const LossSeries& series, std::vector<SeriesEvent>& events,
                     std::vector<Reported>* reported) {
  for (SeriesEvent& event : events) {
    if (event.what != SeriesEvent::What::kDoubled) reported->push_back({&series, std::move(event)});
  }
}

void LossRun::Judge(const StepEnd& step, Entry& entry, std::vector<Reported>* reported,
                    std::vector<const LossSeries*>* touched) {
  Place& place = entry.second;
  const Value& value = place.value;
  if (place.series == nullptr) {
    const size_t number = series_.size();
    const auto [known, fresh] = series_.try_emplace(entry.first);
    place.series = &known->second;
    if (fresh) {
      std::tie(known->second.of, known->second.layer, known->second.op) = entry.first;
      known->second.number = number;
      known->second.role = value.role;
      known->second.step_first = step.step;
      NoteWhole(&known->second);
    }
  }
  LossSeries& series = *place.series;
  series.rank = value.rank;
  series.step_first = std::min(series.step_first, step.step);
  series.step_last = std::max(series.step_last, step.step);
  series.CountResume(step.attempt, step.step);
  CountRates(&series);
  const uint64_t points_before = series.detector.points();
  std::vector<SeriesEvent> events;
  series.detector.Take(step.attempt, step.step, value.value, &events);
  KeepTraining(series, points_before);
  if (series.role == SeriesRole::kLoss && std::isfinite(value.value)) {
    series.sum += value.value;
    ++series.summed;
    CountPenalty(step.step, value.value, &series);
  }
  if (series.evaluation()) Compare(value.value, step.step, &series);
  touched->push_back(&series);
  Report(series, events, reported);
}

// Call before a point is judged, for a series that has points.
void LossSeries::CountResume(uint32_t of_attempt, int64_t step) {
  constexpr uint64_t kFew = 3;  // points in which the effect of a resume shows
  if (std::exchange(attempt, of_attempt) != of_attempt && detector.points() > 0) {
    resumed_at = resumed_until = step;
    resumed_points = 1;
  } else if (resumed_points > 0 && resumed_points < kFew) {
    resumed_until = step;
    ++resumed_points;
  }
}

const LossRun::RatesNow& LossRun::RatesOf(v1::Role of) {
  const auto [now, fresh] = rates_now_.try_emplace(of);
  if (!fresh) return now->second;
  for (const auto& [key, rate] : rates_) {
    if (std::get<0>(key) != of) continue;
    now->second.known = true;
    now->second.above |= rate.newest() > 0;
  }
  return now->second;
}

void LossRun::CountRates(LossSeries* series) {
  const RatesNow& now = RatesOf(series->of);
  series->rate_known |= now.known;
  series->rated += now.above ? 1 : 0;
  if (const auto epoch = epochs_.find(series->of); epoch != epochs_.end())
    series->epoch = epoch->second;
  if (const auto classes = classes_.find(series->of); classes != classes_.end())
    series->classes = classes->second;
}

void LossRun::CountPenalty(int64_t step, double value, LossSeries* series) const {
  constexpr double kPrinted = 5e-5;     // rounding of a log with four digits
  constexpr double kMostPenalty = 0.1;  // a loss that is more than a penalty soon exceeds it
  const auto kl = kl_.find(series->of);
  if (kl == kl_.end() || kl->second.first != step) return;
  ++series->next_to_kl;
  const double most = std::min(0.5 * std::fabs(kl->second.second) + kPrinted, kMostPenalty);
  series->under_kl += std::fabs(value) <= most ? 1 : 0;
}

const std::vector<LossRun::Reported>& LossRun::Finish(const RunSummary& run) {
  if (std::exchange(finished_, run.ends + 1) == run.ends + 1) return reported_;
  reported_.clear();
  for (auto& [key, series] : series_) {
    std::vector<SeriesEvent> events;
    series.detector.End(&events);
    Report(series, events, &reported_);
  }
  return reported_;
}

// Stores the waiting values in the old format, without places.
void LossRun::Persist(Archive& a) {
  std::map<Key, Value> waiting;
  for (const Entry* entry : waiting_) waiting.emplace(entry->first, entry->second.value);
  a(series_, rates_, sides_, waiting, closed_, finished_, epochs_, classes_, companions_, kl_);
  if (!a.reading()) return;
  places_.clear();
  waiting_.clear();
  known_ = {};
  taken_from_ = {UINT32_MAX, v1::ROLE_UNSPECIFIED, 0};
  size_t number = 0;
  whole_.clear();
  rates_now_.clear();
  training_.clear();
  for (auto& [key, series] : series_) {
    series.number = number++;
    NoteWhole(&series);
  }
  for (const auto& [key, value] : waiting) Wait(*places_.try_emplace(key).first, value);
}

void SharedLossRun::Take(const SiteStep& step, const SeriesRoles& stated) {
  if (step.cache.Peek<LossRun>() == run_.get()) return;  // an earlier rule took the step
  run_ = step.cache.Get<LossRun>([&] {
    if (step.late) {
      run_->TakeLate(step, stated);
    } else {
      run_->Take(step, stated);
    }
    return run_;
  });
}

}  // namespace plumbline::rules
