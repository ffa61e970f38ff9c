// A run's sampled sequences, joined and measured once for all the drift rules.
//
// Each rule owns a SharedDriftRun and gives it every step. The first rule to do so does the work
// and leaves the object in SiteStep::cache; the others adopt it. So all rules of an engine read
// one object, and a rule that runs alone has its own with the same content. Single-threaded, as
// rules are.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "analysis/drift/cause.h"
#include "analysis/drift/statistics.h"
#include "analysis/frame/frame.h"
#include "analysis/rollout/rollout.h"
#include "analysis/routing/train_infer/train_infer.h"
#include "analysis/statistics/statistics.h"
#include "base/archive.h"

namespace plumbline::rules {

// The parts of the run's false-alarm budget that the two tests have (RuleInfo::alpha_weight of the
// rules that tell their alarms).
inline constexpr double kRecordAlphaWeight = 1.0 / 16;
inline constexpr double kSamplerAlphaWeight = 1.0 / 16;

// One (layer, op) whose evidence holds log-probabilities.
struct DriftSite {
  std::string layer, op;
  DriftStatistics statistics;
  SequenceTimes times;
  int64_t step_first = 0, step_last = 0;
  std::set<uint32_t> ranks;
  uint64_t batches = 0;
  uint64_t unmatched = 0;  // halves without a counterpart
  std::string unreadable;  // why the first sequence that could not be decoded could not; or ""
  RecordTest record{0};
  SamplerTest sampler{0};
  DriftTests tests;    // what these two say so far
  bool ended = false;  // no more steps come

  DriftSite() = default;
  // `share`: of either test's alpha; else that of a run's first stream.
  DriftSite(std::string layer, std::string op,
            double share = ShareOfRole(v1::ROLE_TRAINER) * ShareOfNumber(0));

  // One step of the trainer's, sequences in an order fixed before they were drawn.
  void BeginStep(uint32_t attempt, int64_t step);
  void Take(const RolloutSequence& sequence);
  void EndStep();
  void End();

  // The jump is not judged where no lag is recorded.
  StepChange Jump() const;
  StepPatterns Patterns() const;
  DriftCause Cause() const;
  // Why `rule`, which rests on a true record, says nothing; empty: it may speak.
  std::string RecordDoubt() const;
  void Place(v1::Verdict& verdict) const;  // site, steps, ranks
  // "short-id: sentence" where the two sides' ids are under different keys; empty: they can meet.
  std::string KeyDoubt() const;
  bool keys_differ = false;

  // keys_differ is found again.
  void Persist(Archive& a);
};

// One (layer, op) whose evidence holds rows of full logits.
struct LogitSite {
  RecordTest record{0};
  SamplerTest sampler{0};
  int64_t step_first = 0, step_last = 0;
  std::set<uint32_t> ranks;
  void Persist(Archive& a) { a(record, sampler, step_first, step_last, ranks); }
};

class DriftRun {
 public:
  using Key = std::pair<std::string, std::string>;  // layer, op

  void Take(const SiteStep& step);
  void Finish();

  std::map<Key, DriftSite>& sites() { return sites_; }
  std::map<Key, LogitSite>& logit_sites() { return logit_sites_; }
  RolloutJoinCounts halves(const Key& key) const { return join_.counts(key.first, key.second); }
  // Those that the last Take or Finish added tokens to.
  const std::set<Key>& touched() const { return touched_; }

  // touched_ is of one call.
  void Persist(Archive& a);

 private:
  void Take(const std::vector<RolloutBatch>& batches);
  void TakeRows(const SiteStep& step);
  void NumberStream(const SiteStep& step);
  void TakeRouting(const std::vector<ComparedStep>& steps);

  RolloutJoin join_;
  // Both sides' routing, where it is recorded: do experts flip at all?
  TrainInferRuns routing_{512, 4};
  uint64_t routed_ = 0, flipped_ = 0;  // compared (token, layer) pairs
  bool finished_ = false;
  AlphaShares shares_;
  std::map<Key, double> site_shares_;  // of sites_, from the trainer's first half on
  std::map<Key, DriftSite> sites_;
  std::map<Key, LogitSite> logit_sites_;
  std::set<Key> touched_;
};

class SharedDriftRun {
 public:
  DriftRun& Take(const SiteStep& step);
  DriftRun& Finish();
  void Persist(Archive& a);

 private:
  std::shared_ptr<DriftRun> run_ = std::make_shared<DriftRun>();
};

}  // namespace plumbline::rules
