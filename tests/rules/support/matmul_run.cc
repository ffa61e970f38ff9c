#include "tests/rules/support/matmul_run.h"

#include <cmath>
#include <map>
#include <random>
#include <stdexcept>

#include "tests/rules/support/simulated_matmul.h"

namespace plumbline::rules::testing {
namespace {

template <typename T>
T Named(const std::map<std::string, T>& names, const std::string& name) {
  const auto found = names.find(name);
  if (found == names.end()) throw std::runtime_error("unknown value: " + name);
  return found->second;
}

double Kahan(const std::vector<double>& p, double c) {
  auto sum = static_cast<float>(c), lost = 0.0f;
  for (const double x : p) {
    const float y = static_cast<float>(x) - lost, next = sum + y;
    lost = (next - sum) - y;
    sum = next;
  }
  return sum;
}

// Returns three interleaved sums, added at the end.
double Lanes(const std::vector<double>& p, double c) {
  float acc[3] = {static_cast<float>(c), 0, 0};
  for (size_t k = 0; k < p.size(); ++k) acc[k % 3] += static_cast<float>(p[k]);
  return (acc[0] + acc[1]) + acc[2];
}

// Returns a sequential sum in a format of 10 bits.
double TenBits(const std::vector<double>& p, double c) {
  double acc = c;
  for (const double x : p) {
    acc += x;
    const double unit = acc == 0 ? 1 : std::ldexp(1, std::ilogb(acc) - 9);
    acc = std::nearbyint(acc / unit) * unit;
  }
  return acc;
}

MatmulModel ModelOf(const MatmulRunSpec& s) {
  MatmulModel m;
  m.sum = Named<MatmulModel::Sum>({{"exact", MatmulModel::Sum::kExact},
                                   {"sequential", MatmulModel::Sum::kSequential},
                                   {"pairwise", MatmulModel::Sum::kPairwise},
                                   {"aligned", MatmulModel::Sum::kAligned}},
                                  s.sum);
  m.accumulator = s.accumulator;
  m.rounding = s.rounding == "nearest" ? RoundingMode::kNearestEven : RoundingMode::kTowardZero;
  m.fused = s.fused;
  m.fraction_bits = s.fraction_bits;
  m.block = s.block;
  m.promote = s.promote;
  m.kept = s.kept;
  m.part = s.part;
  m.part_dtype = s.output;
  m.cut = Named<InputCut>({{"", InputCut::kNone},
                           {"tf32-nearest", InputCut::kTf32Nearest},
                           {"tf32-away", InputCut::kTf32Away},
                           {"tf32-zero", InputCut::kTf32Zero},
                           {"bf16-nearest", InputCut::kBf16Nearest}},
                          s.cut);
  return m;
}

bool Changed(const MatmulRunSpec& s, int step, int rank) {
  return (s.change_step >= 0 && step >= s.change_step) || rank == s.change_rank;
}

// One scale per block of a row, and their declaration.
struct Scales {
  int blocks = 0;
  std::vector<double> a, b;  // [m, blocks]
};

Scales ScalesOf(const MatmulRunSpec& s, std::mt19937_64& random) {
  Scales scales;
  if (s.scale_block == 0) return scales;
  scales.blocks = (s.inner + s.scale_block - 1) / s.scale_block;
  for (int i = 0; i < s.samples * scales.blocks; ++i) {
    for (std::vector<double>* row : {&scales.a, &scales.b}) {
      const double power = std::ldexp(1, static_cast<int>(random() % 7) - 3);
      const double more = s.scale_power ? 1 : 1 + std::uniform_real_distribution(0.0, 1.0)(random);
      row->push_back(static_cast<float>(power * more));
    }
  }
  return scales;
}

// Returns D of element i with its scales, by the arithmetic of the spec.
double ScaledElement(const MatmulRunSpec& s, const SimulatedMatmul& made, const Scales& scales,
                     int i) {
  MatmulModel m = ModelOf(s);
  const double* a = made.RowA(i);
  const double* b = made.RowB(i);
  double sum = 0;
  if (scales.blocks == 0) {
    sum = ReferenceSum(m, a, b, s.inner, s.input, 0);
  } else if (s.scaled == "factors") {
    std::vector<double> x, y;
    for (int k = 0; k < s.inner; ++k) {
      const auto at = static_cast<size_t>(i * scales.blocks + k / s.scale_block);
      x.push_back(static_cast<float>(a[k] * scales.a[at]));
      y.push_back(static_cast<float>(b[k] * scales.b[at]));
    }
    sum = ReferenceSum(m, x.data(), y.data(), s.inner, DType::kF32, 0);
  } else {
    m.promote = 0;
    float acc = 0;
    for (int j = 0; j < scales.blocks; ++j) {
      const int first = j * s.scale_block, n = std::min(s.scale_block, s.inner - first);
      const auto at = static_cast<size_t>(i * scales.blocks + j);
      const auto part = static_cast<float>(ReferenceSum(m, a + first, b + first, n, s.input, 0));
      acc += part * static_cast<float>(scales.a[at] * scales.b[at]);
    }
    sum = acc;
  }
  return s.scale == 0 ? sum : static_cast<float>(sum) * static_cast<float>(s.scale);
}

double StoredAs(const MatmulRunSpec& s, double x, std::mt19937_64& random) {
  if (s.store != "stochastic") {
    const bool zero = s.store == "toward-zero";
    return RoundToFormat(x, s.output,
                         zero ? RoundingMode::kTowardZero : RoundingMode::kNearestEven);
  }
  const double low = RoundToFormat(x, s.output, RoundingMode::kDown);
  const double high = RoundToFormat(x, s.output, RoundingMode::kUp);
  if (low == high) return low;
  return std::uniform_real_distribution(0.0, 1.0)(random) < (x - low) / (high - low) ? high : low;
}

SimulatedMatmul Scaled(const MatmulRunSpec& s, const MatmulSpec& spec, Scales* scales) {
  SimulatedMatmul made = Factors(spec);
  std::mt19937_64 random(spec.seed + 5);
  *scales = ScalesOf(s, random);
  for (int i = 0; i < s.samples; ++i)
    made.d.push_back(StoredAs(s, ScaledElement(s, made, *scales, i), random));
  return made;
}

bool HasScales(const MatmulRunSpec& s) {
  return s.scale != 0 || s.scale_block > 0 || !s.store.empty();
}

SimulatedMatmul Product(MatmulRunSpec s, int step, int rank, Scales* scales) {
  if (Changed(s, step, rank)) {
    if (s.changed_bits > 0) s.fraction_bits = s.changed_bits;
    if (!s.changed_sum.empty()) s.sum = s.changed_sum;
    if (s.changed_samples > 0) s.samples = s.changed_samples;
  }
  MatmulSpec spec{.samples = s.samples, .inner = s.inner, .input = s.input, .output = s.output};
  spec.values = Named<Values>({{"normal", Values::kNormal},
                               {"positive", Values::kPositive},
                               {"spread", Values::kSpread},
                               {"cancelling", Values::kCancelling},
                               {"subnormal", Values::kSubnormal},
                               {"filled", Values::kFilled},
                               {"integers", Values::kIntegers}},
                              s.values);
  spec.addend = s.addend;
  spec.seed = static_cast<uint64_t>(s.seed) + 1000 * static_cast<uint64_t>(step);
  if (HasScales(s)) return Scaled(s, spec, scales);
  if (s.sum == "kahan") return Simulate(spec, Kahan);
  if (s.sum == "lanes") return Simulate(spec, Lanes);
  if (s.sum == "ten-bits") return Simulate(spec, TenBits);
  return Simulate(spec, ModelOf(s));
}

void Poison(const MatmulRunSpec& s, SimulatedMatmul* made) {
  for (int i = 0; s.poison_every > 0 && i < made->spec.samples; i += s.poison_every) {
    made->a[static_cast<size_t>(i) * static_cast<size_t>(s.inner)] = i % 2 == 0 ? NAN : INFINITY;
    made->d[static_cast<size_t>(i)] = NAN;
  }
}

}  // namespace

void Set(MatmulRunSpec& s, const std::string& key, const std::string& value) {
  SetField({.whole = {{"samples", &s.samples},
                      {"inner", &s.inner},
                      {"fraction_bits", &s.fraction_bits},
                      {"block", &s.block},
                      {"promote", &s.promote},
                      {"kept", &s.kept},
                      {"scale_block", &s.scale_block},
                      {"part", &s.part},
                      {"rows", &s.rows},
                      {"columns", &s.columns},
                      {"ranks", &s.ranks},
                      {"steps", &s.steps},
                      {"change_step", &s.change_step},
                      {"change_rank", &s.change_rank},
                      {"changed_bits", &s.changed_bits},
                      {"changed_samples", &s.changed_samples},
                      {"poison_every", &s.poison_every},
                      {"seed", &s.seed}},
            .number = {{"scale", &s.scale}},
            .flag = {{"addend", &s.addend},
                     {"declare_scale", &s.declare_scale},
                     {"scale_power", &s.scale_power},
                     {"fused", &s.fused},
                     {"sample", &s.sample},
                     {"only_call", &s.only_call},
                     {"resumed", &s.resumed}},
            .text = {{"values", &s.values},
                     {"scaled", &s.scaled},
                     {"store", &s.store},
                     {"output_rounding", &s.output_rounding},
                     {"sum", &s.sum},
                     {"rounding", &s.rounding},
                     {"cut", &s.cut},
                     {"input_format", &s.input_format},
                     {"library", &s.library},
                     {"changed_sum", &s.changed_sum},
                     {"changed_library", &s.changed_library}},
            .dtype = {{"input", &s.input},
                      {"output", &s.output},
                      {"accumulator", &s.accumulator},
                      {"declared", &s.declared}}},
           key, value);
}

namespace {

v1::Evidence One(const MatmulRunSpec& spec, int step, int rank) {
  Scales scales;
  SimulatedMatmul made = Product(spec, step, rank, &scales);
  Poison(spec, &made);
  v1::Evidence e;
  e.mutable_site()->set_layer("layers.0.qkv");
  e.mutable_site()->set_op("matmul");
  e.set_step(step);
  e.set_sample_size(made.d.size());
  v1::Matmul& matmul = *e.mutable_matmul();
  matmul = made.Evidence();
  if (!spec.sample || spec.only_call) matmul.clear_sample();
  if (spec.only_call) matmul.set_no_sample_reason("only the call was seen");
  v1::MatmulConfig& config = *matmul.mutable_config();
  config.set_rows(static_cast<uint64_t>(spec.rows));
  config.set_columns(static_cast<uint64_t>(spec.columns));
  config.set_declared_accumulator(static_cast<v1::DType>(spec.declared));
  config.set_input_format(spec.input_format);
  config.set_output_rounding(spec.output_rounding);
  if (spec.declare_scale) config.set_scale(spec.scale);
  if (scales.blocks > 0 && spec.declare_scale && matmul.has_sample()) {
    config.set_block(static_cast<uint32_t>(spec.scale_block));
    v1::MatmulSample& sample = *matmul.mutable_sample();
    *sample.mutable_a_scale() = TensorOf(scales.a, DType::kF32, {spec.samples, scales.blocks});
    *sample.mutable_b_scale() = TensorOf(scales.b, DType::kF32, {spec.samples, scales.blocks});
  }
  const bool moved = !spec.changed_library.empty() && Changed(spec, step, rank);
  config.set_library(moved ? spec.changed_library : spec.library);
  return e;
}

v1::Batch Attempt(const MatmulRunSpec& spec, uint32_t attempt, int first, int end) {
  v1::Batch batch;
  for (int rank = 0; rank < spec.ranks; ++rank) {
    AddTrainer(rank, spec.ranks, &batch);
    batch.mutable_sources(rank)->set_attempt(attempt);
    for (int step = first; step < end; ++step) {
      v1::Evidence& e = *batch.add_evidence() = One(spec, step, rank);
      e.set_source(static_cast<uint32_t>(rank));
    }
  }
  return batch;
}

}  // namespace

std::vector<v1::Batch> MatmulRun(const MatmulRunSpec& spec) {
  if (!spec.resumed) return {Attempt(spec, 0, 0, spec.steps)};
  return {Attempt(spec, 0, 0, spec.change_step), Attempt(spec, 1, spec.change_step, spec.steps)};
}

}  // namespace plumbline::rules::testing
