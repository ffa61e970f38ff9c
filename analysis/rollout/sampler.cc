#include "analysis/rollout/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "analysis/statistics/statistics.h"
#include "base/real.h"

namespace plumbline::analysis {
namespace {

constexpr double kCap = 8;  // limit of x, in nats
// Largest factor of one token, because Wealth accepts no larger ones.
constexpr double kMostFactor = 1e9;

// theta = 2^-1 .. 2^-7.
constexpr std::array<double, 7> kTheta = {.5, .25, .125, .0625, .03125, .015625, .0078125};

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
  const double z = NormalDeviateOfT(t(), static_cast<double>(groups_ - 1));
  return std::erfc(std::fabs(z) / std::sqrt(2.0));
}

void SamplerTest::Declare(double temperature) {
  declared_ = true;
  declared_temperature_ = temperature;
}

namespace {

// Returns the factors of one token for the bets of second order: for "below", then for "above".
std::array<double, 14> Factors(double x, double slack, double varentropy) {
  const double steepest = std::sqrt(.5 / varentropy);  // infinite if the variance is 0
  std::array<double, 14> factors;
  for (size_t j = 0; j < kTheta.size(); ++j) {
    const double s = std::min(kTheta[j], steepest);
    const double rest = 1 - s * s * varentropy;
    const double below = std::max(0.0, 1 - s * (x + slack));
    const double above = std::max(0.0, 1 + s * std::min(x - slack, kCap));
    factors[j] = std::min(kMostFactor, (below * below + rest) / 2);
    factors[kTheta.size() + j] = (above * above + rest) / 2;
  }
  return factors;
}

}  // namespace

void SamplerTest::Part::EndSequence(bool entropy_counts) {
  if (of_entropy.any && entropy_counts) entropy_groups.Add(of_entropy.sum, of_entropy.slack);
  if (of_train.any) trained_groups.Add(of_train.sum, of_train.slack);
  of_entropy = of_train = {};
}

bool SamplerTest::AddOwn(const RolloutSequence& s, const RolloutToken& t) {
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
    slices_.ForToken(t.version, [&](Part& part) {
      ++part.entropy_only.tokens;
      part.entropy_only.x += x;
      part.of_entropy.Add(x, slack);
    });
    return true;
  }
  const double v = t.rollout_varentropy + s.rollout_varentropy_grid.HalfUnit(t.rollout_varentropy);
  const Both factors = Factors(x, slack, v);
  slices_.ForToken(t.version, [&](Part& part) {
    part.wealth.Multiply(factors);
    ++part.own.tokens;
    part.own.x += x;
    part.own.v += v;
  });
  return true;
}

bool SamplerTest::AddTrained(const RolloutSequence& s, const RolloutToken& t) {
  if (!Recorded(t.train_entropy)) return false;
  const double d = t.train - t.rollout;
  // If pi = 0, rho ln pi is 0.
  const double rho = std::exp(d);
  const double x = t.train == -kInfinity ? 0 : rho * (-t.train - t.train_entropy);
  if (!Recorded(t.rollout) || !Recorded(x)) {
    ++non_finite_;
    return true;
  }
  const double eta = s.train_grid.HalfUnit(t.train);
  const double slack = rho * (eta + s.train_entropy_grid.HalfUnit(t.train_entropy)) +
                       std::fabs(x) * std::expm1(eta + s.rollout_grid.HalfUnit(t.rollout));
  slices_.ForToken(t.version, [&](Part& part) {
    ++part.trained.tokens;
    part.trained.x += x;
    if (Recorded(t.train_varentropy)) part.trained.v += t.train_varentropy;
    part.of_train.Add(x, slack);
  });
  return true;
}

SamplerTest::Entry SamplerTest::Add(const RolloutSequence& s) {
  using S = v1::LogprobsSequence;
  const bool filtered = s.selection == S::SELECTION_FILTERED;
  Entry entry = Entry::kEnters;
  if (s.source == S::SOURCE_RESCORED) entry = Entry::kRescored;
  if (filtered && !(s.kept_share > 0 && s.kept_share <= 1)) entry = Entry::kFiltered;
  if (s.later_epoch) entry = Entry::kLaterEpoch;
  if (s.copy) entry = Entry::kCopy;
  ++left_out_[static_cast<size_t>(entry)];
  if (entry != Entry::kEnters) return entry;
  const bool truncates = s.top_p < 1 || s.top_k > 0;
  const bool heats = std::isfinite(s.temperature) && s.temperature != 1;
  if (s.mode == v1::LOGPROB_MODE_RAW && (truncates || heats)) Declare(s.temperature);
  // Raw values describe a distribution with full support, also if top-p or top-k restricted the
  // draw.
  const bool full = s.mode == v1::LOGPROB_MODE_RAW || !truncates;
  slices_.Begin(s.worker, s.step);
  for (const RolloutToken& t : s.tokens) {
    if (!(t.judged || (use_masked_ && t.masked_with_values)) || !t.same_token) continue;
    missing_.Add(t);
    if (AddOwn(s, t)) continue;
    if (!full || filtered) {
      ++cut_;
      continue;
    }
    AddTrained(s, t);
  }
  slices_.ForSequence([&](Part& part) {
    if (filtered) part.wealth.AddToAll(std::log(s.kept_share));
    part.EndSequence(!filtered);
  });
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
  Part& pool = slices_.pool();
  pool.wealth.Add(logs);
  ++left_out_[static_cast<size_t>(Entry::kEnters)];
  ++pool.rows.tokens;
  pool.rows.x += x;
  pool.rows.v += row.varentropy_rollout();
}

double SamplerTest::log_wealth() const {
  return slices_.LogMixed([&](const Part& part) { return part.Of(by()).tokens; },
                          [](const Part& part) { return part.wealth.log(); });
}

void SamplerTest::EndStep() {
  if (alarmed_ != SamplerSide::kNone || !(alpha_ > 0)) return;
  if (log_wealth() >= -std::log(alpha_) && !missing_.depend()) alarmed_ = leader().side;
}

SamplerTest::By SamplerTest::by() const {
  const Part& pool = slices_.pool();
  if (pool.rows.tokens > 0) return By::kLogits;
  if (pool.own.tokens > 0) return By::kRollout;
  if (pool.entropy_only.tokens > 0) return By::kRolloutEntropy;
  return pool.trained.tokens > 0 ? By::kTrainer : By::kNothing;
}

namespace {

bool Sequential(SamplerTest::By by) {
  return by == SamplerTest::By::kLogits || by == SamplerTest::By::kRollout;
}

}  // namespace

const SamplerTest::Sums& SamplerTest::Part::Of(SamplerTest::By by) const {
  switch (by) {
    case By::kLogits:
      return rows;
    case By::kRollout:
      return own;
    case By::kRolloutEntropy:
      return entropy_only;
    default:
      return trained;
  }
}

const ClusterSum& SamplerTest::Part::Groups(SamplerTest::By by) const {
  return by == By::kTrainer ? trained_groups : entropy_groups;
}

SamplerTest::Leader SamplerTest::Describe(const SliceName& name, const Part& part) const {
  const Sums& sums = part.Of(by());
  Leader leader{.name = name, .tokens = sums.tokens, .groups = part.Groups(by()).groups()};
  if (sums.tokens > 0) leader.mean = static_cast<double>(sums.x / sums.tokens);
  if (sums.v > 0 && by() != By::kRolloutEntropy) {
    const double inverse = 1 - static_cast<double>(sums.x / sums.v);
    leader.temperature = inverse > 0 ? 1 / inverse : kInfinity;
  }
  if (Sequential(by())) {
    const Both logs = part.wealth.logs();
    const auto middle = logs.begin() + kBets;
    const bool below =
        *std::max_element(logs.begin(), middle) > *std::max_element(middle, logs.end());
    leader.side = below ? SamplerSide::kBelow : SamplerSide::kAbove;
  } else {
    leader.side = leader.mean < 0 ? SamplerSide::kBelow : SamplerSide::kAbove;
  }
  return leader;
}

// The evidence of a part is ln(share * wealth), or -ln(p / share).
SamplerTest::Leader SamplerTest::leader() const {
  const bool sequential = Sequential(by());
  Leader leader;
  double most = -kInfinity;
  slices_.ForEach([&](const SliceName& name, double share, const Part& part) {
    const double log =
        std::log(share) + (sequential ? part.wealth.log() : -std::log(part.Groups(by()).p_value()));
    if (!name.pool() && !(log > most)) return;
    most = log;
    leader = Describe(name, part);
  });
  return leader;
}

double SamplerTest::p_value() const {
  if (Sequential(by()) || by() == By::kNothing) return kNotRecorded;
  double least = 1;
  slices_.ForEach([&](const SliceName&, double share, const Part& part) {
    least = std::min(least, part.Groups(by()).p_value() / share);
  });
  return least;
}

SamplerSide SamplerTest::FinalLook() const {
  if (Sequential(by()) || !(p_value() <= alpha_) || missing_.depend()) return SamplerSide::kNone;
  return leader().side;
}

uint64_t SamplerTest::tokens() const {
  return by() == By::kNothing ? 0 : slices_.pool().Of(by()).tokens;
}

uint64_t SamplerTest::groups() const { return slices_.pool().Groups(by()).groups(); }

}  // namespace plumbline::analysis
