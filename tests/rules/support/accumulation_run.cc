#include "tests/rules/support/accumulation_run.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <vector>

#include "tests/rules/support/spec_values.h"

namespace plumbline::rules::testing {
namespace {

// One rank's sum of one step: addends [K,m] and the sum after each.
struct Sum {
  std::vector<double> addends;
  std::vector<std::vector<double>> after;
};

// `start` is the first addend, if the step begins with a given one.
Sum MakeSum(const AccumulationSpec& s, int rank, const std::vector<double>& start,
            std::mt19937_64& rng) {
  std::normal_distribution<double> normal;
  const auto m = static_cast<size_t>(s.samples);
  const auto k = static_cast<size_t>(s.adds);
  const DType dtype = rank < s.start_rank ? DType::kF32 : s.dtype;
  Sum sum{std::vector<double>(k * m), std::vector<std::vector<double>>(k, std::vector<double>(m))};
  for (size_t i = 0; i < m; ++i) {
    const double c = s.one_mean ? 1 : std::exp(normal(rng)) * (rng() % 2 == 0 ? 1 : -1);
    for (size_t j = 0; j < k; ++j) {
      sum.addends[j * m + i] = RoundToFormat(c * (s.mean + s.spread * normal(rng)), s.addend);
    }
    if (s.poison == "all" || (s.poison == "nan" && i % 5 == 0)) sum.addends[m + i] = NAN;
    if (!start.empty()) sum.addends[i] = start[i];
    double total = 0;
    for (size_t j = 0; j < k; ++j) {
      const size_t at = s.reversed ? k - 1 - j : j;
      total = RoundToFormat(total + sum.addends[at * m + i], dtype, s.rounding);
      sum.after[j][i] = total;
      if (static_cast<int>(j) == s.change_after) total = RoundToFormat(total / 3, dtype);
    }
  }
  return sum;
}

void FillOffsets(const AccumulationSpec& s, int step, v1::Tensor* offsets) {
  offsets->set_dtype(v1::DTYPE_U64);
  offsets->add_shape(s.samples);
  for (int i = 0; i < s.samples; ++i) {
    const uint64_t at =
        static_cast<uint64_t>(i) * 97 + (s.carries.empty() ? static_cast<uint64_t>(step) : 0);
    offsets->mutable_data()->append(reinterpret_cast<const char*>(&at), sizeof(at));
  }
}

void AddReductions(const AccumulationSpec& s, const Sum& sum, const v1::Evidence& base,
                   v1::Batch& batch) {
  const auto m = static_cast<size_t>(s.samples);
  const auto k = static_cast<size_t>(s.adds);
  const size_t piece = (k + static_cast<size_t>(s.segments) - 1) / static_cast<size_t>(s.segments);
  for (size_t first = 0; first < k; first += piece) {
    const size_t last = std::min(k, first + piece);
    std::vector<double> rows;
    if (first > 0) rows = sum.after[first - 1];
    rows.insert(rows.end(), sum.addends.begin() + static_cast<int64_t>(first * m),
                sum.addends.begin() + static_cast<int64_t>(last * m));
    v1::Evidence& e = *batch.add_evidence();
    e = base;
    e.set_call(static_cast<uint32_t>(first / piece));
    v1::Reduction& r = *e.mutable_reduction();
    r.mutable_call()->set_algorithm("accumulation");
    r.mutable_call()->set_op(s.average ? v1::ReductionCall::OP_AVG : v1::ReductionCall::OP_SUM);
    r.mutable_call()->set_count(s.count);
    if (!s.values) {
      r.set_no_sample_reason("not a captured step");
      continue;
    }
    std::vector<double> result = sum.after[last - 1];
    for (double& v : result) {
      if (s.average) v /= s.adds;
      v = RoundToFormat(v, s.result);
    }
    // A piece's first row is the sum so far, in the sum's dtype; one dtype is recorded for all
    // rows.
    const DType t = first > 0 && s.segments > 1 ? s.result : s.addend;
    *r.mutable_sample()->mutable_inputs() =
        TensorOf(rows, t, {static_cast<int64_t>(rows.size() / m), s.samples});
    *r.mutable_sample()->mutable_output() = TensorOf(result, s.result, {s.samples});
    FillOffsets(s, static_cast<int>(base.step()), r.mutable_sample()->mutable_offsets());
  }
}

void AddUpdates(const AccumulationSpec& s, const Sum& sum, const v1::Evidence& base,
                v1::Batch& batch) {
  const auto m = static_cast<size_t>(s.samples);
  std::vector<double> before(m, 0.0);
  // A carried value is not an addend.
  const int first = s.carries == "on" && base.step() > 0 ? 1 : 0;
  if (first == 1) before = sum.after[0];
  for (int k = first; k < s.adds; ++k) {
    const auto row = sum.addends.begin() + static_cast<int64_t>(static_cast<size_t>(k) * m);
    const std::vector<double>& after = sum.after[static_cast<size_t>(k)];
    v1::Evidence& e = *batch.add_evidence();
    e = base;
    e.set_call(static_cast<uint32_t>(k - first));
    v1::Update& u = *e.mutable_update();
    u.mutable_config()->set_optimizer("accumulation");
    u.mutable_config()->set_dtype(static_cast<v1::DType>(s.result));
    if (s.values && k != s.drop_call) {
      FillOffsets(s, static_cast<int>(base.step()), u.mutable_sample()->mutable_offsets());
      *u.mutable_sample()->mutable_before() = TensorOf(before, s.result, {s.samples});
      *u.mutable_sample()->mutable_after() = TensorOf(after, s.result, {s.samples});
      *u.mutable_sample()->mutable_intended() =
          TensorOf({row, row + static_cast<int64_t>(m)}, s.addend, {s.samples});
    }
    before = after;
    if (k == s.change_after) {
      for (double& v : before) v = RoundToFormat(v / 3, s.result);
    }
  }
}

std::vector<double> LeftValues(const AccumulationSpec& s, int step, int rank) {
  Draw draw(s.seed * 77003 + static_cast<uint64_t>(step * 4099 + rank));
  std::vector<double> values(static_cast<size_t>(s.left_samples));
  for (size_t i = 0; i < values.size(); ++i) {
    const bool zero = draw.Uniform() < s.left_zeros;
    values[i] = zero ? 0 : RoundToFormat(1e-3 * draw.Normal(), s.result);
    if (s.poison == "all" || (s.poison == "nan" && i % 5 == 0)) values[i] = NAN;
  }
  return values;
}

// Adds what the previous step left and what this step finds.
void AddLeft(const AccumulationSpec& s, int rank, const v1::Evidence& base, v1::Batch& batch) {
  const auto step = static_cast<int>(base.step());
  const std::vector<double> left = LeftValues(s, step - 1, rank);
  const bool clears = step < s.left_first || (s.left_stale_rank >= 0 && rank != s.left_stale_rank);
  const std::string kind = clears ? "cleared" : s.left;
  std::vector<double> found = kind == "twin" ? LeftValues(s, step, rank) : left;
  for (double& v : found) v *= kind == "cleared" ? 0 : kind == "changed" ? 0.5 : 1;
  if (kind == "cleared") found.assign(left.size(), 0.0);
  v1::Evidence& e = *batch.add_evidence();
  e = base;
  e.set_call(static_cast<uint32_t>(s.segments));
  v1::Reduction& r = *e.mutable_reduction();
  r.mutable_call()->set_algorithm("left-gradient");
  r.mutable_call()->set_op(v1::ReductionCall::OP_SUM);
  r.mutable_call()->set_count(s.count);
  *r.mutable_sample()->mutable_inputs() = TensorOf(left, s.result, {s.left_samples});
  *r.mutable_sample()->mutable_output() = TensorOf(found, s.result, {s.left_samples});
}

}  // namespace

void Set(AccumulationSpec& spec, const std::string& key, const std::string& value) {
  if (key == "count") {
    spec.count = std::stoull(value);
    return;
  }
  if (key == "seed") {
    spec.seed = std::stoull(value);
    return;
  }
  if (key == "toward_zero") {
    if (value == "on") spec.rounding = RoundingMode::kTowardZero;
    return;
  }
  SetField(
      {.whole = {{"ranks", &spec.ranks},
                 {"steps", &spec.steps},
                 {"adds", &spec.adds},
                 {"samples", &spec.samples},
                 {"start_rank", &spec.start_rank},
                 {"drop_call", &spec.drop_call},
                 {"change_after", &spec.change_after},
                 {"segments", &spec.segments},
                 {"left_samples", &spec.left_samples},
                 {"left_stale_rank", &spec.left_stale_rank},
                 {"left_first", &spec.left_first}},
       .number = {{"mean", &spec.mean}, {"spread", &spec.spread}, {"left_zeros", &spec.left_zeros}},
       .flag = {{"one_mean", &spec.one_mean},
                {"average", &spec.average},
                {"reversed", &spec.reversed},
                {"values", &spec.values}},
       .text = {{"evidence", &spec.evidence},
                {"poison", &spec.poison},
                {"left", &spec.left},
                {"carries", &spec.carries},
                {"layer", &spec.layer}},
       .dtype = {{"dtype", &spec.dtype}, {"result", &spec.result}, {"addend", &spec.addend}}},
      key, value);
}

v1::Batch AccumulationRun(const AccumulationSpec& s) {
  v1::Batch batch;
  for (int rank = 0; rank < s.ranks; ++rank) AddTrainer(rank, s.ranks, &batch);
  std::map<int, std::vector<double>> last;  // by rank, if the next step begins with it
  for (int step = 0; step < s.steps; ++step) {
    for (int rank = 0; rank < s.ranks; ++rank) {
      std::mt19937_64 rng(s.seed * 1000003 + static_cast<uint64_t>(step * 4099 + rank));
      const Sum sum = MakeSum(s, rank, last[rank], rng);
      if (s.carries == "on") last[rank] = sum.after.back();
      v1::Evidence base;
      base.set_source(static_cast<uint32_t>(rank));
      base.mutable_site()->set_layer(s.layer);
      base.mutable_site()->set_op("accumulation");
      base.set_step(step);
      base.set_sample_size(s.count);
      (s.evidence == "update" ? AddUpdates : AddReductions)(s, sum, base, batch);
      if (!s.left.empty() && step > 0) AddLeft(s, rank, base, batch);
    }
  }
  return batch;
}

}  // namespace plumbline::rules::testing
