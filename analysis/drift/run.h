// A run's sampled sequences, joined and measured once for all drift rules.
//
// Each rule owns a SharedDriftRun and passes every step to it. The first rule to do so does the
// work and leaves the object in SiteStep::cache. The other rules adopt it, so all rules of an
// engine read one object. A rule that runs alone has its own object with the same content.
// Single-threaded, as rules are.
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
  uint64_t unmatched = 0;  // halves without a counterpart
  std::string
      unreadable;  // why the first undecodable sequence could not be decoded; "" if there is none
  RecordTest record{0};
  SamplerTest sampler{0};
  // The same with masked tokens that hold values of both sides, from the first such token on.
  struct WithMasked {
    bool used = false;
    uint64_t tokens = 0;
    RecordTest record{0};
    SamplerTest sampler{0};
    void Persist(Archive& a) { a(used, tokens, record, sampler); }
  };
  WithMasked with_masked;
  DriftTests tests;    // results of these so far
  bool ended = false;  // no more steps arrive

  DriftSite() = default;
  // `share` is the share of either test's alpha; the default is that of a run's first stream.
  DriftSite(std::string layer, std::string op,
            double share = ShareOfRole(v1::ROLE_TRAINER) * ShareOfNumber(0));

  // Begins one step of the trainer. Its sequences must be in an order fixed before they were drawn.
  void BeginStep(uint32_t attempt, int64_t step);
  void Take(const RolloutSequence& sequence);
  void EndStep();
  void End();

  // The record's alarms, on which both sets of tokens must agree.
  bool RecordAlarmedUp() const;
  bool RecordAlarmedDown() const;
  bool RecordDownAlarm(double kappa) const;
  // Returns the side on which the sampler's tests of both sets alarmed. `last`: at the run's end.
  SamplerSide SamplerAlarm(bool last) const;
  // Returns "mask-follows-ratio: sentence" if a test alarms without the masked tokens and not with
  // them; else "".
  std::string MaskDoubt() const;

  // Of the tokens of lag 0. If no lag is recorded, of all tokens.
  StepChange Jump() const;
  StepPatterns Patterns() const;
  DriftCause Cause() const;
  // Returns "same-numbers: sentence" if both columns of the record are the same; else "".
  std::string Copied() const;
  // Returns why `rule`, which requires a true record, reports nothing. If it may report, returns an
  // empty string.
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
  // Judges what waits, at the run's end: once per end.
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
  // Both sides' routing, if it is recorded: counts how often experts flip.
  TrainInferRuns routing_{512, 4};
  uint64_t routed_ = 0, flipped_ = 0;  // numbers of compared (token, layer) pairs
  uint64_t finished_ = 0;              // number of ends of the run that were judged
  AlphaShares shares_;
  std::map<Key, double> site_shares_;  // shares of sites_, from the trainer's first half on
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
