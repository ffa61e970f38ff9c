#include "rules/lib/rollout_sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace plumbline::rules {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kCap = 4;  // nats

// theta = 2^-1 .. 2^-7.
constexpr std::array<double, 7> kTheta = {.5, .25, .125, .0625, .03125, .015625, .0078125};

// (e^x - 1 - x) / x^2 for x = theta b >= 0, b at most 1,000 nats.
std::array<double, 7> Bennett(double b) {
  std::array<double, 7> g;
  double e = std::exp(kTheta.back() * b);
  for (size_t j = kTheta.size(); j-- > 0; e *= e) {
    const double x = kTheta[j] * b;
    g[j] = x < .02 ? .5 + x / 6 * (1 + x / 4 * (1 + x / 5 * (1 + x / 6))) : (e - 1 - x) / (x * x);
  }
  return g;
}

bool Recorded(double x) { return std::isfinite(x); }

}  // namespace

void ClusterSum::Add(double group, double slack) {
  ++groups_;
  sum_ += group;
  slack_ += slack;
  squares_ += static_cast<long double>(group) * group;
}

double ClusterSum::t() const {
  const long double left = std::fabs(sum_) - slack_;
  if (!(squares_ > 0) || !(left > 0)) return 0;
  return static_cast<double>(std::copysign(left, sum_) / std::sqrt(squares_));
}

double ClusterSum::p_value() const {
  if (groups_ < kFewest) return 1;
  if (!(squares_ > 0)) return 1;
  if (!std::isfinite(t())) return 1;
  // Wallace's transformation of t to a normal deviate, good to three figures far into the tail.
  const auto nu = static_cast<double>(groups_ - 1);
  const double z = (8 * nu + 1) / (8 * nu + 3) * std::sqrt(nu * std::log1p(t() * t() / nu));
  return std::erfc(z / std::sqrt(2.0));
}

void SamplerTest::Declare(double temperature) {
  declared_ = true;
  declared_temperature_ = temperature;
}

void SamplerTest::Bet(double x, double slack, double entropy, double varentropy) {
  static const std::array<double, kBets> above = Bennett(kCap);
  const std::array<double, kBets> below = Bennett(entropy);
  Both logs;
  for (size_t j = 0; j < kBets; ++j) {
    const double theta = kTheta[j];
    const double vt = varentropy * theta * theta;
    logs[j] = -theta * (x + slack) - vt * below[j];
    logs[kBets + j] = theta * std::min(x - slack, kCap) - vt * above[j];
  }
  wealth_.Add(logs);
}

bool SamplerTest::AddOwn(const RolloutSequence& s, const RolloutToken& t, Group* group) {
  if (!Recorded(t.rollout_entropy)) return false;
  const double x = -t.rollout - t.rollout_entropy;
  // No vocabulary has an entropy of 1,000 nats.
  if (!Recorded(x) || !(t.rollout_entropy >= 0 && t.rollout_entropy <= 1000)) {
    ++non_finite_;
    return true;
  }
  const double of_entropy = s.rollout_entropy_grid.HalfUnit(t.rollout_entropy);
  const double slack = s.rollout_grid.HalfUnit(t.rollout) + of_entropy;
  if (!Recorded(t.rollout_varentropy) || t.rollout_varentropy < 0) {
    ++entropy_only_.tokens;
    entropy_only_.x += x;
    group->sum += x;
    group->slack += slack;
    return true;
  }
  const double v = t.rollout_varentropy + s.rollout_varentropy_grid.HalfUnit(t.rollout_varentropy);
  Bet(x, slack, t.rollout_entropy + of_entropy, v);
  ++own_.tokens;
  own_.x += x;
  own_.v += v;
  return true;
}

bool SamplerTest::AddTrained(const RolloutSequence& s, const RolloutToken& t, Group* group) {
  if (!Recorded(t.train_entropy)) return false;
  const double d = t.train - t.rollout;
  // pi = 0: rho ln pi is 0.
  const double rho = std::exp(d);
  const double x = t.train == -kInfinity ? 0 : rho * (-t.train - t.train_entropy);
  if (!Recorded(t.rollout) || !Recorded(x)) {
    ++non_finite_;
    return true;
  }
  ++trained_.tokens;
  trained_.x += x;
  if (Recorded(t.train_varentropy)) trained_.v += t.train_varentropy;
  const double eta = s.train_grid.HalfUnit(t.train);
  group->sum += x;
  group->slack += rho * (eta + s.train_entropy_grid.HalfUnit(t.train_entropy)) +
                  std::fabs(x) * std::expm1(eta + s.rollout_grid.HalfUnit(t.rollout));
  return true;
}

SamplerTest::Entry SamplerTest::Add(const RolloutSequence& s) {
  using S = v1::LogprobsSequence;
  const bool filtered = s.selection == S::SELECTION_FILTERED;
  Entry entry = Entry::kEnters;
  if (s.source == S::SOURCE_RESCORED) entry = Entry::kRescored;
  if (filtered && !(s.kept_share > 0 && s.kept_share <= 1)) entry = Entry::kFiltered;
  if (s.later_epoch) entry = Entry::kLaterEpoch;
  ++left_out_[static_cast<size_t>(entry)];
  if (entry != Entry::kEnters) return entry;
  const bool truncates = s.top_p < 1 || s.top_k > 0;
  const bool heats = std::isfinite(s.temperature) && s.temperature != 1;
  if (s.mode == v1::LOGPROB_MODE_RAW && (truncates || heats)) Declare(s.temperature);
  // What raw values are of has full support, whatever was drawn.
  const bool full = s.mode == v1::LOGPROB_MODE_RAW || !truncates;
  Group of_entropy, of_train;
  const uint64_t entropy_tokens = entropy_only_.tokens, trained_tokens = trained_.tokens;
  for (const RolloutToken& t : s.tokens) {
    if (!t.judged || !t.same_token) continue;
    if (AddOwn(s, t, &of_entropy)) continue;
    if (!full || filtered) {
      ++cut_;
      continue;
    }
    AddTrained(s, t, &of_train);
  }
  if (filtered) wealth_.AddToAll(std::log(s.kept_share));
  if (entropy_only_.tokens > entropy_tokens && !filtered)
    entropy_groups_.Add(of_entropy.sum, of_entropy.slack);
  if (trained_.tokens > trained_tokens) trained_groups_.Add(of_train.sum, of_train.slack);
  return entry;
}

void SamplerTest::AddRow(const v1::LogitsRow& row) {
  if (row.token() < 0 || row.log_moments_size() != static_cast<int>(2 * kBets)) return;
  const double x = -row.logprob_rollout() - row.entropy_rollout();
  Both logs;
  bool finite = Recorded(x);
  for (size_t j = 0; j < kBets; ++j) {
    const auto at = static_cast<int>(j);
    const double psi_above = row.log_moments(at);
    const double psi_below = row.log_moments(at + static_cast<int>(kBets));
    finite = finite && Recorded(psi_above) && Recorded(psi_below);
    logs[j] = -kTheta[j] * x - psi_below;
    logs[kBets + j] = kTheta[j] * x - psi_above;
  }
  if (!finite) {
    ++non_finite_;
    return;
  }
  wealth_.Add(logs);
  ++left_out_[static_cast<size_t>(Entry::kEnters)];
  ++rows_.tokens;
  rows_.x += x;
  rows_.v += row.varentropy_rollout();
}

double SamplerTest::log_wealth() const { return wealth_.log(); }

void SamplerTest::EndStep() {
  if (alarmed_ != SamplerSide::kNone || !(alpha_ > 0)) return;
  if (!(wealth_.log() >= -std::log(alpha_))) return;
  const Both logs = wealth_.logs();
  const auto middle = logs.begin() + kBets;
  alarmed_ = *std::max_element(logs.begin(), middle) > *std::max_element(middle, logs.end())
                 ? SamplerSide::kBelow
                 : SamplerSide::kAbove;
}

SamplerTest::By SamplerTest::by() const {
  if (rows_.tokens > 0) return By::kLogits;
  if (own_.tokens > 0) return By::kRollout;
  if (entropy_only_.tokens > 0) return By::kRolloutEntropy;
  return trained_.tokens > 0 ? By::kTrainer : By::kNothing;
}

namespace {

bool Sequential(SamplerTest::By by) {
  return by == SamplerTest::By::kLogits || by == SamplerTest::By::kRollout;
}

}  // namespace

double SamplerTest::p_value() const {
  switch (by()) {
    case By::kRolloutEntropy:
      return entropy_groups_.p_value();
    case By::kTrainer:
      return trained_groups_.p_value();
    default:
      return kNotRecorded;
  }
}

SamplerSide SamplerTest::FinalLook() const {
  if (Sequential(by()) || !(p_value() <= alpha_)) return SamplerSide::kNone;
  return mean() < 0 ? SamplerSide::kBelow : SamplerSide::kAbove;
}

uint64_t SamplerTest::tokens() const {
  switch (by()) {
    case By::kLogits:
      return rows_.tokens;
    case By::kRollout:
      return own_.tokens;
    case By::kRolloutEntropy:
      return entropy_only_.tokens;
    case By::kTrainer:
      return trained_.tokens;
    case By::kNothing:
      break;
  }
  return 0;
}

uint64_t SamplerTest::groups() const {
  return by() == By::kTrainer ? trained_groups_.groups() : entropy_groups_.groups();
}

double SamplerTest::mean() const {
  const Sums& sums = by() == By::kLogits           ? rows_
                     : by() == By::kRollout        ? own_
                     : by() == By::kRolloutEntropy ? entropy_only_
                                                   : trained_;
  return sums.tokens > 0 ? static_cast<double>(sums.x / sums.tokens) : kNotRecorded;
}

double SamplerTest::temperature() const {
  const Sums& sums = by() == By::kLogits ? rows_ : by() == By::kRollout ? own_ : trained_;
  if (!(sums.v > 0) || by() == By::kRolloutEntropy) return kNotRecorded;
  const double inverse = 1 - static_cast<double>(sums.x / sums.v);
  return inverse > 0 ? 1 / inverse : kInfinity;
}

}  // namespace plumbline::rules
