#include "tests/rules/support/applied_gradients.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/rules/support/spec_values.h"
#include "tests/support/batches.h"

namespace plumbline::rules::testing {
namespace {

using Values = std::vector<double>;

class GradientMaker {
 public:
  GradientMaker(const AppliedSpec& spec, int step)
      : s_(spec), step_(step), draw_(spec.seed * 1000003 + static_cast<uint64_t>(step) * 7919) {
    double all = 0;
    for (int r = 0; r < s_.ranks; ++r) tokens_.push_back(s_.tokens ? 0.5 + draw_.Uniform() : 1);
    for (const double t : tokens_) all += t;
    for (double& t : tokens_) t /= all;
    for (int p = 0; p < s_.parameters; ++p) Draws(p);
  }

  // Returns what rank r applies to parameter p.
  Values Applied(int p, int r) {
    const bool faulty = p == s_.parameter && step_ >= s_.first && step_ <= s_.last;
    Values out(static_cast<size_t>(s_.samples));
    for (size_t i = 0; i < out.size(); ++i) out[i] = Round(Sum(p, r, i, faulty) * Clip(p));
    if (s_.fault == "masked" && faulty) {
      for (size_t i = 0; i < out.size(); i += 2) out[i] = 0;
    }
    if (s_.fault == "clamped") Clamp(p, &out);
    if (s_.fault == "decay" && p % 2 == 0) {
      Draw weight(s_.seed + static_cast<uint64_t>(p));
      for (double& x : out) x = Round(x + 0.3 * Scale(p) * weight.Normal());
    }
    if (s_.fault == "noise") {
      Draw noise(s_.seed * 31 + static_cast<uint64_t>(step_ * 100 + p));
      for (double& x : out) x = Round(x + 0.3 * Scale(p) * noise.Normal());
    }
    return out;
  }

  const Values& Own(int p, int r) const { return own_[static_cast<size_t>(p * s_.ranks + r)]; }

 private:
  static double Scale(int p) { return std::pow(10.0, -(p / 3)); }
  double Round(double x) const { return RoundToFormat(x, s_.dtype); }

  void Draws(int p) {
    Values common(static_cast<size_t>(s_.samples));
    for (double& x : common) x = draw_.Normal();
    for (int r = 0; r < s_.ranks; ++r) {
      Values& own = own_.emplace_back(common.size());
      for (size_t i = 0; i < own.size(); ++i) {
        const double x = s_.alike * common[i] + (1 - s_.alike) * draw_.Normal();
        own[i] = Round(Scale(p) * x);
      }
      if (r < s_.twins) own = own_[static_cast<size_t>(p * s_.ranks)];
      if (r == s_.absent_rank && p == s_.parameter) std::fill(own.begin(), own.end(), 0.0);
      if (r == 0 && (s_.poison == "all" ||
                     (s_.poison == "one" && p == (s_.fault.empty() ? s_.parameter : 0))))
        own[3] = NAN;
    }
  }

  double Clip(int p) const {
    const bool named = p == s_.parameter;
    if (s_.fault == "clip-each") return s_.clip / (1 + 0.37 * p + 0.1 * step_);
    return s_.fault == "halved" && named ? 0.1 * s_.clip : s_.clip;
  }

  double Weight(int r, bool faulty) const {
    const double w = tokens_[static_cast<size_t>(r)];
    if (!faulty) return w;
    if (s_.fault == "scaled") return w * s_.ranks;
    if (s_.fault == "doubled") return r == s_.rank ? 2 * w : w;
    if (s_.fault == "left-out") return r == s_.rank ? 0 : w;
    if (s_.fault == "left-out-shared")
      return r == s_.rank ? 0 : w / (1 - tokens_[static_cast<size_t>(s_.rank)]);
    return w;
  }

  double Sum(int p, int holder, size_t i, bool faulty) const {
    const bool alone = s_.fault == "local" || s_.fault == "not-summed" ||
                       (s_.fault == "one-not-summed" && p == s_.parameter);
    if (alone && step_ >= s_.first) return Own(p, holder)[i];
    if (s_.fault == "compressed" && std::fabs(Own(p, 0)[i]) < Scale(p)) return 0;
    double sum = 0;
    for (int r = 0; r < s_.ranks; ++r)
      sum = RoundToFormat(sum + Weight(r, faulty) * Own(p, r)[i], s_.sum);
    if (faulty && s_.fault == "other") {
      const int next = (p + 1) % s_.parameters;
      sum += tokens_.back() * Own(next, s_.ranks - 1)[i];
    }
    return sum;
  }

  void Clamp(int p, Values* out) const {
    for (double& x : *out) x = std::clamp(x, -0.2 * Scale(p), 0.2 * Scale(p));
  }

  const AppliedSpec& s_;
  int step_;
  Draw draw_;
  Values tokens_;            // shares
  std::vector<Values> own_;  // [parameter][rank]
};

}  // namespace

void Set(AppliedSpec& spec, const std::string& key, const std::string& value) {
  if (key == "seed") {
    spec.seed = std::stoull(value);
    return;
  }
  SetField(
      {.whole = {{"ranks", &spec.ranks},
                 {"parameters", &spec.parameters},
                 {"steps", &spec.steps},
                 {"samples", &spec.samples},
                 {"parameter", &spec.parameter},
                 {"rank", &spec.rank},
                 {"first", &spec.first},
                 {"last", &spec.last},
                 {"absent_rank", &spec.absent_rank},
                 {"twins", &spec.twins}},
       .number = {{"alike", &spec.alike}, {"clip", &spec.clip}},
       .flag = {{"tokens", &spec.tokens}, {"declared", &spec.declared}, {"whole", &spec.whole}},
       .text = {{"fault", &spec.fault}, {"poison", &spec.poison}},
       .dtype = {{"dtype", &spec.dtype}, {"sum", &spec.sum}}},
      key, value);
}

v1::Batch AppliedGradients(const AppliedSpec& spec) {
  v1::Batch batch;
  for (int r = 0; r < spec.ranks; ++r) AddTrainer(r, spec.ranks, &batch);
  for (int step = 0; step < spec.steps; ++step) {
    GradientMaker maker(spec, step);
    for (int p = 0; p < spec.parameters; ++p) {
      for (int r = 0; r < spec.ranks; ++r) {
        v1::Evidence& e = *batch.add_evidence();
        e.set_source(static_cast<uint32_t>(r));
        e.set_step(step);
        e.mutable_site()->set_layer("layers." + std::to_string(p) + ".weight");
        e.mutable_site()->set_op("gradient");
        v1::Reduction& reduction = *e.mutable_reduction();
        reduction.mutable_call()->set_algorithm("applied-gradient");
        reduction.mutable_call()->set_op(spec.declared ? v1::ReductionCall::OP_AVG
                                                       : v1::ReductionCall::OP_UNSPECIFIED);
        reduction.mutable_call()->set_count(100000);
        v1::ReductionSample& sample = *reduction.mutable_sample();
        Values own = maker.Own(p, r), applied = maker.Applied(p, r);
        std::vector<int64_t> shape = {spec.samples};
        for (int other = 1; spec.whole && other < spec.ranks; ++other) {
          const Values more = maker.Own(p, other), more_applied = maker.Applied(p, other);
          own.insert(own.end(), more.begin(), more.end());
          applied.insert(applied.end(), more_applied.begin(), more_applied.end());
        }
        if (spec.whole) shape = {spec.ranks, spec.samples};
        *sample.mutable_inputs() = TensorOf(own, spec.dtype, shape);
        *sample.mutable_output() = TensorOf(applied, spec.dtype, shape);
        if (spec.whole) break;
      }
    }
  }
  return batch;
}

}  // namespace plumbline::rules::testing
