// A run's sampled sequences, joined and measured once for all drift rules.
//
// Each rule owns a SharedDriftRun and passes every step to it. The first rule does the work and
// stores the object in SiteStep::cache. The other rules use the same object. A rule that runs alone
// has its own object with the same content. Not thread-safe, like rules.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "analysis/drift/cause.h"
#include "analysis/drift/course.h"
#include "analysis/drift/statistics.h"
#include "analysis/frame/frame.h"
#include "analysis/rollout/rollout.h"
#include "analysis/routing/train_infer/train_infer.h"
#include "analysis/statistics/statistics.h"
#include "base/archive.h"

namespace plumbline::analysis {

// Shares of the run's false-alarm budget for the two tests (RuleInfo::alpha_weight of the rules
// that report their alarms).
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
  uint64_t unmatched = 0;  // number of halves without a counterpart
  std::string
      // Reason why the first undecodable sequence could not be decoded; "" if there is none.
      unreadable;
  RecordTest record{0};
  SamplerTest sampler{0};
  // The same tests with masked tokens included, if these have values of both sides. Exists from the
  // first such token on.
  struct WithMasked {
    bool used = false;
    uint64_t tokens = 0;
    RecordTest record{0};
    SamplerTest sampler{0};
    void Persist(Archive& a) { a(used, tokens, record, sampler); }
  };
  WithMasked with_masked;
  DriftTests tests;    // results of these tests so far
  bool ended = false;  // true if no more steps arrive

  DriftSite() = default;
  // `share`: the share of the alpha of each of the two tests. The default is the share of a run's
  // first stream.
  DriftSite(std::string layer, std::string op,
            double share = ShareOfRole(v1::ROLE_TRAINER) * ShareOfNumber(0));

  // Begins one step of the trainer. Its sequences must be in an order fixed before they were drawn.
  void BeginStep(uint32_t attempt, int64_t step);
  void Take(const RolloutSequence& sequence);
  void EndStep();
  void End();

  // Return true if the record test alarms, both with and without masked tokens.
  bool RecordAlarmedUp() const;
  bool RecordAlarmedDown() const;
  bool RecordDownAlarm(double kappa) const;
  // Returns the side on which the sampler's tests alarmed, both with and without masked tokens.
  // `last`: at the run's end.
  SamplerSide SamplerAlarm(bool last) const;
  // Returns "mask-follows-ratio: SENTENCE" if a test alarms without the masked tokens but not with
  // them; else "".
  std::string MaskDoubt() const;

  // Returns the steps' tokens of lag 0, or all of them if no lag is recorded.
  std::vector<DriftPoint> FreshPoints() const;
  // Return the jump and the course of these tokens.
  StepChange Jump() const;
  DriftCourse Course() const;
  StepPatterns Patterns() const;
  DriftCause Cause() const;
  // Returns "same-numbers: sentence" if both columns of the record are the same; else "".
  std::string Copied() const;
  // A rule that requires a true record must report nothing if this returns a reason. Returns "" if
  // the rule may report.
  std::string RecordDoubt() const;
  void Place(v1::Verdict& verdict) const;  // sets site, steps and ranks
  // Returns "short-id: sentence" if the two sides' ids are hashed with different keys. If they can
  // be joined, returns an empty string.
  std::string KeyDoubt() const;
  bool keys_differ = false;

  // keys_differ is recomputed.
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
  // Called once at each end of the run. Judges the sequences that still wait.
  void Finish(const RunSummary& run);

  std::map<Key, DriftSite>& sites() { return sites_; }
  std::map<Key, LogitSite>& logit_sites() { return logit_sites_; }
  RolloutJoinCounts halves(const Key& key) const { return join_.counts(key.first, key.second); }
  // Returns the sites to which the last Take or Finish added tokens.
  const std::set<Key>& touched() const { return touched_; }

  // touched_ belongs to one call, so it is not stored.
  void Persist(Archive& a);

 private:
  void Take(const std::vector<RolloutBatch>& batches);
  void TakeRows(const SiteStep& step);
  void NumberStream(const SiteStep& step);
  void TakeRouting(const std::vector<ComparedStep>& steps);

  RolloutJoin join_;
  // Both sides' routing, if it is recorded. Counts how often the chosen experts differ.
  TrainInferRuns routing_{512, 4};
  uint64_t routed_ = 0, flipped_ = 0;  // numbers of compared (token, layer) pairs
  uint64_t finished_ = 0;              // number of ends of the run that were judged
  AlphaShares shares_;
  // Shares of sites_, set when the trainer's first half arrives.
  std::map<Key, double> site_shares_;
  std::map<Key, DriftSite> sites_;
  std::map<Key, LogitSite> logit_sites_;
  std::set<Key> touched_;
};

class SharedDriftRun {
 public:
  DriftRun& Take(const SiteStep& step);
  DriftRun& Finish(const RunSummary& run);
  void Persist(Archive& a);

 private:
  std::shared_ptr<DriftRun> run_ = std::make_shared<DriftRun>();
};

}  // namespace plumbline::analysis
