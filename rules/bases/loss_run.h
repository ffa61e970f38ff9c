// The losses of a run, each judged once for all rules on losses.
//
// A series has a role of processes (v1::Role), a layer and a name. If several ranks report it, it
// is one series: in each step the last value of the lowest rank counts. Values wait until their
// step closes, so that the rate of the same step is known first.
#pragma once

#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "analysis/frame/frame.h"
#include "analysis/series/series.h"
#include "base/archive.h"
#include "rules/analysis_names.h"
#include "rules/bases/companions.h"

namespace plumbline::rules {

struct LossSeries {
  v1::Role of = v1::ROLE_UNSPECIFIED;
  std::string layer, op;
  SeriesRole role = SeriesRole::kNone;
  SeriesDetector detector;
  uint32_t rank = 0;  // rank of the newest value
  int64_t step_first = 0, step_last = 0;
  bool rate_known = false;  // some rate was reported along with it
  // For an evaluation: the training loss's level when the best block was found (NaN if not known),
  // and the current one.
  uint64_t best_at = 0;
  double training_at_best = NAN, training = NAN;
  uint32_t attempt = 0;  // of its newest point
  // For a resume: its first step and its third (the newest one, while there are fewer). If there
  // was none, 0 points.
  int64_t resumed_at = 0, resumed_until = 0;
  uint64_t resumed_points = 0;
  OverfitWatch overfit;  // for an evaluation
  // For a training loss: the sum of its values. For an evaluation: that sum at the previous
  // evaluation.
  double sum = 0;
  uint64_t summed = 0;
  // Number of points with a rate above 0; the newest value of a logged epoch.
  uint64_t rated = 0;
  double epoch = NAN;
  double classes = NAN;  // number of classes of the cross-entropy, as run.watch found them

  // True if a rule may judge it now (LossRule::Look).
  bool LookIsDue() const {
    return evaluation() ? overfit.IsDue() : detector.StallIsDue() || detector.EndIsDue();
  }
  bool AtResume(int64_t onset) const {
    return resumed_points > 0 && onset >= resumed_at && onset <= resumed_until;
  }
  void CountResume(uint32_t of_attempt, int64_t step);
  bool evaluation() const { return role == SeriesRole::kEvaluationLoss; }
  // True if the training loss fell since then, or is not known.
  bool training_falls() const { return !(training >= training_at_best); }

  // For a training loss: points next to a KL to the reference, and those at most half of that KL.
  uint64_t next_to_kl = 0, under_kl = 0;
  // True if the loss is the penalty of a policy, β times the KL, which begins at 0 and rises. The
  // loss of an autoencoder contains more than its KL.
  bool is_penalty() const {
    constexpr uint64_t kFewest = 16;  // points
    return next_to_kl >= kFewest && 10 * under_kl >= 9 * next_to_kl;
  }

  size_t number = 0;  // its number in the run
  // By its name: "l1_loss" (MayBePart), "depth_loss", "train/loss" (IsWholeLoss). It is a part of
  // the loss if a series of a larger share is recorded.
  enum class Share : uint8_t { kPart, kEither, kWhole };
  Share share = Share::kPart;

  // number and share are recomputed.
  void Persist(Archive& a) {
    a(of, layer, op, role, detector, rank, step_first, step_last, rate_known, best_at,
      training_at_best, training, attempt, resumed_at, resumed_until, resumed_points, overfit, sum,
      summed, rated, epoch, classes, next_to_kl, under_kl);
  }
};

class LossRun {
 public:
  using Key = std::tuple<v1::Role, std::string, std::string>;  // of, layer, op
  struct Reported {
    const LossSeries* series = nullptr;
    SeriesEvent event;
  };

  // `stated` has the roles that the user assigned by name. It must be the same in each call.
  static bool Reads(const v1::Site& site, const SeriesRoles& stated);
  void Take(const SiteStep& step, const SeriesRoles& stated);
  // Returns the events of the step's values. Computed once per step; later callers get the same.
  const std::vector<Reported>& Close(const StepEnd& step);
  // Does what Take and Close do for the rows from `first` on, up to a row with an event or after
  // which a stall may be tested. Returns the number of rows, the same for each caller. If it is 0,
  // the next row must be taken individually. reported() and touched() belong to the last row.
  size_t TakeRows(const ScalarRows& rows, size_t first, const SeriesRoles& stated);
  const std::vector<Reported>& reported() const { return reported_; }
  // Mark of the rules that share a run.
  static const void* Mark();
  // Takes a step that is already closed (an evaluation that ended long after its step). If the
  // point is its series' newest, it is judged with the current rates and training loss. Other
  // points are ignored, because a series' points are judged in order.
  void TakeLate(const SiteStep& step, const SeriesRoles& stated);
  // Returns false if no such point arrived since the call that set `heard`. If it returns true,
  // late_reported and late_touched have what arrived.
  bool HearLate(uint64_t* heard);
  const std::vector<Reported>& late_reported() const { return late_reported_; }
  const std::vector<const LossSeries*>& late_touched() const { return late_touched_; }
  // Settles what is open at the run's end: computed once per end, later callers get the same.
  const std::vector<Reported>& Finish(const RunSummary& run);
  // Returns the series that got a point in the last Close.
  const std::vector<const LossSeries*>& touched() const { return touched_; }
  const std::map<Key, LossSeries>& series() const { return series_; }
  // Returns true if a training loss may rise in a healthy run: the sum of a game whose sides have
  // their own series; a part by its name if there is another training loss (LossSeries::Share); one
  // of several losses, none of which is the whole by its name, if another one falls to the end. A
  // role that the user assigned takes precedence. So may a policy's penalty (is_penalty).
  bool MayRise(const LossSeries& series, const SeriesRoles& stated) const;
  // Returns true if another training loss of the same processes falls to its end.
  bool AnotherFalls(const LossSeries& series) const;
  // Returns true if a training loss of the same processes falls from a step to its end.
  bool TrainingFellSince(const LossSeries& series, int64_t step) const;
  // Returns true if a reward of episodes or a metric of rollouts is recorded.
  // Or an actor and a critic are (HasActorAndCritic).
  bool IsPolicy() const { return sides_.contains(GameSide::kEpisodes) || HasActorAndCritic(); }

  // By the role of processes.
  const std::map<v1::Role, Companions>& companions() const { return companions_; }
  // Returns the name of the rate that jumped within `within` steps of a step, by the largest
  // factor, and the jump.
  std::optional<std::pair<std::string, ScheduleRestart>> RateJumped(v1::Role of, int64_t step,
                                                                    double within) const;
  // Returns the evaluation that has improved since a step up to its end (ImprovedSince).
  const LossSeries* EvaluationImproved(const LossSeries& series, int64_t onset) const;

  // Not stored: reported_, touched_, late_reported_, late_touched_, late_round_ and late_heard_
  // belong to one call, taken_ and taken_from_ to one batch. places_, known_, whole_, rates_now_
  // and training_ are recomputed.
  void Persist(Archive& a);

 private:
  struct Value {
    SeriesRole role = SeriesRole::kNone;
    uint32_t rank = 0;
    double value = 0;
    void Persist(Archive& a) { a(role, rank, value); }
  };
  // A series, or a rate, with its cached lookup.
  struct Place {
    Value value;         // in the current step
    bool waits = false;  // a value waits
    LossSeries* series = nullptr;
    RateWatch* rate = nullptr;
  };
  using Entry = std::map<Key, Place>::value_type;
  struct Known {
    SeriesRole role = SeriesRole::kNone;
    Entry* entry = nullptr;            // nullptr if its role is not read
    bool epoch = false;                // it is the number of the epoch
    bool classes = false;              // it is the number of classes of the cross-entropy
    GameSide score = GameSide::kNone;  // kScore or kWideScore
    Companions::Series* companion = nullptr;
    bool reference = false;  // GameSide::kReference
  };
  Known Find(const SiteStep& step, const SeriesRoles& stated);
  void Wait(Entry& entry, const Value& value);
  void TakeScore(GameSide score, double value);
  struct Moves {
    bool rose = false, back = false;
    const ScheduleRestart* restarted = nullptr;
  };
  void Add(const StepEnd& step, double value, RateWatch* rate, Moves* moves);
  void ReportRates(v1::Role role, const Moves& moves);
  void Judge(const StepEnd& step, Entry& entry, std::vector<Reported>* reported,
             std::vector<const LossSeries*>* touched);
  static void Report(const LossSeries& series, std::vector<SeriesEvent>& events,
                     std::vector<Reported>* reported);
  static const Item* ItemOf(const SiteStep& step);
  void Compare(double value, int64_t step, LossSeries* series);
  // State of a role's rates in the current step.
  struct RatesNow {
    bool known = false;  // a rate is known
    bool above = false;  // some rate is above 0
  };
  const RatesNow& RatesOf(v1::Role of);
  void CountRates(LossSeries* series);
  void CountPenalty(int64_t step, double value, LossSeries* series) const;
  const LossSeries* Training(v1::Role of);
  void KeepTraining(const LossSeries& series, uint64_t points_before);
  bool IsGame() const;
  bool HasActorAndCritic() const;
  void NoteWhole(LossSeries* series);

  std::map<Key, LossSeries> series_;
  std::map<Key, RateWatch> rates_;
  std::set<GameSide> sides_;  // sides that have a series
  std::map<v1::Role, double> epochs_, classes_;
  std::map<v1::Role, Companions> companions_;
  std::map<v1::Role, std::pair<int64_t, double>> kl_;  // step and value of the KL to a reference
  std::map<Key, Place> places_;
  // A run may have thousands of losses and rates, so shared results are computed once.
  std::map<v1::Role, LossSeries::Share> whole_;     // the largest of a training loss
  std::map<v1::Role, RatesNow> rates_now_;          // since the last rate
  std::map<v1::Role, const LossSeries*> training_;  // cached result of Training
  std::vector<Entry*> waiting_;  // pointers into places_: waiting entries, by key
  using Moment = std::tuple<uint32_t, v1::Role, int64_t>;  // attempt, role, step
  Moment closed_{UINT32_MAX, v1::ROLE_UNSPECIFIED, 0};
  Moment taken_from_{UINT32_MAX, v1::ROLE_UNSPECIFIED, 0};  // by TakeRows
  size_t taken_ = 0;
  uint64_t finished_ = 0;  // number of ends of the run that were settled
  std::vector<Reported> reported_;
  std::vector<const LossSeries*> touched_;
  // Late points since the last HearLate, and the number of such rounds.
  std::vector<Reported> late_reported_;
  std::vector<const LossSeries*> late_touched_;
  uint64_t late_round_ = 0;
  bool late_heard_ = true;
  SiteMemo<Known> known_;
};

// Holds the LossRun that all loss rules of a run share.
class SharedLossRun {
 public:
  // Also takes late steps.
  void Take(const SiteStep& step, const SeriesRoles& stated);
  LossRun& run() { return *run_; }
  const LossRun& run() const { return *run_; }
  void Persist(Archive& a) { a(run_); }

 private:
  std::shared_ptr<LossRun> run_ = std::make_shared<LossRun>();
};

}  // namespace plumbline::rules
