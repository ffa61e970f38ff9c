#include "tests/rules/support/rollout_cells.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/real.h"
#include "tests/rules/support/simulated_rollout.h"

namespace plumbline::rules::testing {
namespace {

using Values = std::vector<double>;

Values LogSoftmax(const Values& logits, double temperature = 1) {
  const double top = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const double z : logits) sum += std::exp((z - top) / temperature);
  const double log_sum = std::log(sum);
  Values out(logits.size());
  for (size_t v = 0; v < out.size(); ++v) out[v] = (logits[v] - top) / temperature - log_sum;
  return out;
}

// Returns the distribution after top-p and top-k as in samplers: the likeliest tokens until their
// mass reaches p, at most k.
Values Truncate(Values log_p, double top_p, int top_k) {
  std::vector<size_t> order(log_p.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return log_p[a] > log_p[b]; });
  double mass = 0;
  size_t kept = 0;
  while (kept < order.size() && mass < top_p && (top_k <= 0 || kept < static_cast<size_t>(top_k))) {
    mass += std::exp(log_p[order[kept++]]);
  }
  for (size_t i = 0; i < order.size(); ++i) {
    double& value = log_p[order[i]];
    value = i < kept ? value - std::log(mass) : -kInfinity;
  }
  return log_p;
}

// Returns the distribution after a grammar in a constrained context: each token is allowed with
// probability `size`, at least one. `share` of the contexts are constrained.
Values Constrain(Values log_p, double share, double size, Draw draw) {
  if (!(draw.Uniform() < share)) return log_p;
  const size_t forced = static_cast<size_t>(draw.Uniform() * static_cast<double>(log_p.size()));
  double mass = 0;
  for (size_t v = 0; v < log_p.size(); ++v) {
    const bool allowed = draw.Uniform() < size || v == forced;
    if (!allowed) log_p[v] = -kInfinity;
    if (allowed) mass += std::exp(log_p[v]);
  }
  for (double& value : log_p) value -= std::log(mass);
  return log_p;
}

Spread SpreadOf(const Values& log_p) {
  Spread s;
  for (const double l : log_p) {
    if (l > -kInfinity) s.entropy -= std::exp(l) * l;
  }
  for (const double l : log_p) {
    const double y = -l - s.entropy;
    if (l > -kInfinity) s.varentropy += std::exp(l) * y * y;
  }
  return s;
}

void FillAlias(const Values& log_q, RolloutCell* cell) {
  const size_t n = log_q.size();
  cell->chance.assign(n, 1);
  cell->alias.assign(n, 0);
  Values scaled(n);
  for (size_t v = 0; v < n; ++v) scaled[v] = std::exp(log_q[v]) * static_cast<double>(n);
  std::vector<size_t> small, large;
  for (size_t v = 0; v < n; ++v) (scaled[v] < 1 ? small : large).push_back(v);
  while (!small.empty() && !large.empty()) {
    const size_t s = small.back(), l = large.back();
    small.pop_back();
    cell->chance[s] = scaled[s];
    cell->alias[s] = static_cast<int32_t>(l);
    scaled[l] -= 1 - scaled[s];
    if (scaled[l] < 1) {
      large.pop_back();
      small.push_back(l);
    }
  }
  // The entries left by rounding draw themselves, but a token without probability must not be
  // drawn.
  const auto likeliest =
      static_cast<int32_t>(std::max_element(log_q.begin(), log_q.end()) - log_q.begin());
  for (const size_t v : small) {
    if (log_q[v] > -kInfinity) continue;
    cell->chance[v] = 0;
    cell->alias[v] = likeliest;
  }
}

void FillDivergences(RolloutCell* cell) {
  for (size_t v = 0; v < cell->train.size(); ++v) {
    const double pi = std::exp(cell->train[v]), mu = std::exp(cell->rollout[v]);
    const double d = cell->train[v] - cell->rollout[v];
    if (pi > 0) cell->kl_train_rollout += pi * d;
    if (mu > 0) cell->kl_rollout_train -= mu * d;
    if (pi > 0 && mu > 0) cell->moment_d2 += pi * d * d;
  }
}

void FillMoments(RolloutCell* cell) {
  for (size_t j = 0; j < 14; ++j) {
    const double theta = (j < 7 ? 1 : -1) * std::ldexp(1, -static_cast<int>(j % 7) - 1);
    double sum = 0;
    for (const double l : cell->rollout) {
      if (l > -kInfinity) sum += std::exp(l + theta * (-l - cell->of_rollout.entropy));
    }
    cell->log_moments[j] = std::log(sum);
  }
  for (size_t j = 0; j < 7; ++j) {
    const double lambda = std::ldexp(1, -static_cast<int>(j));
    for (size_t v = 0; v < cell->rollout.size(); ++v) {
      if (!(cell->rollout[v] > -kInfinity)) continue;
      const double rho = std::exp(cell->train[v] - cell->rollout[v]);
      cell->downward_means[j] += std::exp(cell->rollout[v]) * std::max(0.0, 1 + lambda * (1 - rho));
    }
  }
}

void RoundToBf16(Values* logits) {
  for (double& z : *logits) z = RoundToFormat(z, DType::kBF16);
}

// Returns the deviation of a healthy logit's noise. Rows differ log-normally, so that |d| has the
// mean .011 and d^2 the mean .0012 of dense bf16 models.
double NoiseOf(const RolloutSpec& spec, bool flipped, Draw& draw) {
  constexpr double kRowSpread = 1.3;
  const double row = std::exp(kRowSpread * std::min(draw.Normal(), 2.5));
  double deviation = .006 * row;
  if (spec.noise == "fp8") deviation = .014 * row;
  if (flipped) deviation = .25 * std::exp(.5 * draw.Normal());
  return spec.noise == "none" ? 0 : spec.noise_scale * deviation;
}

uint64_t SeedOf(const RolloutSpec& spec, uint64_t what, uint64_t context) {
  return (static_cast<uint64_t>(spec.seed) * 0x9e3779b97f4a7c15u) ^ (what << 40) ^ (context << 8);
}

}  // namespace

RolloutCells::RolloutCells(const RolloutSpec& spec) : spec_(spec) {
  const bool large = spec.family == "large";
  if (!large && spec.family != "small") throw std::runtime_error("unknown family " + spec.family);
  vocabulary_ = spec.vocabulary > 0 ? spec.vocabulary : large ? 4096 : 64;
  contexts_ = spec.contexts > 0 ? spec.contexts : large ? 32 : 256;
}

std::vector<double> RolloutCells::BaseLogits(int context) const {
  Draw draw(SeedOf(spec_, 1, static_cast<uint64_t>(context)));
  Values z(static_cast<size_t>(vocabulary_));
  const double scale = spec_.sharpness * (1 + draw.Uniform());
  for (size_t v = 0; v < z.size(); ++v) {
    z[v] = spec_.family == "large"
               ? scale * (-1.2 * std::log(static_cast<double>(v) + 1.5) + .5 * draw.Normal())
               : scale * 1.3 * draw.Normal();
  }
  return z;
}

// Returns the logits after `updates` further updates.
std::vector<double> RolloutCells::Moved(std::vector<double> logits, int context,
                                        int updates) const {
  for (int j = 1; j <= updates; ++j) {
    Draw draw(SeedOf(spec_, 100 + static_cast<uint64_t>(j), static_cast<uint64_t>(context)));
    for (double& z : logits) z += spec_.drift * draw.Normal();
  }
  return logits;
}

std::unique_ptr<RolloutCell> RolloutCells::Make(const CellKind& kind, int context) const {
  const RolloutSpec& s = spec_;
  const Values first = BaseLogits(context);
  Values base = Moved(first, context, kind.engine);
  Values moved = Moved(first, context, kind.engine + kind.after);
  const auto pass = 1000 * static_cast<uint64_t>(kind.pass);
  Draw draw(
      SeedOf(s, pass + 2 + static_cast<uint64_t>(kind.flipped), static_cast<uint64_t>(context)));
  const double own = NoiseOf(s, kind.flipped, draw);
  const double noise = std::hypot(own, kind.extra);
  Values then = s.behaviour ? Moved(first, context, kind.engine + kind.after - kind.lag) : Values();
  if (noise > 0) {
    for (size_t v = 0; v < moved.size(); ++v) {
      const double normal = draw.Normal();
      moved[v] += noise * normal;
      if (s.behaviour) then[v] += own * normal;  // the batch had another shape
    }
  }
  if (kind.sinful != 0 && s.sin == "sharpening") {
    for (double& z : moved) z *= std::pow(1 + s.size, kind.lag);
  }
  const bool sin = kind.sinful != 0;
  const double temperature = kind.sinful == 2 ? s.other_temperature : s.temperature;
  if (s.rounded == "logits") RoundToBf16(&base);
  if (s.rounded == "logits" || s.rounded == "train-logits") RoundToBf16(&moved);
  const bool heated = sin && (s.sin == "raw-at-temperature" || s.sin == "processed-against-raw" ||
                              s.sin == "both-raw" || s.sin == "truncated");
  const bool cut = sin && (s.sin == "both-raw" || s.sin == "truncated");
  Values drawn = LogSoftmax(base, heated ? temperature : 1);
  if (cut && (s.top_p < 1 || s.top_k > 0)) drawn = Truncate(std::move(drawn), s.top_p, s.top_k);
  const bool constrained = sin && s.sin == "allowed";
  if (constrained) {
    drawn = Constrain(std::move(drawn), s.share, s.size,
                      Draw(SeedOf(s, 5, static_cast<uint64_t>(context))));
  }
  auto cell = std::make_unique<RolloutCell>();
  const bool logs_drawn =
      constrained || (sin && (s.sin == "processed-against-raw" || s.sin == "truncated"));
  cell->rollout = logs_drawn ? drawn : LogSoftmax(base);
  const double trainer_temperature =
      sin && (s.sin == "raw-at-temperature" || s.sin == "truncated") ? temperature : 1;
  cell->train = LogSoftmax(moved, trainer_temperature);
  if (s.behaviour) cell->behaviour = LogSoftmax(then, trainer_temperature);
  cell->flipped = kind.flipped;
  FillAlias(drawn, cell.get());
  cell->of_rollout = SpreadOf(cell->rollout);
  cell->of_train = SpreadOf(cell->train);
  FillDivergences(cell.get());
  if (s.logits) FillMoments(cell.get());
  return cell;
}

const RolloutCell& RolloutCells::Get(const CellKind& kind, int context) {
  auto& row = cells_[kind];
  if (row.empty()) row.resize(static_cast<size_t>(contexts_));
  auto& cell = row[static_cast<size_t>(context)];
  if (cell == nullptr) cell = Make(kind, context);
  return *cell;
}

}  // namespace plumbline::rules::testing
