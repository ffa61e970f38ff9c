// The losses of a run, each judged once for all rules on losses.
//
// A series is one of a role of processes (v1::Role), a layer and a name. Several ranks that report
// it are one series: the value of the lowest rank that reports one in a step counts, its last one.
// Values of a step wait until the step closes, so that the rate of the same step is known before.
#pragma once

#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "analysis/frame/frame.h"
#include "analysis/series/series.h"
#include "base/archive.h"

namespace plumbline::rules {

struct LossSeries {
  v1::Role of = v1::ROLE_UNSPECIFIED;
  std::string layer, op;
  SeriesRole role = SeriesRole::kNone;
  SeriesDetector detector;
  uint32_t rank = 0;  // whose value was taken last
  int64_t step_first = 0, step_last = 0;
  bool rate_known = false;  // some rate was reported beside it
  // Of an evaluation: the training loss's level when the best block was found (NaN: not known),
  // and now.
  uint64_t best_at = 0;
  double training_at_best = NAN, training = NAN;
  uint32_t attempt = 0;  // of its newest point
  // Of a resume: its first step and its third (the newest, while there are fewer); 0 points: none.
  int64_t resumed_at = 0, resumed_until = 0;
  uint64_t resumed_points = 0;
  OverfitWatch overfit;  // of an evaluation
  // Of a training loss: the sum of its values. Of an evaluation: what that was at the one before.
  double sum = 0;
  uint64_t summed = 0;
  // Points with a rate above 0 beside them; the newest value of a logged epoch.
  uint64_t rated = 0;
  double epoch = NAN;
  double classes = NAN;  // over which the cross-entropy is, as run.watch saw them

  // A rule may look at it now (LossRule::Look).
  bool LookIsDue() const {
    return evaluation() ? overfit.IsDue() : detector.StallIsDue() || detector.EndIsDue();
  }
  bool AtResume(int64_t onset) const {
    return resumed_points > 0 && onset >= resumed_at && onset <= resumed_until;
  }
  void CountResume(uint32_t of_attempt, int64_t step);
  bool evaluation() const { return role == SeriesRole::kEvaluationLoss; }
  // The training loss fell meanwhile, or nobody knows.
  bool training_falls() const { return !(training >= training_at_best); }

  size_t number = 0;  // among those of its run
  bool part = false;  // MayBePart(op)

  // number and part are found again.
  void Persist(Archive& a) {
    a(of, layer, op, role, detector, rank, step_first, step_last, rate_known, best_at,
      training_at_best, training, attempt, resumed_at, resumed_until, resumed_points, overfit, sum,
      summed, rated, epoch, classes);
  }
};

class LossRun {
 public:
  using Key = std::tuple<v1::Role, std::string, std::string>;  // of, layer, op
  struct Told {
    const LossSeries* series = nullptr;
    SeriesEvent event;
  };

  // `said`: what the user said of series by name, the same in each call.
  static bool Reads(const v1::Site& site, const SeriesRoles& said);
  void Take(const SiteStep& step, const SeriesRoles& said);
  // What the step's values told; once for each step, the same for who asks again.
  const std::vector<Told>& Close(const StepEnd& step);
  // What Take and Close make of rows from `first` on, up to one that tells anything or behind which
  // a stall may be looked for: how many these are, the same for who asks again. 0: the next one is
  // to be taken by itself. told and touched are of the last one.
  size_t TakeRows(const ScalarRows& rows, size_t first, const SeriesRoles& said);
  const std::vector<Told>& told() const { return told_; }
  // Of rules that share a run, or come to.
  static const void* Mark();
  // Of a step that is closed already (an evaluation that ended long after its step): a point that
  // is its series' newest is judged all the same, beside the rates and the training loss of now.
  // Others say nothing: a series' points are judged in their order.
  void TakeLate(const SiteStep& step, const SeriesRoles& said);
  // False: since the call that set `heard` no such point came. True: late_told and late_touched are
  // what came.
  bool HearLate(uint64_t* heard);
  const std::vector<Told>& late_told() const { return late_told_; }
  const std::vector<const LossSeries*>& late_touched() const { return late_touched_; }
  // What is open at the run's end is settled.
  const std::vector<Told>& Finish();
  // Those that the last Close gave a point.
  const std::vector<const LossSeries*>& touched() const { return touched_; }
  const std::map<Key, LossSeries>& series() const { return series_; }
  // A training loss that may rise in a healthy run: the sum of a game, where the sides of one have
  // series of their own; a part by its name (MayBePart) beside another training loss. What the user
  // said of its name counts first.
  bool MayRise(const LossSeries& series, const SeriesRoles& said) const;

  // told_, touched_, late_told_, late_touched_, late_round_ and late_heard_ are of one call, taken_
  // and taken_from_ of one batch; places_, known_, whole_, rates_now_ and training_ are found
  // again.
  void Persist(Archive& a);

 private:
  struct Value {
    SeriesRole role = SeriesRole::kNone;
    uint32_t rank = 0;
    double value = 0;
    void Persist(Archive& a) { a(role, rank, value); }
  };
  // A series, or a rate, that came: looked up once.
  struct Place {
    Value value;         // of the step that is judged
    bool waits = false;  // there is one
    LossSeries* series = nullptr;
    RateWatch* rate = nullptr;
  };
  using Entry = std::map<Key, Place>::value_type;
  struct Known {
    SeriesRole role = SeriesRole::kNone;
    Entry* entry = nullptr;  // nullptr: of no role that is read
    bool epoch = false;      // the number of the epoch
    bool classes = false;    // of the cross-entropy
    bool score = false;      // GameSide::kScore
  };
  Known Find(const SiteStep& step, const SeriesRoles& said);
  void Wait(Entry& entry, const Value& value);
  void TakeScore(double value);
  struct Moves {
    bool rose = false, back = false;
    const ScheduleRestart* restarted = nullptr;
  };
  void Add(const StepEnd& step, double value, RateWatch* rate, Moves* moves);
  void TellOfRates(v1::Role role, const Moves& moves);
  void Judge(const StepEnd& step, Entry& entry, std::vector<Told>* told,
             std::vector<const LossSeries*>* touched);
  static void TellOf(const LossSeries& series, std::vector<SeriesEvent>& events,
                     std::vector<Told>* told);
  static const Item* ItemOf(const SiteStep& step);
  void Compare(double value, int64_t step, LossSeries* series);
  // What the rates of a role tell of the step that is judged.
  struct RatesNow {
    bool known = false;  // there is one
    bool above = false;  // one is above 0
  };
  const RatesNow& RatesOf(v1::Role of);
  void CountRates(LossSeries* series);
  const LossSeries* Training(v1::Role of);
  void KeepTraining(const LossSeries& series, uint64_t points_before);
  bool IsGame() const;
  void NoteWhole(LossSeries* series);

  std::map<Key, LossSeries> series_;
  std::map<Key, RateWatch> rates_;
  std::set<GameSide> sides_;  // that have a series
  std::map<v1::Role, double> epochs_, classes_;
  std::map<Key, Place> places_;
  // A run may name thousands of losses and rates: what all of them have in common is found once.
  std::set<v1::Role> whole_;                               // with a training loss that is no part
  std::map<v1::Role, RatesNow> rates_now_;                 // since a rate came last
  std::map<v1::Role, const LossSeries*> training_;         // Training, while it holds
  std::vector<Entry*> waiting_;                            // of places_: those that wait, by key
  using Moment = std::tuple<uint32_t, v1::Role, int64_t>;  // attempt, role, step
  Moment closed_{UINT32_MAX, v1::ROLE_UNSPECIFIED, 0};
  Moment taken_from_{UINT32_MAX, v1::ROLE_UNSPECIFIED, 0};  // by TakeRows
  size_t taken_ = 0;
  bool finished_ = false;
  std::vector<Told> told_;
  std::vector<const LossSeries*> touched_;
  // Late points since they were heard last, and how often that was.
  std::vector<Told> late_told_;
  std::vector<const LossSeries*> late_touched_;
  uint64_t late_round_ = 0;
  bool late_heard_ = true;
  SiteMemo<Known> known_;
};

// The rules of a run that judge losses hold one LossRun.
class SharedLossRun {
 public:
  // Also what is late.
  void Take(const SiteStep& step, const SeriesRoles& said);
  LossRun& run() { return *run_; }
  const LossRun& run() const { return *run_; }
  void Persist(Archive& a) { a(run_); }

 private:
  std::shared_ptr<LossRun> run_ = std::make_shared<LossRun>();
};

}  // namespace plumbline::rules
