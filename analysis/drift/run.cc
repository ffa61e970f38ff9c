#include "analysis/drift/run.h"

#include <algorithm>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "analysis/frame/frame.h"
#include "analysis/statistics/statistics.h"

namespace plumbline::analysis {
namespace {

constexpr uint64_t kFewTokens = 1000;  // if a test had fewer tokens, its silence means nothing

std::string OneHalf(const char* whose) {
  return absl::StrCat("one-half: only the ", whose,
                      "'s log-probabilities are recorded, so nothing can be compared");
}

template <typename Site>
void BeginTests(double share, Site* site) {
  site->record = RecordTest(share * kRecordAlphaWeight * kRunAlpha);
  site->sampler = SamplerTest(share * kSamplerAlphaWeight * kRunAlpha);
}

bool HasTrainerHalf(const SiteStep& step) {
  return std::any_of(step.items.begin(), step.items.end(), [](const Item& item) {
    const auto& sequences = item.evidence->logprobs().sequences();
    return std::any_of(sequences.begin(), sequences.end(),
                       [](const auto& s) { return s.train().has_logprobs(); });
  });
}

RecordOutcome OutcomeOf(const RecordTest& test, const DriftStatistics& s) {
  if (test.alarmed_up()) return RecordOutcome::kUp;
  if (test.alarmed_down()) {
    const bool cuts = s.declared.cuts && s.declared.mode != v1::LOGPROB_MODE_RAW;
    const bool masks = s.declared.mode == v1::LOGPROB_MODE_PROCESSED && CoversLess(s);
    // The test's alarm may come shortly before the mark has the deviations that name a cause.
    const bool loses = s.declared.mode != v1::LOGPROB_MODE_RAW && LosesMass(s, 3);
    return cuts || masks || loses ? RecordOutcome::kSupport : RecordOutcome::kDown;
  }
  if (test.tokens() == 0) return RecordOutcome::kInconclusive;
  return test.tokens() < kFewTokens ? RecordOutcome::kUntested : RecordOutcome::kQuiet;
}

SamplerOutcome OutcomeOf(const SamplerTest& test, bool last) {
  const SamplerSide side =
      last && test.alarmed() == SamplerSide::kNone ? test.FinalLook() : test.alarmed();
  if (side == SamplerSide::kBelow) return SamplerOutcome::kBelow;
  if (side == SamplerSide::kAbove) return SamplerOutcome::kAbove;
  if (test.by() == SamplerTest::By::kNothing) return SamplerOutcome::kInconclusive;
  return test.tokens() < kFewTokens ? SamplerOutcome::kUntested : SamplerOutcome::kQuiet;
}

}  // namespace

DriftSite::DriftSite(std::string layer_name, std::string op_name, double share)
    : layer(std::move(layer_name)), op(std::move(op_name)) {
  BeginTests(share, this);
}

void DriftSite::BeginStep(uint32_t attempt, int64_t step) {
  step_first = batches == 0 ? step : std::min(step_first, step);
  step_last = batches == 0 ? step : std::max(step_last, step);
  ++batches;
  statistics.BeginStep(attempt, step);
  times.BeginStep();
}

void DriftSite::Take(const RolloutSequence& sequence) {
  statistics.Take(sequence);
  record.Add(sequence);
  sampler.Add(sequence);
  if (!sequence.later_epoch) times.Take(sequence);
}

void DriftSite::EndStep() {
  times.EndStep();
  record.EndStep();
  sampler.EndStep();
  tests.record = OutcomeOf(record, statistics);
  tests.sampler = OutcomeOf(sampler, false);
  tests.trainer_k2 = kNotRecorded;
  for (const ClusteredMean* own : {&statistics.trainer_k2, &statistics.own_k2}) {
    if (own->count() >= kFewTokens && !(own->mean() <= tests.trainer_k2))
      tests.trainer_k2 = own->mean();
  }
}

void DriftSite::End() {
  ended = true;
  tests.sampler = OutcomeOf(sampler, true);
}

StepChange DriftSite::Jump() const {
  return FindStepChange(
      statistics.series.At(statistics.with_lag == 0 ? DriftSeries::kUnknownLag : 0));
}

StepPatterns DriftSite::Patterns() const {
  const DriftSeries& series = statistics.series;
  return {Jump(), FindSawtooth(series.At(series.CommonLag()))};
}

DriftCause DriftSite::Cause() const { return NameDriftCause(statistics, Patterns(), tests); }

std::string DriftSite::Copied() const {
  if (!statistics.same_numbers()) return "";
  return absl::StrCat(
      "same-numbers: both columns have the same number in each of ", statistics.fresh.count(),
      " tokens, so nothing was compared: the trainer's column may be a copy of the engine's "
      "(verl: bypass_mode), or both programs compute the same bits");
}

std::string DriftSite::RecordDoubt() const {
  if (std::string copied = Copied(); !copied.empty()) return copied;
  if (!tests.record_failed()) return "";
  if (tests.record == RecordOutcome::kSupport)
    return "supports-differ: the trainer's probabilities include tokens that the sampler's top-p "
           "or top-k excludes, so the drift of the sampled tokens is not noise";
  return "record-invalid: the logged probabilities are not those that were sampled, so their drift "
         "does not describe the weights";
}

std::string DriftSite::KeyDoubt() const {
  if (!keys_differ) return "";
  return "keys-differ: rollout and trainer redacted their ids with different keys, or only one "
         "redacted them, so their records cannot be joined; set PLUMBLINE_REDACT_KEY on both";
}

void DriftSite::Place(v1::Verdict& verdict) const {
  SetPlace(verdict, layer, op, step_first, step_last, ranks);
}

void DriftSite::Persist(Archive& a) {
  a(layer, op, statistics, times, step_first, step_last, ranks, batches, unmatched, unreadable);
  a(record, sampler, tests, ended);
}

void DriftRun::Persist(Archive& a) {
  a.Version(2, 2);
  a(join_, routing_, routed_, flipped_, finished_, shares_, site_shares_, sites_, logit_sites_);
}

void DriftRun::Take(const SiteStep& step) {
  TakeRouting(routing_.Take(step));
  NumberStream(step);
  Take(*join_.Take(step));
  TakeRows(step);
}

// The order in which a site's halves meet depends on which role's steps close first. The order in
// which the trainer first reports a site does not.
void DriftRun::NumberStream(const SiteStep& step) {
  const Key key{step.site.layer(), step.site.op()};
  if (site_shares_.contains(key) || !HasTrainerHalf(step)) return;
  site_shares_[key] = shares_.Next(step.role);
}

void DriftRun::TakeRouting(const std::vector<ComparedStep>& steps) {
  for (const ComparedStep& step : steps) {
    for (const auto& [site, layer] : step.layers) {
      routed_ += layer.compared;
      flipped_ += layer.flips;
    }
  }
  const bool flips = routed_ >= kFewTokens && 1000 * flipped_ > routed_;
  for (auto& [key, site] : sites_) site.tests.router_flips = flips;
}

void DriftRun::Finish() {
  if (finished_) return;
  finished_ = true;
  Take(*join_.Finish());
  TakeRouting(routing_.Finish());
  for (const Key& key : join_.sites()) {
    if (!sites_.contains(key) && halves(key).given_up_rollout > 0)
      sites_.try_emplace(key, key.first, key.second).first->second.unreadable = OneHalf("engine");
  }
  for (auto& [key, site] : sites_) {
    site.keys_differ = halves(key).keys_differ;
    const bool alone = site.unmatched > 0 && site.statistics.sequences == 0;
    if (alone && site.unreadable.empty() && halves(key).given_up_rollout == 0)
      site.unreadable = OneHalf("trainer");
    site.End();
  }
}

void DriftRun::TakeRows(const SiteStep& step) {
  LogitSite* site = nullptr;
  std::set<std::tuple<std::string, int64_t, uint64_t>> seen;  // epochs of one step
  for (const Item& item : step.items) {
    if (!item.evidence->has_logits() || item.evidence->logits().rows().empty()) continue;
    const Key key{step.site.layer(), step.site.op()};
    const auto [at, fresh] = logit_sites_.try_emplace(key);
    site = &at->second;
    if (fresh) {
      BeginTests(shares_.Next(step.role), site);
      site->step_first = site->step_last = step.step;
    }
    site->step_first = std::min(site->step_first, step.step);
    site->step_last = std::max(site->step_last, step.step);
    site->ranks.insert(item.source->rank());
    const v1::LogitsConfig& config = item.evidence->logits().config();
    if (config.mode() == v1::LOGPROB_MODE_RAW && config.has_temperature() &&
        config.temperature() != 1)
      site->sampler.Declare(config.temperature());
    for (const v1::LogitsRow& row : item.evidence->logits().rows()) {
      const auto bits = __builtin_bit_cast(uint64_t, row.logprob_rollout());
      if (!row.sequence_id().empty() &&
          !seen.emplace(row.sequence_id(), row.position(), bits).second)
        continue;
      site->record.AddRow(row, step.step);
      site->sampler.AddRow(row);
    }
  }
  if (site == nullptr) return;
  site->record.EndStep();
  site->sampler.EndStep();
}

void DriftRun::Take(const std::vector<RolloutBatch>& batches) {
  touched_.clear();
  for (const RolloutBatch& batch : batches) {
    const Key key{batch.layer, batch.op};
    touched_.insert(key);
    const double share = site_shares_[key];
    DriftSite& site = sites_.try_emplace(key, batch.layer, batch.op, share).first->second;
    site.BeginStep(batch.attempt, batch.step);
    site.ranks.insert(batch.ranks.begin(), batch.ranks.end());
    site.unmatched += batch.unmatched;
    if (batch.unmatched > 0) site.keys_differ = halves(key).keys_differ;
    const std::string problem =
        batch.ForEach([&site](const RolloutSequence& sequence) { site.Take(sequence); });
    site.EndStep();
    if (site.unreadable.empty()) site.unreadable = problem;
  }
}

void SharedDriftRun::Persist(Archive& a) { a(run_); }

DriftRun& SharedDriftRun::Take(const SiteStep& step) {
  run_ = step.cache.Get<DriftRun>([&] {
    run_->Take(step);
    return run_;
  });
  return *run_;
}

DriftRun& SharedDriftRun::Finish() {
  run_->Finish();
  return *run_;
}

}  // namespace plumbline::analysis
