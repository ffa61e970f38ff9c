#include <algorithm>
#include <cmath>

#include "tests/rules/attack/arithmetic_families.h"
#include "tests/rules/attack/collective_families.h"
#include "tests/rules/attack/product_families.h"
#include "tests/rules/support/update_run.h"

namespace plumbline::rules::testing {
namespace {

UpdateRunSpec DrawUpdate(Dice& dice) {
  UpdateRunSpec spec;
  spec.seed = 1 + dice.Below(1 << 30);
  spec.elements = dice.One({2000, 4096});
  spec.dtype = dice.One({DType::kBF16, DType::kF16, DType::kF32});
  spec.weight_sd = dice.One({0.02, 0.1, 1.0});
  // Steps that mostly survive the rounding.
  spec.step_sd = spec.weight_sd * dice.One({0.005, 0.02, 0.1});
  return spec;
}

ArithmeticFamily Update(const std::string& name, std::function<void(UpdateRunSpec&, Dice&)> what) {
  const auto make = [what](Dice& dice) -> Attempt {
    UpdateRunSpec spec = DrawUpdate(dice);
    what(spec, dice);
    return UpdateRun(spec);
  };
  return {name, make, "", false};
}

ArithmeticFamily Broken(ArithmeticFamily family, const char* rule, bool warning = false) {
  family.rule = rule;
  family.warning = warning;
  return family;
}

ArithmeticFamily BrokenCall(const std::string& name, std::function<void(Recorded&, Dice&)> what,
                            bool warning = false) {
  const auto make = [what](Dice& dice) -> Attempt {
    Recorded call = CleanCall(dice);
    what(call, dice);
    for (double& y : call.output) y = RoundToFormat(y, call.input);
    return BatchOf(call);
  };
  return {name, make, "precision/collective-sum", warning};
}

void Garbage(Recorded& call, Dice& dice, double share) {
  call.ranks = static_cast<int>(call.columns[0].size());
  call.outputs.assign(static_cast<size_t>(call.ranks), call.output);
  for (double& y : call.outputs[static_cast<size_t>(dice.Below(call.ranks))]) {
    if (dice.Uniform() < share) y = RoundToFormat(50 * dice.Normal(), call.input);
  }
}

ArithmeticFamily BrokenProduct(const std::string& name, std::function<void(Product&)> what,
                               bool warning = false) {
  const auto make = [what](Dice& dice) -> Attempt {
    Product p = CleanProduct(dice);
    while (p.samples < 64 || p.inner < 96) p = CleanProduct(dice);  // enough samples for a decision
    what(p);
    return BatchOf(p);
  };
  return {name, make, "precision/gemm-accumulator", warning};
}

// Sums sequentially and rounds each partial sum to `t`.
void SumIn(Product& p, DType t) {
  p.output = DType::kF32;
  for (int i = 0; i < p.samples; ++i) {
    double sum = 0;
    for (int k = 0; k < p.inner; ++k)
      sum = RoundToFormat(sum + RoundToFormat(p.At(p.a, i, k) * p.At(p.b, i, k), t), t);
    p.d[static_cast<size_t>(i)] = sum;
  }
}

// Sums in f32 that are off by 3.9 times their bound, up and down.
void MissBounds(Product& p) {
  p.output = DType::kF32;
  for (int i = 0; i < p.samples; ++i) {
    double mass = 0;
    for (int k = 0; k < p.inner; ++k) mass += std::fabs(p.At(p.a, i, k) * p.At(p.b, i, k));
    const double bound = (p.inner + 2) * 0x1p-24 * mass;
    double& y = p.d[static_cast<size_t>(i)];
    y = RoundToFormat(y + (i % 2 == 0 ? 3.9 : -3.9) * bound, DType::kF32);
  }
}

}  // namespace

std::vector<ArithmeticFamily> CleanUpdates() {
  return {
      Update("nearest", [](UpdateRunSpec&, Dice&) {}),
      Update("stochastic", [](UpdateRunSpec& s, Dice&) { s.rounding = "stochastic"; }),
      Update("stochastic-small-steps",
             [](UpdateRunSpec& s, Dice&) {
               s.rounding = "stochastic";
               s.dtype = DType::kBF16;
               s.step_sd = s.weight_sd * 3e-4;
             }),
      Update("copy-of-a-master", [](UpdateRunSpec& s, Dice&) { s.rounding = "master"; }),
      Update("copy-of-a-moved-master",
             [](UpdateRunSpec& s, Dice&) {
               s.rounding = "master";
               s.resumed = true;
             }),
      Update("skipped", [](UpdateRunSpec& s, Dice&) { s.rounding = "skipped"; }),
      Update("another-change", [](UpdateRunSpec& s, Dice&) { s.rounding = "wrong"; }),
      Update("embedding-rows", [](UpdateRunSpec& s, Dice&) { s.moving = 0.3; }),
      Update("end-of-schedule-f32",
             [](UpdateRunSpec& s, Dice&) {
               s.dtype = DType::kF32;
               s.step_sd = s.weight_sd * 1e-9;
             }),
      Update("several-steps", [](UpdateRunSpec& s, Dice&) { s.steps = 3; }),
  };
}

std::vector<ArithmeticFamily> BrokenArithmetics() {
  return {
      BrokenCall("element-times-1024",
                 [](Recorded& c, Dice& d) {
                   // Selects an element that the bound can resolve: a sum without cancellation.
                   size_t at = 0;
                   for (size_t i = 0; i < c.output.size(); ++i) {
                     if (std::fabs(c.output[i]) > 1) at = i;
                   }
                   c.output[at] *= c.input == DType::kF16 ? 64 : 1024;
                   (void)d;
                 }),
      BrokenCall("ten-signs",
                 [](Recorded& c, Dice&) {
                   for (size_t i = 0; i < 10; ++i) c.output[5 * i] *= -1;
                 }),
      // If half or more of a rank's elements agree, replica-divergence reports it.
      Broken(BrokenCall("garbage-rank", [](Recorded& c, Dice& d) { Garbage(c, d, 0.6); }),
             "precision/"),
      Broken(BrokenCall("garbage-rank-half", [](Recorded& c, Dice& d) { Garbage(c, d, 0.4); }),
             "precision/"),
      BrokenCall("garbage-rank-whole", [](Recorded& c, Dice& d) { Garbage(c, d, 1); }),
      BrokenCall(
          "garbage-everywhere",
          [](Recorded& c, Dice& d) {
            for (double& y : c.output) y = d.Uniform() < 0.6 ? 50 * d.Normal() : y;
          },
          true),
      BrokenProduct("partial-sums-in-e4m3",
                    [](Product& p) {
                      for (std::vector<double>* side : {&p.a, &p.b}) {
                        for (double& x : *side)
                          x = RoundToFormat(std::clamp(x, -2.0, 2.0) / 4, p.input);
                      }
                      SumIn(p, DType::kE4M3);
                    }),
      BrokenProduct("partial-sums-in-bf16", [](Product& p) { SumIn(p, DType::kBF16); }),
      BrokenProduct("off-by-bounds", MissBounds, true),
      Broken(Update("lost",
                    [](UpdateRunSpec& s, Dice&) {
                      s.dtype = DType::kBF16;
                      s.step_sd = s.weight_sd * 1e-5;
                    }),
             "precision/lost-update"),
      Broken(Update("half-lost",
                    [](UpdateRunSpec& s, Dice&) {
                      s.dtype = DType::kBF16;
                      s.step_sd = s.weight_sd * 5e-4;
                    }),
             "precision/lost-update", true),
      Broken(Update("toward-zero",
                    [](UpdateRunSpec& s, Dice&) {
                      s.dtype = DType::kBF16;
                      s.step_sd = s.weight_sd * 5e-4;
                      s.rounding = "toward-zero";
                    }),
             "precision/lost-update"),
      Broken(Update("toward-zero-larger-steps",
                    [](UpdateRunSpec& s, Dice&) {
                      s.dtype = DType::kBF16;
                      s.step_sd = s.weight_sd * 0.02;
                      s.rounding = "toward-zero";
                    }),
             "precision/lost-update", true),
  };
}

}  // namespace plumbline::rules::testing
