// Tests that a thousand healthy tensors and updates of every dtype and role give no finding.
#include <gtest/gtest.h>

#include "tests/rules/support/tensor_run.h"
#include "tests/rules/support/update_run.h"
#include "tests/rules/support/verdicts.h"

namespace plumbline::rules {
namespace {

using testing::Draw;
using testing::TensorRun;
using testing::TensorRunSpec;
using testing::UpdateRun;
using testing::UpdateRunSpec;
using testing::VerdictsOn;

constexpr DType kFloating[] = {DType::kF64,  DType::kF32,  DType::kF16,
                               DType::kBF16, DType::kE4M3, DType::kE5M2};

struct Heard {
  int findings = 0;
  int passes = 0;
  std::string text;
};

void Listen(v1::Batch batch, const std::string& what, Heard* heard) {
  for (const v1::Verdict& v : VerdictsOn({std::move(batch)}, {.rules = {"precision/*"}})) {
    if (v.kind() == v1::Verdict::KIND_PASS) ++heard->passes;
    if (v.kind() != v1::Verdict::KIND_FINDING || v.rule().starts_with("meta/")) continue;
    ++heard->findings;
    heard->text += what + ": " + v.rule() + ": " + v.finding().explanation() + "\n";
  }
}

// Returns a scale that is well within the range of the dtype.
double Scale(DType t, Draw& draw) {
  const double decades = DTypeSize(t) == 1 ? 0 : t == DType::kF16 ? 2 : 8;
  return std::pow(10.0, decades * (draw.Uniform() - 0.5));
}

TEST(HealthyTensors, WeightsGradientsActivations) {
  Draw draw(1);
  Heard heard;
  static const char* const kRoles[] = {"weight", "gradient", "activation", ""};
  for (int i = 0; i < 400; ++i) {
    TensorRunSpec spec;
    spec.seed = 1000 + i;
    spec.dtype = kFloating[i % 6];
    spec.role = kRoles[i / 6 % 4];
    spec.sd = Scale(spec.dtype, draw);
    spec.mean = i % 5 == 0 ? spec.sd : 0;
    spec.rows = 1 + i % 7;
    spec.columns = 1 + i * 37 % 600;
    spec.ranks = 1 + i % 4;
    spec.steps = 1 + i % 3;
    spec.copies = i % 2 == 0;
    if (i % 4 == 0) spec.replicas = "dp";
    if (i % 3 == 0 && DTypeSize(spec.dtype) >= 4) spec.target_format = DType::kBF16;
    Listen(TensorRun(spec), "tensor " + std::to_string(i), &heard);
  }
  EXPECT_EQ(heard.findings, 0) << heard.text;
  EXPECT_GT(heard.passes, 400);
}

// Tests that exponents and fits of a large tensor come from sampled tiles: fractions refer to the
// sampled values.
TEST(DrawnTiles, SharesAreOfTheValuesThatWereLookedAt) {
  for (const double sd : {0.5, 0.002}) {  // fits e4m3; does not fit
    TensorRunSpec spec;
    spec.sd = sd;
    spec.target_format = DType::kE4M3;
    const v1::Batch all = TensorRun(spec);
    v1::Batch drawn = all;
    for (v1::Evidence& evidence : *drawn.mutable_evidence()) {
      if (!evidence.has_tensor()) continue;
      v1::TensorSummary& s = *evidence.mutable_tensor()->mutable_summary();
      s.set_count(32 * s.count());
    }
    const auto of = [](const v1::Batch& batch) {
      std::string stated;
      for (const v1::Verdict& v : VerdictsOn({batch}, {.rules = {"precision/format-fit"}})) {
        if (v.rule() != "precision/format-fit") continue;
        stated += std::to_string(v.kind()) + " " + std::to_string(v.finding().measured().value());
      }
      return stated;
    };
    EXPECT_FALSE(of(all).empty());
    EXPECT_EQ(of(drawn), of(all));
  }
}

TEST(HealthyTensors, Probabilities) {
  Draw draw(2);
  Heard heard;
  for (int i = 0; i < 300; ++i) {
    TensorRunSpec spec;
    spec.seed = 2000 + i;
    spec.role = "probabilities";
    spec.content = "softmax";
    spec.dtype = kFloating[i % 6];
    spec.rows = 4 + i % 29;
    spec.columns = 2 + static_cast<int>(std::pow(2.0, 11 * draw.Uniform()));
    spec.logit_sd = 10 * draw.Uniform();
    spec.causal = i % 4 == 1;
    spec.masked_rows = i % 5 == 0 ? 2 : 0;
    spec.masked_zero = i % 2 == 0;
    spec.log_domain = i % 7 == 0;
    if (spec.dtype == DType::kF32 && i % 2 == 0) spec.used = DType::kBF16;
    // Operations that trainers apply to rows by design.
    if (i % 11 == 0) spec.dropout = 0.3 * draw.Uniform();
    if (i % 13 == 0) spec.sink = true;
    if (i % 17 == 0) spec.top_k = std::min(2, spec.columns);
    if (i % 34 == 0) spec.renormalise = true;
    if (i % 19 == 0) spec.factor = 0.5 + 3 * draw.Uniform();
    if (i % 23 == 0) spec.shard = 2;
    if (i % 29 == 0) spec.floor = 1e-5;
    if (i % 31 == 0) spec.sigmoid = true;
    Listen(TensorRun(spec), "rows " + std::to_string(i), &heard);
  }
  EXPECT_EQ(heard.findings, 0) << heard.text;
  EXPECT_GT(heard.passes, 300);
}

TEST(HealthyTensors, Positions) {
  Draw draw(3);
  Heard heard;
  for (int i = 0; i < 120; ++i) {
    TensorRunSpec spec;
    spec.role = "positions";
    spec.content = "positions";
    spec.dtype = i % 3 == 0 ? DType::kF32 : i % 3 == 1 ? DType::kI64 : DType::kF64;
    spec.rows = 1 + i % 3;
    spec.columns = 8 + i * 31 % 5000;
    spec.start = i % 4 == 0 ? 4096 * (i % 5) : 0;
    spec.document = i % 5 == 0 ? 1 + i : 0;
    spec.pad_left = i % 6 == 0 ? 3 : 0;
    spec.pad_right = i % 7 == 0 ? 4 : 0;
    spec.repeat = i % 8 == 0 ? 3 : 1;
    if (spec.dtype != DType::kI64 && i % 9 == 0) spec.step = 1 / (1 + 15 * draw.Uniform());
    if (i % 10 == 0) {  // short rows fit 16 bits
      spec.dtype = i % 20 == 0 ? DType::kBF16 : DType::kF16;
      spec.columns = 200;
      spec.start = 0;
      spec.step = 1;
    }
    Listen(TensorRun(spec), "positions " + std::to_string(i), &heard);
  }
  EXPECT_EQ(heard.findings, 0) << heard.text;
  EXPECT_GT(heard.passes, 100);
}

TEST(HealthyTensors, Updates) {
  Draw draw(4);
  Heard heard;
  for (int i = 0; i < 300; ++i) {
    UpdateRunSpec spec;
    spec.seed = 4000 + i;
    spec.elements = 500 + i * 97 % 8000;
    spec.dtype = i % 3 == 0 ? DType::kF64 : DType::kF32;
    spec.weight = i % 4 == 0 ? 1 : 0;
    spec.step_sd = std::pow(10.0, -6 + 4 * draw.Uniform());
    spec.poison_every = i % 10 == 0 ? 17 : 0;
    spec.moving = i % 6 == 0 ? 0.5 : 1;
    if (i % 2 == 0) {
      spec.moments = true;
      spec.moment_dtype = DType::kF32;
      spec.beta2 = 0.999;
      spec.eps = 1e-8;
      spec.gradient_sd = std::pow(10.0, -12 * draw.Uniform());
      spec.moment = i % 4 == 0 ? 0 : spec.gradient_sd * spec.gradient_sd;
      spec.arithmetic = i % 8 == 0 ? "skipped" : "float";
    }
    if (i % 5 == 0) {  // 16 bits by stochastic rounding
      spec.dtype = i % 10 == 0 ? DType::kBF16 : DType::kF16;
      spec.rounding = "stochastic";
      spec.poison_every = 0;
    }
    if (i % 7 == 0) {
      spec.optimizer = "ema";
      spec.decay = 0.99 + 0.0099 * draw.Uniform();
    }
    if (i % 11 == 0) spec.rounding = "skipped";
    Listen(UpdateRun(spec), "update " + std::to_string(i), &heard);
  }
  EXPECT_EQ(heard.findings, 0) << heard.text;
  EXPECT_GT(heard.passes, 250);
}

// Tests stochastic rounding with decreasing steps, which change fewer and fewer elements: no
// finding.
TEST(HealthyTensors, StochasticRoundingIsNeverALostUpdate) {
  Heard heard;
  for (int i = 0; i < 400; ++i) {
    UpdateRunSpec spec;
    spec.seed = 9000 + i;
    spec.elements = 1024 << i % 4;
    spec.rounding = "stochastic";
    spec.weight = 1;
    spec.weight_sd = 0.1;
    spec.step_sd = std::pow(10.0, -2 - 6.0 * i / 400);
    Listen(UpdateRun(spec), "stochastic " + std::to_string(i), &heard);
  }
  EXPECT_EQ(heard.findings, 0) << heard.text;
}

}  // namespace
}  // namespace plumbline::rules
