// The losses of a run, each judged once for all rules on losses.
//
// A series is one of a role of processes (v1::Role), a layer and a name. Several ranks that report
// it are one series: the value of the lowest rank that reports one in a step counts, its last one.
// Values of a step wait until the step closes, so that the rate of the same step is known before.
#pragma once

#include <cmath>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <unordered_map>
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
  // Of an evaluation: the lowest level that it had, as the detector has it, and its newest values.
  double lowest = HUGE_VAL;
  int64_t lowest_step = 0;
  std::deque<double> newest;
  static constexpr size_t kNewest = 9;

  bool evaluation() const { return role == SeriesRole::kEvaluationLoss; }
  // The training loss fell meanwhile, or nobody knows.
  bool training_falls() const { return !(training >= training_at_best); }

  void Persist(Archive& a) {
    a(of, layer, op, role, detector, rank, step_first, step_last, rate_known, best_at,
      training_at_best, training, attempt, lowest, lowest_step, newest);
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
  // What is open at the run's end is settled.
  const std::vector<Told>& Finish();
  // Those that the last Close gave a point.
  const std::vector<const LossSeries*>& touched() const { return touched_; }
  const std::map<Key, LossSeries>& series() const { return series_; }

  // told_ and touched_ are of one call; roles_ is found again.
  void Persist(Archive& a) { a(series_, rates_, waiting_, closed_, finished_); }

 private:
  struct Value {
    SeriesRole role = SeriesRole::kNone;
    uint32_t rank = 0;
    double value = 0;
    void Persist(Archive& a) { a(role, rank, value); }
  };
  void Judge(const StepEnd& step, const Key& key, const Value& value);
  void Compare(double value, int64_t step, LossSeries* series);
  const LossSeries* Training(v1::Role of) const;
  SeriesRole RoleOf(const std::string& name, const SeriesRoles& said);

  std::map<Key, LossSeries> series_;
  std::map<Key, RateWatch> rates_;
  std::map<Key, Value> waiting_;  // of the step that is judged
  std::tuple<uint32_t, v1::Role, int64_t> closed_{UINT32_MAX, v1::ROLE_UNSPECIFIED, 0};
  bool finished_ = false;
  std::vector<Told> told_;
  std::vector<const LossSeries*> touched_;
  std::unordered_map<std::string, SeriesRole> roles_;  // of names that came
};

// The rules of a run that judge losses hold one LossRun.
class SharedLossRun {
 public:
  void Take(const SiteStep& step, const SeriesRoles& said);
  LossRun& run() { return *run_; }
  void Persist(Archive& a) { a(run_); }

 private:
  std::shared_ptr<LossRun> run_ = std::make_shared<LossRun>();
};

}  // namespace plumbline::rules
