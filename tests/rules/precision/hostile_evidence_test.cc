// Tests hostile evidence: contradictory counts, tensors larger than any memory, indices of 2^63,
// negative moments. The rules must answer in bounded time and memory without false findings.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "tests/rules/support/spec_values.h"
#include "tests/rules/support/verdicts.h"

namespace plumbline::rules {
namespace {

using testing::Of;
using testing::Stored;
using testing::Verdicts;
using testing::VerdictsOn;

constexpr uint64_t kHuge = std::numeric_limits<uint64_t>::max();

// Returns the verdicts of the precision rules only.
Verdicts Judge(v1::Batch batch) {
  Verdicts verdicts = VerdictsOn({std::move(batch)}, {.rules = {"precision/*"}});
  std::erase_if(verdicts, [](const v1::Verdict& v) { return v.rule().starts_with("meta/"); });
  return verdicts;
}

v1::Batch OneSource() {
  v1::Batch batch;
  batch.add_sources()->set_run("run");
  return batch;
}

v1::Evidence& AddEvidence(v1::Batch& batch, const std::string& op) {
  v1::Evidence& e = *batch.add_evidence();
  e.mutable_site()->set_layer("x");
  e.mutable_site()->set_op(op);
  return e;
}

void Fill(v1::Tensor& tensor, DType dtype, const std::vector<double>& values) {
  Stored stored(values, dtype);
  tensor.set_dtype(static_cast<v1::DType>(dtype));
  tensor.add_shape(static_cast<int64_t>(values.size()));
  tensor.set_data(stored.bytes());
}

// Tests 2^61 doubles, whose 2^64 bytes are 0 in 64 bits.
TEST(HostileEvidence, ATensorOfMoreBytesThanThereAreIsNoTensor) {
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{int64_t{1} << 61},
                                            {int64_t{1} << 62, 4},
                                            {int64_t{1} << 62, 2},
                                            {int64_t{1} << 62, 2, 0},
                                            {int64_t{1} << 31, int64_t{1} << 30},
                                            {-1, -1},
                                            {-1}}) {
    v1::Batch batch = OneSource();
    v1::TensorState& state = *AddEvidence(batch, "probabilities").mutable_tensor();
    state.set_role("probabilities");
    state.set_dtype(v1::DTYPE_F64);
    v1::Tensor& values = *state.mutable_sample()->mutable_values();
    values.set_dtype(v1::DTYPE_F64);
    for (const int64_t extent : shape) values.add_shape(extent);
    v1::Update& update = *AddEvidence(batch, "update").mutable_update();
    update.mutable_config()->set_optimizer("ema");
    for (v1::Tensor* tensor :
         {update.mutable_sample()->mutable_before(), update.mutable_sample()->mutable_after(),
          update.mutable_sample()->mutable_intended()})
      *tensor = values;
    const auto verdicts = Judge(std::move(batch));
    const v1::Verdict* verdict = Of(verdicts, "precision/normalisation");
    ASSERT_NE(verdict, nullptr);
    EXPECT_EQ(verdict->kind(), v1::Verdict::KIND_INCONCLUSIVE);
  }
}

// Tests before + intended = infinity in f64: the search for a step must end.
TEST(HostileEvidence, StepsThatOverflowEnd) {
  v1::Batch batch = OneSource();
  v1::Update& update = *AddEvidence(batch, "update").mutable_update();
  update.mutable_config()->set_optimizer("ema");
  std::vector<double> before, after, intended;
  for (int i = 0; i < 2000; ++i) {
    before.push_back(i < 10 ? 1.5e308 : 1);
    after.push_back(before.back());
    intended.push_back(i < 10 ? 1.5e308 : 1e-30);
  }
  Fill(*update.mutable_sample()->mutable_before(), DType::kF64, before);
  Fill(*update.mutable_sample()->mutable_after(), DType::kF64, after);
  Fill(*update.mutable_sample()->mutable_intended(), DType::kF64, intended);
  const auto verdicts = Judge(std::move(batch));
  ASSERT_NE(Of(verdicts, "precision/ema-stall"), nullptr);
}

// Tests positions of 1e30: a count from any start explains the whole row except its end.
TEST(HostileEvidence, PositionsBeyondCountingAreGivenUp) {
  v1::Batch batch = OneSource();
  v1::TensorState& state = *AddEvidence(batch, "positions").mutable_tensor();
  state.set_role("positions");
  state.set_dtype(v1::DTYPE_BF16);
  std::vector<double> values(size_t{1} << 22, RoundToFormat(1e30, DType::kBF16));
  values.back() *= 2;
  Fill(*state.mutable_sample()->mutable_values(), DType::kBF16, values);
  const auto verdicts = Judge(std::move(batch));
  const v1::Verdict* verdict = Of(verdicts, "precision/position-collision");
  ASSERT_NE(verdict, nullptr);
  EXPECT_EQ(verdict->kind(), v1::Verdict::KIND_INCONCLUSIVE);
}

TEST(HostileEvidence, RowsFarOut) {
  v1::Batch batch = OneSource();
  for (const uint64_t first : {uint64_t{0x7fffffffffffffff}, kHuge, kHuge - 1}) {
    v1::TensorState& state = *AddEvidence(batch, "p" + std::to_string(first)).mutable_tensor();
    state.set_role("probabilities");
    state.set_dtype(v1::DTYPE_F32);
    v1::TensorSample& sample = *state.mutable_sample();
    Fill(*sample.mutable_values(), DType::kF32, {0.5, 0.5, 0.5, 0.75});
    sample.mutable_values()->clear_shape();
    sample.mutable_values()->add_shape(2);
    sample.mutable_values()->add_shape(2);
    sample.set_first_row(first);
  }
  EXPECT_NE(Of(Judge(std::move(batch)), "precision/normalisation"), nullptr);
}

// Tests counts whose sum wraps to 0.
TEST(HostileEvidence, ContradictingCountsAreNoVerdict) {
  v1::Batch batch = OneSource();
  v1::TensorState& state = *AddEvidence(batch, "gradient").mutable_tensor();
  state.set_role("gradient");
  state.set_dtype(v1::DTYPE_F32);
  state.set_target_format(v1::DTYPE_F16);
  v1::TensorSummary& s = *state.mutable_summary();
  s.set_count(1000);
  s.set_nan(kHuge);
  s.set_pos_inf(1);
  v1::FormatFit& fit = *s.add_fits();
  fit.set_format(v1::DTYPE_F16);
  fit.set_flushed(kHuge - 499);
  fit.set_saturated(1000);
  const auto verdicts = Judge(batch);
  const v1::Verdict* format = Of(verdicts, "precision/format-fit");
  ASSERT_NE(format, nullptr);
  EXPECT_EQ(format->kind(), v1::Verdict::KIND_INCONCLUSIVE) << format->DebugString();
  const v1::Verdict* nan = Of(verdicts, "precision/non-finite");
  ASSERT_NE(nan, nullptr);
  EXPECT_NE(nan->kind(), v1::Verdict::KIND_PASS) << nan->DebugString();
  s.set_nan(0);
  s.set_pos_inf(0);
  const auto more = Judge(batch);
  EXPECT_EQ(Of(more, "precision/format-fit")->kind(), v1::Verdict::KIND_INCONCLUSIVE)
      << Of(more, "precision/format-fit")->DebugString();
}

// ---- random evidence ----

class Random {
 public:
  explicit Random(uint32_t seed) : rng_(seed) {}
  uint32_t Below(uint32_t n) { return rng_() % n; }
  uint64_t Count() {
    static constexpr uint64_t kCounts[] = {
        0,         1,    2, 64, 1000, 4096, uint64_t{1} << 31, uint64_t{1} << 53, uint64_t{1} << 63,
        kHuge - 1, kHuge};
    return kCounts[Below(std::size(kCounts))];
  }
  double Value() {
    static constexpr double kInf = std::numeric_limits<double>::infinity();
    static constexpr double kValues[] = {0,     -0.0,   1,     -1,      0.5,  1e-8,  1e-320, 5e-324,
                                         1e308, -1e308, 6e-8,  65504,   3e38, 1e-30, 0.999,  kInf,
                                         -kInf, NAN,    0.001, 1.00001, 256,  1e-45};
    return Below(3) == 0 ? std::ldexp(1.0 + rng_() * 0x1p-32, static_cast<int>(Below(40)) - 30)
                         : kValues[Below(std::size(kValues))];
  }
  DType Dtype() { return static_cast<DType>(Below(17)); }
  std::string Word() {
    static constexpr const char* kWords[] = {
        "",       "adam",     "ema",           "accumulation", "sgd",        "amsgrad",
        "weight", "gradient", "probabilities", "positions",    "activation", "dp",
        "loss",   "tokens",   "loss_sum",      "loss_scale",   "\xff\xfe",   "%s%n%d"};
    return kWords[Below(std::size(kWords))];
  }
  void Tensor(v1::Tensor& tensor, DType dtype, uint32_t n) {
    std::vector<double> values;
    const double base = Value();
    for (uint32_t i = 0; i < n; ++i) values.push_back(Below(8) == 0 ? Value() : base);
    if (DTypeSize(dtype) > 0 && IsFloating(dtype))
      Fill(tensor, dtype, values);
    else {
      tensor.set_dtype(static_cast<v1::DType>(dtype));
      tensor.add_shape(n);
      tensor.set_data(std::string(n * DTypeSize(dtype), static_cast<char>(rng_())));
    }
    if (Below(12) == 0) tensor.add_shape(static_cast<int64_t>(Count()));
    if (Below(12) == 0) tensor.mutable_data()->resize(Below(64));
    if (Below(12) == 0) tensor.set_dtype(static_cast<v1::DType>(Dtype()));
    if (n % 8 == 0 && n > 0 && Below(2) == 0) {
      tensor.clear_shape();
      tensor.add_shape(n / 8);
      tensor.add_shape(8);
    }
  }
  void State(v1::TensorState& state) {
    const DType dtype = Dtype();
    const uint32_t n = Below(3) == 0 ? 8 * Below(200) : Below(100);
    state.set_dtype(static_cast<v1::DType>(dtype));
    state.set_role(Word());
    state.set_target_format(static_cast<v1::DType>(Dtype()));
    state.set_replicas(Below(2) == 0 ? "" : Word());
    for (uint32_t i = Below(3); i > 0; --i) state.add_shape(static_cast<int64_t>(Count()));
    v1::TensorSummary& s = *state.mutable_summary();
    s.set_count(Count());
    s.set_nan(Below(2) == 0 ? 0 : Count());
    s.set_pos_inf(Below(2) == 0 ? 0 : Count());
    s.set_neg_inf(Below(2) == 0 ? 0 : Count());
    s.set_zero(Count());
    s.set_min(Value());
    s.set_max(Value());
    s.set_amax(Value());
    s.set_digest_low(Count());
    s.set_first_exponent(static_cast<int32_t>(rng_()));
    for (uint32_t i = Below(4); i > 0; --i) {
      v1::FormatFit& fit = *s.add_fits();
      fit.set_format(static_cast<v1::DType>(
          Below(2) == 0 ? static_cast<DType>(state.target_format()) : Dtype()));
      fit.set_block(Below(2) == 0 ? 0 : static_cast<uint32_t>(Count()));
      fit.set_flushed(Count());
      fit.set_saturated(Count());
    }
    if (Below(4) == 0) return;
    v1::TensorSample& sample = *state.mutable_sample();
    Tensor(*sample.mutable_values(), dtype, n);
    if (Below(2) == 0) Tensor(*sample.mutable_offsets(), DType::kU64, n);
    sample.set_first_row(Count());
  }
  void Change(v1::Update& update) {
    v1::UpdateConfig& config = *update.mutable_config();
    config.set_optimizer(Word());
    config.set_lr(Value());
    config.set_beta2(Value());
    config.set_eps(Value());
    config.set_decay(Value());
    config.set_dtype(static_cast<v1::DType>(Dtype()));
    config.set_moment_dtype(static_cast<v1::DType>(Dtype()));
    config.set_eps_dtype(static_cast<v1::DType>(Dtype()));
    v1::UpdateSummary& s = *update.mutable_summary();
    s.set_count(Count());
    s.set_non_finite(Below(2) == 0 ? 0 : Count());
    s.set_intended(Count());
    s.set_lost(Count());
    s.set_intended_l1(Value());
    s.set_applied_l1(Value());
    s.set_lost_l1(Value());
    s.set_applied_along(Value());
    s.set_misrounded(Count());
    const uint32_t n = Below(3) == 0 ? 1500 : Below(100);
    const DType dtype = Dtype(), moments = Dtype();
    v1::UpdateSample& sample = *update.mutable_sample();
    Tensor(*sample.mutable_before(), dtype, n);
    if (Below(2) == 0)
      *sample.mutable_after() = sample.before();
    else
      Tensor(*sample.mutable_after(), dtype, n);
    Tensor(*sample.mutable_intended(), Dtype(), n);
    if (Below(2) == 0) return;
    Tensor(*sample.mutable_gradient(), Dtype(), n);
    Tensor(*sample.mutable_moment_before(), moments, n);
    Tensor(*sample.mutable_moment_after(), moments, n);
    if (Below(2) == 0) Tensor(*sample.mutable_offsets(), DType::kI64, n);
  }
  v1::Batch Batch() {
    v1::Batch batch;
    const uint32_t ranks = 1 + Below(4);
    for (uint32_t r = 0; r < ranks; ++r) {
      v1::Source& source = *batch.add_sources();
      source.set_run("run");
      source.set_rank(r);
      source.set_attempt(Below(8) == 0 ? static_cast<uint32_t>(Count()) : 0);
    }
    for (uint32_t i = 1 + Below(24); i > 0; --i) {
      v1::Evidence& e = *batch.add_evidence();
      e.set_source(Below(ranks));
      e.mutable_site()->set_layer(Below(2) == 0 ? "x" : Word());
      e.mutable_site()->set_op("o" + Word());
      if (Below(3) == 0) e.mutable_site()->set_op(Word() + "loss");
      e.set_step(static_cast<int64_t>(Below(4) == 0 ? Count() >> 1 : Below(3)));
      e.set_call(Below(4) == 0 ? static_cast<uint32_t>(Count()) : Below(3));
      e.set_order(Count());
      switch (Below(3)) {
        case 0:
          State(*e.mutable_tensor());
          break;
        case 1:
          Change(*e.mutable_update());
          break;
        default:
          e.mutable_scalar()->set_value(Value());
      }
    }
    return batch;
  }

 private:
  std::mt19937 rng_;
};

TEST(HostileEvidence, AtRandom) {
  Random random(7);
  size_t answered = 0;
  for (int i = 0; i < 3000; ++i) {
    for (const v1::Verdict& verdict : Judge(random.Batch())) {
      ++answered;
      ASSERT_NE(verdict.kind(), v1::Verdict::KIND_UNSPECIFIED);
      if (verdict.kind() != v1::Verdict::KIND_FINDING) {
        EXPECT_FALSE(verdict.reason().empty()) << verdict.DebugString();
      } else {
        EXPECT_FALSE(verdict.finding().explanation().empty()) << verdict.DebugString();
        EXPECT_LE(verdict.site().step_first(), verdict.site().step_last());
      }
    }
  }
  EXPECT_GT(answered, 10000u);
}

}  // namespace
}  // namespace plumbline::rules
