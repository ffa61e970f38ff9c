#include "analysis/rollout/record.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "base/real.h"

namespace plumbline::analysis {
namespace {

constexpr double kOrdinary = 20;  // up to this |ln rho|, factors may be multiplied as numbers
// If an engine rounds its logits, log-probabilities may be this far above 0.
constexpr double kPositiveSlack = .01;

// 2^0 .. 2^-8; the downward test uses the first seven.
constexpr std::array<double, 9> kLambda = {1,      .5,      .25,      .125,     .0625,
                                           .03125, .015625, .0078125, .00390625};

// Returns ln(1 + lambda (e^x - 1)) for any x and for lambda in (0, 1].
double LogUp(double lambda, double x) {
  if (x > kOrdinary) return std::log(lambda) + x + std::log1p((1 - lambda) / lambda * std::exp(-x));
  return std::log1p(lambda * std::expm1(x));  // ln 0 = -infinity for lambda = 1, x = -infinity
}

}  // namespace

void Extremes::Add(double value, TokenWitness witness) {
  const auto at = std::find_if(found_.begin(), found_.end(),
                               [&](const auto& entry) { return value > entry.first; });
  found_.insert(at, {value, std::move(witness)});
  if (found_.size() > kMost) found_.pop_back();
}

void RatioMoments::Add(double x, double gain) {
  // Doubles overflow at d = 709, extended ones at 11,356.
  const long double g =
      gain < kInfinity ? static_cast<long double>(gain) : std::exp(static_cast<long double>(x));
  const long double square = static_cast<long double>(x) * x;
  ++n;
  d += x;
  d2 += square;
  k3 += g - x;
  rho_d2 += (1 + g) * square;
  if (x > 0) rho_rise2 += (1 + g) * square;
}

RecordTest::RecordTest(double alpha) : alpha_(alpha) {}

double RecordTest::Part::LogDown(double kappa) const {
  if (!Within(kappa)) return -kInfinity;  // the premise does not hold, so there is no evidence
  std::array<double, kDown> logs = down.logs();
  for (size_t j = 0; j < kDown; ++j) {
    const double far = std::log1p(1 / kLambda[j]);
    logs[j] -= static_cast<double>(bounded) * std::log1p(kLambda[j] * kappa / (far * far));
  }
  return Wealth<kDown>::LogMean(logs);
}

double RecordTest::Part::LogUp(bool missing_counts) const {
  if (!missing_counts || missing == 0) return up.log();
  std::array<double, kUp> logs = up.logs();
  for (size_t j = 0; j < kUp; ++j)
    logs[j] += static_cast<double>(missing) * std::log1p(-kLambda[j]);
  return Wealth<kUp>::LogMean(logs);
}

template <typename LogOf>
double RecordTest::LogSumOf(const LogOf& log_of) const {
  return slices_.LogMixed([](const Part& part) { return part.tokens; }, log_of);
}

double RecordTest::log_wealth_up() const {
  const bool missing = missing_.depend();
  return LogSumOf([missing](const Part& part) { return part.LogUp(missing); });
}

double RecordTest::log_wealth_down(double kappa) const {
  if (missing_.depend()) return -kInfinity;
  return LogSumOf([&](const Part& part) { return part.LogDown(kappa); });
}

template <typename LogOf>
RecordTest::Leader RecordTest::LeaderOf(const LogOf& log_of) const {
  Leader leader;
  double most = -kInfinity;
  slices_.ForEach([&](const SliceName& name, double share, const Part& part) {
    const double log = std::log(share) + log_of(part);
    if (part.tokens == 0 || (!name.pool() && !(log > most))) return;
    most = log;
    leader.name = name;
    leader.tokens = part.tokens;
    leader.mean_ratio = 1 + static_cast<double>(part.gain / part.tokens);
  });
  return leader;
}

RecordTest::Leader RecordTest::LeaderUp() const {
  const bool missing = missing_.depend();
  return LeaderOf([missing](const Part& part) { return part.LogUp(missing); });
}

RecordTest::Leader RecordTest::LeaderDown(double kappa) const {
  return LeaderOf([&](const Part& part) { return part.LogDown(kappa); });
}

bool RecordTest::DownAlarm(double kappa) const {
  return alpha_ > 0 && !Beyond(kappa) && log_wealth_down(kappa) >= -std::log(alpha_down());
}

void RecordTest::Look() {
  if (crossed_ == 0 && alpha_ > 0 && log_wealth_up() >= -std::log(alpha_up())) crossed_ = tokens_;
}

// If rho - 1 is infinite, every downward bet is lost. If log pi is -infinity, the downward factor
// is at least 1, so it may be omitted.
template <typename EachPart>
void RecordTest::BetOn(double d, double slack, const Means* means, const EachPart& each) {
  const double gain = std::expm1(d), x = d - slack;
  const double gain_up = slack == 0 ? gain : std::expm1(x);
  const double gain_down = slack == 0 ? gain : std::expm1(d + slack);
  const bool near = std::fabs(x) <= kOrdinary;
  const bool bets_down =
      d != -kInfinity && (means == nullptr || means->size() == static_cast<int>(kDown));
  std::array<double, kUp> up;
  for (size_t j = 0; j < kUp; ++j) up[j] = near ? 1 + kLambda[j] * gain_up : LogUp(kLambda[j], x);
  std::array<double, kDown> down;
  bool ordinary = true;
  for (size_t j = 0; bets_down && j < kDown; ++j) {
    const double by = means == nullptr ? 1 : means->Get(static_cast<int>(j));
    down[j] = std::max(0.0, 1 - kLambda[j] * gain_down) / by;
    ordinary = ordinary && (down[j] == 0 || (down[j] > 1e-8 && down[j] < 1e8));
  }
  if (!ordinary) {
    for (double& factor : down) factor = std::log(factor);
  }
  const double rise2 = d > 0 ? (1 + gain) * d * d : 0;
  each([&](Part& part) {
    ++part.tokens;
    part.gain += gain;
    near ? part.up.Multiply(up) : part.up.Add(up);
    if (!bets_down) return;
    part.bounded += means == nullptr;
    part.rise2 += rise2;
    ordinary ? part.down.Multiply(down) : part.down.Add(down);
  });
  if (bets_down) bounded_tokens_ += means == nullptr;
}

void RecordTest::Bet(double d, double slack, const Means* means, const Place& place) {
  ++tokens_;
  const bool row = means != nullptr;
  BetOn(d, slack, means, [&](const auto& visit) {
    row ? visit(slices_.pool()) : slices_.ForToken(place.token.version, visit);
  });
  if (d == -kInfinity) return;
  moments_.Add(d, std::expm1(d));
  if (largest_.Wants(d)) largest_.Add(d, place.Witness());
  if (smallest_.Wants(-d)) smallest_.Add(-d, place.Witness());
}

bool RecordTest::Usable(double train, double rollout) {
  if (!std::isfinite(rollout) || std::isnan(train) || train == kInfinity) {
    ++non_finite_;
    return false;
  }
  impossible_ += train == -kInfinity;
  return true;
}

TokenWitness RecordTest::Place::Witness() const {
  return {sequence, step, token.position, token.token, token.train, token.rollout};
}

void RecordTest::Enter(const RolloutSequence& s, const RolloutToken& t, double slack) {
  missing_.Add(t);
  if (!Usable(t.train, t.rollout)) {
    slices_.ForToken(t.version, [](Part& part) { ++part.missing; });
    return;
  }
  const double eta = s.rollout_grid.HalfUnit(t.rollout) + s.train_grid.HalfUnit(t.train);
  largest_eta_ = std::max(largest_eta_, eta);
  positive_ += t.rollout > kPositiveSlack + s.rollout_grid.HalfUnit(t.rollout);
  zero_filled_ += t.rollout == 0 && t.train < -std::numbers::ln2;
  Bet(t.train - t.rollout, eta + slack, nullptr, {s.id, s.step, t});
}

RecordTest::Entry RecordTest::Add(const RolloutSequence& s) {
  using S = v1::LogprobsSequence;
  const bool filtered = s.selection == S::SELECTION_FILTERED;
  const bool rescored = s.source == S::SOURCE_RESCORED;
  Entry entry = Entry::kEnters;
  if (rescored && !(s.rescore_k2 >= 0 && s.rescore_k2 < kInfinity)) entry = Entry::kRescored;
  if (filtered && !(s.kept_share > 0 && s.kept_share <= 1)) entry = Entry::kFiltered;
  if (s.later_epoch) entry = Entry::kLaterEpoch;
  if (s.copy) entry = Entry::kCopy;
  ++left_out_[static_cast<size_t>(entry)];
  if (entry != Entry::kEnters) return entry;
  rescored_entered_ |= rescored;
  assumed_all_ |= s.selection == S::SELECTION_ABSENT;
  assumed_sampled_ |= s.source == S::SOURCE_ABSENT;
  const double slack = rescored ? std::log1p(2 * s.rescore_k2) : 0;
  slices_.Begin(s.worker, s.step);
  for (const RolloutToken& t : s.tokens) {
    if (!t.judged && !(use_masked_ && t.masked_with_values)) continue;
    if (!t.same_token) {
      if (differing_ids_++ == 0) first_differing_ = Place{s.id, s.step, t}.Witness();
      continue;
    }
    Enter(s, t, slack);
  }
  if (filtered) {
    slices_.ForSequence([&](Part& part) {
      part.up.AddToAll(std::log(s.kept_share));
      part.down.AddToAll(std::log(s.kept_share));
    });
  }
  Look();
  return entry;
}

void RecordTest::AddRow(const v1::LogitsRow& row, int64_t step) {
  if (row.token() < 0) return;
  if (!Usable(row.logprob_train(), row.logprob_rollout())) return;
  for (const double mean : row.downward_means()) {
    if (!(mean > 0) || !std::isfinite(mean)) {
      ++non_finite_;
      return;
    }
  }
  ++left_out_[static_cast<size_t>(Entry::kEnters)];
  RolloutToken token;
  token.token = row.token();
  token.position = row.position();
  token.train = row.logprob_train();
  token.rollout = row.logprob_rollout();
  Bet(token.train - token.rollout, 0, &row.downward_means(), {row.sequence_id(), step, token});
}

void RecordTest::EndStep() {
  if (tokens_ == 0) return;
  const bool up = alpha_ > 0 && log_wealth_up() >= -std::log(alpha_up());
  if (up && alarm_token_ == 0) alarm_token_ = crossed_ != 0 ? crossed_ : tokens_;
  alarmed_down_ |= DownAlarm(kDefaultKappa);
  crossed_ = 0;
}

}  // namespace plumbline::analysis
