#include "analysis/drift/run.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "analysis/frame/frame.h"
#include "analysis/statistics/statistics.h"

namespace plumbline::analysis {
namespace {

// If a test had fewer tokens, the absence of an alarm means nothing.
constexpr uint64_t kFewTokens = 1000;

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

RecordOutcome RecordOutcomeOf(const DriftSite& site) {
  const RecordTest& test = site.record;
  const DriftStatistics& s = site.statistics;
  if (site.RecordAlarmedUp()) return RecordOutcome::kUp;
  if (site.RecordAlarmedDown()) {
    const bool cuts = s.declared.cuts && s.declared.mode != v1::LOGPROB_MODE_RAW;
    const bool masks = s.declared.mode == v1::LOGPROB_MODE_PROCESSED && CoversLess(s);
    // The test may alarm shortly before the mark has enough deviations to name a cause.
    const bool loses = s.declared.mode != v1::LOGPROB_MODE_RAW && LosesMass(s, 3);
    return cuts || masks || loses ? RecordOutcome::kSupport : RecordOutcome::kDown;
  }
  if (test.tokens() == 0 || !site.MaskDoubt().empty()) return RecordOutcome::kInconclusive;
  return test.tokens() < kFewTokens ? RecordOutcome::kUntested : RecordOutcome::kQuiet;
}

SamplerSide SideOf(const SamplerTest& test, bool last) {
  return last && test.alarmed() == SamplerSide::kNone ? test.FinalLook() : test.alarmed();
}

SamplerOutcome SamplerOutcomeOf(const DriftSite& site, bool last) {
  const SamplerTest& test = site.sampler;
  const SamplerSide side = site.SamplerAlarm(last);
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
  if (sequence.masked_with_values > 0 && !with_masked.used) {
    with_masked = {true, 0, record, sampler};
    with_masked.record.UseMasked();
    with_masked.sampler.UseMasked();
  }
  record.Add(sequence);
  sampler.Add(sequence);
  if (with_masked.used) {
    with_masked.tokens += sequence.masked_with_values;
    with_masked.record.Add(sequence);
    with_masked.sampler.Add(sequence);
  }
  if (!sequence.later_epoch && !sequence.copy) times.Take(sequence);
}

void DriftSite::EndStep() {
  times.EndStep();
  record.EndStep();
  sampler.EndStep();
  if (with_masked.used) {
    with_masked.record.EndStep();
    with_masked.sampler.EndStep();
  }
  tests.record = RecordOutcomeOf(*this);
  tests.sampler = SamplerOutcomeOf(*this, false);
  tests.trainer_k2 = kNotRecorded;
  for (const ClusteredMean* own : {&statistics.trainer_k2, &statistics.own_k2}) {
    if (own->count() >= kFewTokens && !(own->mean() <= tests.trainer_k2))
      tests.trainer_k2 = own->mean();
  }
}

void DriftSite::End() {
  ended = true;
  tests.sampler = SamplerOutcomeOf(*this, true);
}

bool DriftSite::RecordAlarmedUp() const {
  return record.alarmed_up() && (!with_masked.used || with_masked.record.alarmed_up());
}

bool DriftSite::RecordAlarmedDown() const {
  return record.alarmed_down() && (!with_masked.used || with_masked.record.alarmed_down());
}

bool DriftSite::RecordDownAlarm(double kappa) const {
  return record.DownAlarm(kappa) && (!with_masked.used || with_masked.record.DownAlarm(kappa));
}

SamplerSide DriftSite::SamplerAlarm(bool last) const {
  const SamplerSide side = SideOf(sampler, last);
  if (!with_masked.used || SideOf(with_masked.sampler, last) == side) return side;
  return SamplerSide::kNone;
}

std::string DriftSite::MaskDoubt() const {
  if (!with_masked.used) return "";
  const bool up = record.alarmed_up() && !RecordAlarmedUp();
  const bool down = record.alarmed_down() && !RecordAlarmedDown();
  const bool sampled = SideOf(sampler, ended) != SamplerAlarm(ended);
  if (!up && !down && !sampled) return "";
  return absl::StrCat(
      "mask-follows-ratio: without the ", with_masked.tokens,
      " masked tokens that hold values of both sides the test fails, with them it "
      "does not: a mask that follows the ratio (IcePop, truncated importance "
      "sampling) is no mask that was known before the tokens were drawn; record the "
      "mask before rejection");
}

std::vector<DriftPoint> DriftSite::FreshPoints() const {
  return statistics.series.At(statistics.with_lag == 0 ? DriftSeries::kUnknownLag : 0);
}

StepChange DriftSite::Jump() const { return FindStepChange(FreshPoints()); }

DriftCourse DriftSite::Course() const { return FollowDrift(FreshPoints()); }

StepPatterns DriftSite::Patterns() const {
  const DriftSeries& series = statistics.series;
  const std::vector<DriftPoint> fresh = FreshPoints();
  return {FindStepChange(fresh), FindEpisode(fresh), FindSawtooth(series.At(series.CommonLag()))};
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
  a(record, sampler, with_masked, tests, ended);
}

void DriftRun::Persist(Archive& a) {
  a.Version(4, 4);
  a(join_, routing_, routed_, flipped_, finished_, shares_, site_shares_, sites_, logit_sites_);
}

void DriftRun::Take(const SiteStep& step) {
  TakeRouting(routing_.Take(step));
  NumberStream(step);
  Take(*join_.Take(step));
  TakeRows(step);
}

// The order in which halves are joined depends on the role whose steps close first. So numbers
// sites in the order in which the trainer first reports them.
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

void DriftRun::Finish(const RunSummary& run) {
  if (std::exchange(finished_, run.ends + 1) == run.ends + 1) return;
  Take(join_.Finish());
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
  // Rows of this step that were already taken. Later epochs repeat them.
  std::set<std::tuple<std::string, int64_t, uint64_t>> seen;
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

DriftRun& SharedDriftRun::Finish(const RunSummary& run) {
  run_->Finish(run);
  return *run_;
}

}  // namespace plumbline::analysis
