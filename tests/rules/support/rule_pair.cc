#include "tests/rules/support/rule_pair.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "tests/rules/support/spec_values.h"

namespace plumbline::rules::testing {
namespace {

using Rows = std::vector<double>;
using Choices = std::vector<int64_t>;

template <typename T>
void Put(v1::Tensor* t, v1::DType dtype, std::vector<int64_t> shape, const std::vector<T>& data) {
  t->set_dtype(dtype);
  for (int64_t n : shape) t->add_shape(n);
  t->mutable_data()->assign(reinterpret_cast<const char*>(data.data()), data.size() * sizeof(T));
}

class RulePairMaker {
 public:
  explicit RulePairMaker(const RulePairSpec& spec) : spec_(spec), draw_(spec.seed) {}

  std::vector<v1::Batch> Run() {
    Rows truth(Cells());
    for (double& x : truth) x = static_cast<float>(draw_.Normal());
    Rows seen = truth;
    for (double& x : seen) x = static_cast<float>(x + spec_.noise * draw_.Normal());
    Rows used = seen;
    for (double& x : used) x += spec_.extra * draw_.Normal();
    const Choices there = Choose(spec_.infer, used);
    return {Record(false, spec_.train, truth, spec_.replayed ? there : Choose(spec_.train, truth)),
            Record(true, spec_.infer, seen, there)};
  }

 private:
  size_t Cells() const {
    return static_cast<size_t>(spec_.tokens) * static_cast<size_t>(spec_.experts);
  }

  std::vector<float> Bias(const SideRule& rule) const {
    std::vector<float> bias;
    Draw draw(rule.bias_seed);
    for (int e = 0; e < spec_.experts; ++e)
      bias.push_back(static_cast<float>(rule.bias * draw.Normal()));
    return bias;
  }

  Rows AfterFunction(const SideRule& rule, const double* x) const {
    Rows s(x, x + spec_.experts);
    double sum = 0;
    for (double& v : s) sum += std::exp(v);
    for (double& v : s)
      v = rule.function == v1::SCORE_SIGMOID ? 1 / (1 + std::exp(-v)) : std::exp(v) / sum;
    return s;
  }

  // In float, as routers compute.
  Choices Choose(const SideRule& rule, const Rows& x) const {
    const std::vector<float> bias = Bias(rule);
    Choices chosen;
    for (int t = 0; t < spec_.tokens; ++t) {
      const Rows s = AfterFunction(rule, x.data() + static_cast<ptrdiff_t>(t) * spec_.experts);
      std::vector<float> value;
      for (size_t e = 0; e < s.size(); ++e) value.push_back(static_cast<float>(s[e]) + bias[e]);
      Limit(rule, value);
      std::vector<int64_t> order(s.size());
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
        return value[static_cast<size_t>(a)] > value[static_cast<size_t>(b)];
      });
      chosen.insert(chosen.end(), order.begin(), order.begin() + spec_.top_k);
    }
    return chosen;
  }

  // Excludes the experts of the groups whose best expert is low.
  void Limit(const SideRule& rule, std::vector<float>& value) const {
    if (rule.groups == 0) return;
    const size_t size = value.size() / static_cast<size_t>(rule.groups);
    std::vector<std::pair<float, size_t>> best;
    for (size_t g = 0; g < static_cast<size_t>(rule.groups); ++g) {
      const auto first = value.begin() + static_cast<ptrdiff_t>(g * size);
      best.emplace_back(-*std::max_element(first, first + static_cast<ptrdiff_t>(size)), g);
    }
    std::sort(best.begin(), best.end());
    for (size_t i = static_cast<size_t>(rule.top_groups); i < best.size(); ++i) {
      for (size_t e = best[i].second * size; e < (best[i].second + 1) * size; ++e)
        value[e] = -HUGE_VALF;
    }
  }

  v1::Batch Record(bool infer, const SideRule& rule, const Rows& x, const Choices& chosen) const {
    v1::Batch batch;
    v1::Source& source = *batch.add_sources();
    source.set_run("run");
    source.set_role(v1::ROLE_TRAINER);
    source.set_world_size(1);
    v1::Evidence& evidence = *batch.add_evidence();
    evidence.mutable_site()->set_layer("layers.0");
    evidence.mutable_site()->set_op("routing");
    evidence.set_call(infer ? 1 : 0);
    v1::RoutingConfig& config = *evidence.mutable_routing()->mutable_config();
    config.set_top_k(static_cast<uint32_t>(spec_.top_k));
    config.set_experts(static_cast<uint32_t>(spec_.experts));
    config.set_mode(infer ? "eval" : "train");
    config.set_score_function(rule.function);
    config.set_groups(static_cast<uint32_t>(rule.groups));
    config.set_top_groups(static_cast<uint32_t>(rule.top_groups));
    v1::RoutingSample& sample = *evidence.mutable_routing()->mutable_sample();
    sample.set_scores_are_logits(!rule.after_function);
    std::vector<float> scores;
    std::vector<int64_t> sequence;
    std::vector<int32_t> position;
    for (int t = 0; t < spec_.tokens; ++t) {
      const double* row = x.data() + static_cast<ptrdiff_t>(t) * spec_.experts;
      Rows s = rule.after_function ? AfterFunction(rule, row) : Rows(row, row + spec_.experts);
      const std::vector<float> bias = Bias(rule);
      for (size_t e = 0; rule.bias_in_scores && e < s.size(); ++e) s[e] += bias[e];
      scores.insert(scores.end(), s.begin(), s.end());
      sequence.push_back(t / 64);
      position.push_back(t % 64);
    }
    const int64_t n = spec_.tokens;
    Put(sample.mutable_scores(), v1::DTYPE_F32, {n, spec_.experts}, scores);
    Put(sample.mutable_topk_indices(), v1::DTYPE_I64, {n, spec_.top_k}, chosen);
    Put(sample.mutable_sequence_id(), v1::DTYPE_I64, {n}, sequence);
    Put(sample.mutable_position(), v1::DTYPE_I32, {n}, position);
    if (rule.bias != 0 && rule.record_bias && !rule.bias_in_scores)
      Put(sample.mutable_expert_bias(), v1::DTYPE_F32, {spec_.experts}, Bias(rule));
    return batch;
  }

  const RulePairSpec& spec_;
  Draw draw_;
};

}  // namespace

std::vector<v1::Batch> RulePair(const RulePairSpec& spec) { return RulePairMaker(spec).Run(); }

}  // namespace plumbline::rules::testing
