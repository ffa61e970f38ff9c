#include "tests/rules/support/update_run.h"

#include <cmath>
#include <limits>

#include "kernels/evidence/update.h"

namespace plumbline::rules::testing {
namespace {

class Run {
 public:
  explicit Run(const UpdateRunSpec& spec)
      : spec_(spec), draw_(static_cast<uint64_t>(spec.seed)), n_(spec.elements) {
    for (int i = 0; i < spec.elements; ++i) {
      const double w = spec.weight + spec.weight_sd * draw_.Normal();
      master_.push_back(RoundToFormat(w, spec.resumed ? DType::kF32 : spec.dtype));
      weights_.push_back(RoundToFormat(w, spec.dtype));
      moment_.push_back(RoundToFormat(
          spec.moment * (1 + spec.moment_spread * (draw_.Uniform() - 0.5)), spec.moment_dtype));
    }
  }

  void Step(int step, uint32_t source, v1::Batch* batch) {
    const std::vector<double> before = weights_, moment_before = moment_;
    const std::vector<double> gradient = Gradients();
    for (size_t i = 0; spec_.moments && i < n(); ++i)
      moment_[i] = Moment(moment_[i], gradient[i], step);
    const std::vector<double> intended = Intended();
    for (size_t i = 0; i < n(); ++i) weights_[i] = Applied(i, intended[i], step);
    v1::Evidence& e = *batch->add_evidence();
    e.set_source(source);
    e.mutable_site()->set_layer("layers.0.w");
    e.mutable_site()->set_op("update");
    e.set_step(step);
    e.set_sample_size(n());
    Fill(Poisoned(before, NAN), intended, Poisoned(gradient, INFINITY), moment_before, e);
  }

 private:
  size_t n() const { return static_cast<size_t>(n_); }

  std::vector<double> Poisoned(std::vector<double> values, double poison) const {
    for (size_t i = 0; spec_.poison_every > 0 && i < values.size();
         i += static_cast<size_t>(spec_.poison_every))
      values[i] = poison;
    return values;
  }

  std::vector<double> Gradients() {
    std::vector<double> g;
    for (size_t i = 0; i < n(); ++i)
      g.push_back(
          RoundToFormat(spec_.gradient_mean + spec_.gradient_sd * draw_.Normal(), DType::kF32));
    return g;
  }

  std::vector<double> Intended() {
    std::vector<double> intended;
    for (size_t i = 0; i < n(); ++i) {
      double change = spec_.step_sd * draw_.Normal();
      if (spec_.optimizer == "ema" || spec_.optimizer == "EMA" || spec_.decay > 0.5)
        change = (1 - spec_.decay) * spec_.apart * std::abs(weights_[i]) * draw_.Normal();
      if (draw_.Uniform() >= spec_.moving) change = 0;
      if (spec_.moments && moment_[i] == 0 && !spec_.finite_steps && !(EpsAdded() > 0))
        change = INFINITY;
      intended.push_back(RoundToFormat(change, DType::kF32));
    }
    return intended;
  }

  double EpsAdded() const {
    const DType t = spec_.eps_dtype == DType::kUnspecified ? spec_.moment_dtype : spec_.eps_dtype;
    return RoundToFormat(spec_.eps, t);
  }

  double Stochastic(double x, DType t) {
    const double unit = UlpOf(x, t), low = std::floor(x / unit) * unit;
    return draw_.Uniform() < (x - low) / unit ? low + unit : low;
  }

  double Moment(double v, double g, int step) {
    const double b = spec_.beta2, rest = 1 - b;
    const DType t = spec_.moment_dtype;
    if (spec_.arithmetic == "fused") return RoundToFormat(b * v + rest * g * g, t);
    if (spec_.arithmetic == "float") {
      const auto x = static_cast<float>(g);
      return RoundToFormat(static_cast<double>(static_cast<float>(b) * static_cast<float>(v) +
                                               static_cast<float>(rest) * x * x),
                           t);
    }
    if (spec_.arithmetic == "multiply-add")
      return RoundToFormat(RoundToFormat(b * v, t) + rest * g * g, t);
    if (spec_.arithmetic == "each") {
      return RoundToFormat(
          RoundToFormat(b * v, t) + RoundToFormat(rest * RoundToFormat(g * g, t), t), t);
    }
    if (spec_.arithmetic == "stochastic") return Stochastic(b * v + rest * g * g, t);
    // Rows of a sparse embedding: those without a gradient are skipped.
    if (spec_.arithmetic == "lazy") return g == 0 ? v : RoundToFormat(b * v + rest * g * g, t);
    // Every second step is skipped; the others are rounded stochastically.
    if (spec_.arithmetic == "half-skipped")
      return step % 2 == 0 ? v : Stochastic(b * v + rest * g * g, t);
    if (spec_.arithmetic == "amsgrad") return std::max(v, RoundToFormat(b * v + rest * g * g, t));
    return v;  // skipped
  }

  double Applied(size_t i, double change, int step) {
    const double w = weights_[i];
    if (spec_.rounding == "skipped" || !std::isfinite(change)) return w;
    if (step % spec_.update_every != 0) return w;
    if (spec_.rounding == "wrong") return RoundToFormat(w + 0.3 * change, spec_.dtype);
    if (spec_.rounding == "master") {
      master_[i] = RoundToFormat(master_[i] + change, DType::kF32);
      return RoundToFormat(master_[i], spec_.dtype);
    }
    if (spec_.rounding == "toward-zero")
      return RoundToFormat(w + change, spec_.dtype, RoundingMode::kTowardZero);
    if (spec_.rounding == "down")
      return RoundToFormat(w + change, spec_.dtype, RoundingMode::kDown);
    if (spec_.rounding == "stochastic") return Stochastic(w + change, spec_.dtype);
    return RoundToFormat(w + change, spec_.dtype);
  }

  void Fill(const std::vector<double>& before, const std::vector<double>& intended,
            const std::vector<double>& gradient, const std::vector<double>& moment_before,
            v1::Evidence& e) const {
    const std::vector<int64_t> shape = {n_};
    const Stored b(before, spec_.dtype), a(weights_, spec_.dtype), d(intended, DType::kF32);
    const Stored g(gradient, DType::kF32), m0(moment_before, spec_.moment_dtype),
        m1(moment_, spec_.moment_dtype);
    UpdateInput in{b.View(shape), a.View(shape), d.View(shape), {}, {}, {}};
    if (spec_.moments) {
      if (spec_.gradient) in.gradient = g.View(shape);
      in.moment_before = m0.View(shape);
      in.moment_after = m1.View(shape);
    }
    v1::UpdateConfig& config = *e.mutable_update()->mutable_config();
    config.set_optimizer(spec_.optimizer);
    config.set_lr(spec_.lr);
    config.set_beta2(spec_.describe_beta2 ? spec_.beta2 : NAN);
    config.set_eps(spec_.eps);
    config.set_decay(spec_.decay);
    config.set_eps_dtype(static_cast<v1::DType>(spec_.eps_dtype));
    UpdateOptions options;
    options.with_sample = spec_.sample;
    options.key = static_cast<uint64_t>(e.step() + 1);
    options.max_samples = static_cast<uint32_t>(spec_.max_samples);
    const auto status = FillUpdate(in, options, e.mutable_update());
    if (!status.ok()) throw std::runtime_error(std::string(status.message()));
  }

  const UpdateRunSpec& spec_;
  Draw draw_;
  int64_t n_;
  std::vector<double> weights_, master_, moment_;
};

}  // namespace

void Set(UpdateRunSpec& s, const std::string& key, const std::string& value) {
  SetField({.whole = {{"elements", &s.elements},
                      {"layers", &s.layers},
                      {"ranks", &s.ranks},
                      {"steps", &s.steps},
                      {"max_samples", &s.max_samples},
                      {"update_every", &s.update_every},
                      {"poison_every", &s.poison_every},
                      {"seed", &s.seed}},
            .number = {{"weight_sd", &s.weight_sd},
                       {"weight", &s.weight},
                       {"step_sd", &s.step_sd},
                       {"moving", &s.moving},
                       {"lr", &s.lr},
                       {"beta2", &s.beta2},
                       {"eps", &s.eps},
                       {"decay", &s.decay},
                       {"apart", &s.apart},
                       {"moment", &s.moment},
                       {"moment_spread", &s.moment_spread},
                       {"gradient_mean", &s.gradient_mean},
                       {"gradient_sd", &s.gradient_sd}},
            .flag = {{"moments", &s.moments},
                     {"gradient", &s.gradient},
                     {"say_beta2", &s.describe_beta2},
                     {"resumed", &s.resumed},
                     {"finite_steps", &s.finite_steps},
                     {"sample", &s.sample}},
            .text = {{"rounding", &s.rounding},
                     {"optimizer", &s.optimizer},
                     {"arithmetic", &s.arithmetic}},
            .dtype = {{"dtype", &s.dtype},
                      {"eps_dtype", &s.eps_dtype},
                      {"moment_dtype", &s.moment_dtype}}},
           key, value);
}

v1::Batch UpdateRun(const UpdateRunSpec& spec) {
  v1::Batch batch;
  for (int rank = 0; rank < spec.ranks; ++rank) {
    AddTrainer(rank, spec.ranks, &batch);
    for (int layer = 0; layer < spec.layers; ++layer) {
      UpdateRunSpec one = spec;
      one.seed += 7 * layer;
      Run run(one);
      const int first = batch.evidence_size();
      for (int step = 0; step < spec.steps; ++step)
        run.Step(step, static_cast<uint32_t>(rank), &batch);
      for (int i = first; i < batch.evidence_size(); ++i) {
        batch.mutable_evidence(i)->mutable_site()->set_layer("layers." + std::to_string(layer) +
                                                             ".w");
      }
    }
  }
  return batch;
}

}  // namespace plumbline::rules::testing
