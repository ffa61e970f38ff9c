#include "analysis/drift/statistics.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace plumbline::analysis {
namespace {

const double kLogHalf = std::log(0.5);

// Identifies a token's context by its exact entropy. If no entropy is recorded, uses the token and
// its log mu, which repeat only if a context repeats. If both sides agree exactly, the token gets
// its own context, because it has no noise in common with others.
ContextKey ContextOf(const RolloutToken& token) {
  if (token.train == token.rollout) return kOwnContext;
  for (const double entropy : {token.train_entropy, token.rollout_entropy}) {
    if (std::isfinite(entropy)) return ContextKeyOf(std::bit_cast<uint64_t>(entropy));
  }
  return ContextKeyOf(ContextKeyOf(static_cast<uint64_t>(token.token)) ^
                      std::bit_cast<uint64_t>(token.rollout));
}

// Keeps the value if all sequences declare the same one.
void Agree(double value, bool first, double& kept, bool& mixed) {
  if (first) {
    kept = value;
  } else if (!(value == kept) && !(std::isnan(value) && std::isnan(kept))) {
    kept = kNotRecorded;
    mixed = true;
  }
}

}  // namespace

// Reads the sequences' declarations on how tokens were drawn. If the declarations differ, nothing
// is declared.
void DriftStatistics::Declare(const RolloutSequence& s) {
  const bool first = sequences == 1;
  if (first) declared.mode = s.mode;
  if (s.mode != declared.mode) {
    declared.mode = v1::LOGPROB_MODE_ABSENT;
    declared.mixed = true;
  }
  declared.heats |= std::isfinite(s.temperature) && s.temperature != 1;
  declared.cuts |= s.top_p < 1 || s.top_k > 0;
  Agree(s.temperature, first, declared.temperature, declared.mixed);
  Agree(s.top_p, first, declared.top_p, declared.mixed);
  Agree(s.top_k > 0 ? static_cast<double>(s.top_k) : kNotRecorded, first, declared.top_k,
        declared.mixed);
}

// Takes one sequence. Its tokens are not independent, so each estimate closes it as one cluster
// (EndSequence). A later epoch of the same sequence is used only for the trainer's own noise.
void DriftStatistics::Take(const RolloutSequence& sequence) {
  if (sequence.copy) {
    ++copies;
    return;
  }
  if (sequence.later_epoch) {
    ++later_epochs;
    TakeAgain(sequence);
    return;
  }
  ++sequences;
  from_halves += sequence.from_halves ? 1 : 0;
  last_id_ = sequence.id;
  last_version_ = sequence.train_version;
  last_train_.clear();
  for (const RolloutToken& token : sequence.tokens) last_train_.push_back(token.train);
  Declare(sequence);
  differing_ids += sequence.differing_ids;
  if (sequence.source == v1::LogprobsSequence::SOURCE_RESCORED) {
    ++rescored;
    if (std::isfinite(sequence.rescore_k2)) rescore_k2.Add(sequence.rescore_k2);
    rescore_k2.EndSequence();
  }
  broken_turn_ = turns.Take(sequence);
  slopes.Begin(sequence.worker, sequence.step);
  strata.BeginSequence(sequence.worker);
  first_tokens.BeginSequence(sequence);
  recurrence.BeginSequence(sequence);
  for (const RolloutToken& token : sequence.tokens) {
    if (token.judged && token.same_token) TakeToken(sequence, token);
  }
  TakeVersions(sequence);
  TakeShifts(sequence);
  slopes.ForSequence([](DriftSlopes& part) { part.EndSequence(); });
  for (ClusteredSlope* fit : {&on_advantage, &on_cached}) fit->EndSequence();
  for (ClusteredMean* mean : {&lost_mass, &bounded_k3, &minus_d, &own_k2}) mean->EndSequence();
  units.EndSequence();
  first_tokens.EndSequence();
  far_outliers.EndSequence();
  by_lag.EndSequence();
  jumps.EndSequence();
  split.EndSequence();
}

// The trainer computed the same tokens twice with the same weights, so the difference is its noise.
void DriftStatistics::TakeAgain(const RolloutSequence& sequence) {
  if (sequence.id != last_id_ || sequence.train_version == kNoVersion ||
      sequence.train_version != last_version_ || sequence.tokens.size() != last_train_.size())
    return;
  for (size_t i = 0; i < last_train_.size(); ++i) {
    const double difference = sequence.tokens[i].train - last_train_[i];
    if (sequence.tokens[i].judged && std::isfinite(difference))
      trainer_k2.Add(difference * difference / 2);
  }
  trainer_k2.EndSequence();
}

// Adds d = log pi (trainer) - log mu (rollout). Tokens of older weights are counted separately,
// because their d also comes from the change of the weights.
void DriftStatistics::TakeToken(const RolloutSequence& sequence, const RolloutToken& token) {
  const double d = token.train - token.rollout;
  const bool lag_known = token.lag >= 0;
  const bool is_fresh = !lag_known || token.lag == 0;
  ++judged;
  if (lag_known) ++with_lag;
  (is_fresh ? fresh_tokens : stale_tokens) += 1;
  // Log-probabilities are exactly 0 in greedy decoding, or if the field was never filled.
  if (token.rollout == 0) {
    ++zeros;
    if (token.train < kLogHalf) ++unlikely_zeros;
  }
  (is_fresh ? fresh : stale).Add(d);
  if (!std::isfinite(d)) return;
  const int64_t lag = lag_known ? token.lag : DriftSeries::kUnknownLag;
  const double k3 = std::min(K3(d), 1.0);
  series.Add(d, k3, DriftStrata::ProbabilityBin(token.rollout), lag, sequence.train_version);
  strata.Add(d, token.rollout, token.position, token.turn, lag);
  const ContextKey context = ContextOf(token);
  if (lag_known) {
    by_lag.Add(static_cast<double>(token.lag), d * d / 2, context);
    jumps.Add(token.lag, d);
  }
  TakeBehaviour(token, lag_known && token.lag == 0, context);
  with_entropy += std::isfinite(token.train + token.train_entropy);
  if (is_fresh) {
    TakeFresh(sequence, token, d, k3, context);
  } else {
    first_tokens.Skip();
  }
}

// Uses a third forward pass: the trainer's weights at the time of the rollout. It splits d into the
// effect of the updates since then and the difference of the programs at that time.
void DriftStatistics::TakeBehaviour(const RolloutToken& token, bool at_lag_0, ContextKey context) {
  const double moved = token.train - token.behaviour;
  if (!std::isfinite(moved)) return;
  ++with_behaviour;
  split.Add(at_lag_0, moved, token.behaviour - token.rollout, context);
  if (at_lag_0) own_k2.Add(moved * moved / 2);
}

// Takes a token drawn with the trainer's current weights. Every cause except age has an effect on
// such tokens.
void DriftStatistics::TakeFresh(const RolloutSequence& sequence, const RolloutToken& token,
                                double d, double k3, ContextKey context) {
  const double square = d * d;
  sizes.Add(std::fabs(d));
  far_outliers.Add(d);
  lattice.Add(d);
  units.Add(token.train, token.rollout);
  recurrence.Add(token, sequence.step);
  first_tokens.Add(d, DriftStrata::ProbabilityBin(token.rollout), context);
  if (token.rollout >= kLogHalf && d < kLogHalf) {
    ++likeliest;
    unlikeliest += std::exp(token.train) + std::exp(token.rollout) > 1.01;
  }
  drawn.Add({token.train, token.rollout, token.train_entropy, d});
  if (broken_turn_ != TurnPrefixes::kNoTurn && token.turn >= broken_turn_)
    after_other_prompt += std::min(square, 0.25);
  bounded_k3.Add(k3);
  minus_d.Add(-d);
  slopes.ForToken(token.version, [&](DriftSlopes& part) {
    part.Add(token.train, token.rollout, token.train_entropy, context);
  });
  if (token.rollout < 0) lost_mass.Add(-d - square / 2, context);
  if (std::isfinite(token.advantage)) on_advantage.Add(token.advantage, d + square / 2, context);
  if (sequence.cached_tokens >= 0)
    on_cached.Add(static_cast<double>(sequence.cached_tokens), std::min(square, 0.25), context);
  // Values on a 16-bit grid have errors up to half a unit, so their variance is half^2 / 3.
  const auto rounded = [&](const ValueGrid& grid, double value, uint64_t& count) {
    if (!grid.sixteen_bit()) return;
    ++count;
    const double half = grid.HalfUnit(value);
    rounding_squares += half * half / 3;
  };
  rounded(sequence.train_grid, token.train, gridded_train);
  rounded(sequence.rollout_grid, token.rollout, gridded_rollout);
}

void DriftStatistics::TakeVersions(const RolloutSequence& sequence) {
  if (sequence.train_version == kNoVersion) return;
  int64_t newest = kNoVersion;
  for (const RolloutToken& token : sequence.tokens) {
    if (token.judged) newest = std::max(newest, token.version);
  }
  if (newest != kNoVersion) versions.Add(sequence.step, newest, sequence.train_version);
}

// Tests whether the trainer's values fit the rollout's values better if they are shifted by one
// position. Then the two sides were joined with an offset of one.
void DriftStatistics::TakeShifts(const RolloutSequence& sequence) {
  constexpr size_t kMostWorkers = 64;
  const auto& t = sequence.tokens;
  Shifts own;
  for (size_t i = 1; i + 1 < t.size(); ++i) {
    const bool run = t[i].judged && t[i - 1].judged && t[i + 1].judged &&
                     t[i - 1].position + 1 == t[i].position &&
                     t[i].position + 1 == t[i + 1].position;
    if (!run) continue;
    const double here = t[i].train - t[i].rollout, back = t[i].train - t[i - 1].rollout,
                 forward = t[i].train - t[i + 1].rollout;
    if (!std::isfinite(here) || !std::isfinite(back) || !std::isfinite(forward)) continue;
    const double inverse = 1 / static_cast<double>(own.here.count + 1);
    own.here.Add(here, inverse);
    own.back.Add(back, inverse);
    own.forward.Add(forward, inverse);
  }
  if (own.here.count == 0) return;
  shifts.Merge(own);
  if (sequence.worker.empty()) return;
  if (shifts_of.size() < kMostWorkers || shifts_of.contains(sequence.worker))
    shifts_of[sequence.worker].Merge(own);
}

void DriftStatistics::Shifts::Merge(const Shifts& other) {
  here.Merge(other.here);
  back.Merge(other.back);
  forward.Merge(other.forward);
}

bool DriftStatistics::same_numbers() const {
  constexpr uint64_t kFewest = 256;
  return fresh.count() >= kFewest && stale.count() == 0 && from_halves == 0 &&
         sizes.zeros() == sizes.count();
}

DriftMoments DriftStatistics::all() const {
  DriftMoments both = fresh;
  both.Merge(stale);
  return both;
}

double DriftStatistics::rounding_share() const {
  const double n = static_cast<double>(fresh.count());
  const double square = 2 * fresh.k2() * n;
  return square > 0 ? rounding_squares / square : 0;
}

}  // namespace plumbline::analysis
