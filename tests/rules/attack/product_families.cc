#include "tests/rules/attack/product_families.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tests/rules/support/spec_values.h"

namespace plumbline::rules::testing {
namespace {

using Values = std::vector<double>;
// Returns the complete sum of one element's exact products.
using Dot = std::function<double(const Values& products, Dice& dice)>;

float F(double x) { return static_cast<float>(x); }

float Sequential(const Values& p) {
  float sum = 0;
  for (const double x : p) sum += F(x);
  return sum;
}

float Fused(const Values& p) {
  double sum = 0;
  for (const double x : p) sum = F(sum + x);  // products of 16-bit factors are short
  return F(sum);
}

float Lanes(const Values& p, size_t lanes) {
  std::vector<float> acc(lanes, 0);
  for (size_t k = 0; k < p.size(); ++k) acc[k % lanes] += F(p[k]);
  while (acc.size() > 1) {
    for (size_t i = 0; i < acc.size() / 2; ++i) acc[i] += acc[i + acc.size() / 2];
    acc.resize(acc.size() / 2);
  }
  return acc[0];
}

float Pairwise(const Values& p, size_t first, size_t n, size_t leaf) {
  if (n <= leaf) {
    float sum = 0;
    for (size_t k = first; k < first + n; ++k) sum += F(p[k]);
    return sum;
  }
  return Pairwise(p, first, n / 2, leaf) + Pairwise(p, first + n / 2, n - n / 2, leaf);
}

float Parts(const Values& p, size_t part) {
  float sum = 0;
  for (size_t at = 0; at < p.size(); at += part) {
    float one = 0;
    for (size_t k = at; k < std::min(at + part, p.size()); ++k) one += F(p[k]);
    sum += one;
  }
  return sum;
}

// Returns the sum in blocks of g terms, aligned to the largest term and truncated to `bits` bits
// below it, as in tensor cores.
float Aligned(const Values& p, size_t g, int bits) {
  double acc = 0;
  for (size_t at = 0; at < p.size(); at += g) {
    double largest = std::fabs(acc);
    for (size_t k = at; k < std::min(at + g, p.size()); ++k)
      largest = std::max(largest, std::fabs(p[k]));
    if (largest == 0) continue;
    const double unit = std::ldexp(1, std::ilogb(largest) - bits);
    double sum = std::trunc(acc / unit);
    for (size_t k = at; k < std::min(at + g, p.size()); ++k) sum += std::trunc(p[k] / unit);
    acc = RoundToFormat(sum * unit, DType::kF32, RoundingMode::kTowardZero);
  }
  return F(acc);
}

float Kahan(const Values& p) {
  float sum = 0, lost = 0;
  for (const double x : p) {
    const float y = F(x) - lost, next = sum + y;
    lost = (next - sum) - y;
    sum = next;
  }
  return sum;
}

double Double(const Values& p) { return std::accumulate(p.begin(), p.end(), 0.0); }

Product DrawProduct(Dice& dice) {
  Product p;
  p.samples = dice.One({24, 48, 64});
  p.inner = dice.One({16, 60, 96, 128, 200});
  p.input = dice.One({DType::kBF16, DType::kF16, DType::kE4M3, DType::kE5M2});
  p.output = dice.One({DType::kF32, DType::kBF16, DType::kF16});
  const bool positive = dice.Below(3) == 0;
  const double spread = dice.One({0.0, 0.0, 2.0});
  for (int i = 0; i < p.samples * p.inner; ++i) {
    for (Values* side : {&p.a, &p.b}) {
      double x = dice.Normal() * std::exp2(spread * dice.Normal());
      if (positive) x = std::fabs(x) + 0.1;
      side->push_back(RoundToFormat(std::clamp(x, -100.0, 100.0), p.input));
    }
  }
  return p;
}

// Returns the product with d computed by `dot`, one value per element.
Product Filled(Product p, const Dot& dot, Dice& dice) {
  for (int i = 0; i < p.samples; ++i) {
    Values products;
    for (int k = 0; k < p.inner; ++k) products.push_back(p.At(p.a, i, k) * p.At(p.b, i, k));
    p.d.push_back(dot(products, dice));
  }
  return p;
}

v1::Batch Stored(Product p) {
  for (double& y : p.d) y = RoundToFormat(y, p.output);
  return BatchOf(p);
}

ArithmeticFamily Plain(const std::string& name, Dot dot) {
  const auto make = [dot](Dice& dice) -> Attempt {
    return Stored(Filled(DrawProduct(dice), dot, dice));
  };
  return {name, make, "", false};
}

ArithmeticFamily After(const std::string& name, std::function<void(Product&, Dice&)> what) {
  const auto make = [what](Dice& dice) -> Attempt {
    const auto dot = [](const Values& p, Dice&) -> double { return Sequential(p); };
    Product p = Filled(DrawProduct(dice), dot, dice);
    what(p, dice);
    return Stored(std::move(p));
  };
  return {name, make, "", false};
}

void Narrow(Product& p, Dice& dice) {
  if (p.output == DType::kF32) p.output = dice.One({DType::kBF16, DType::kF16});
}

// Sets d from factors with one scale per block. If `sums` is set, each block sum is scaled and
// added in f32; otherwise the factors are scaled first.
void Blocks(Product& p, Dice& dice, bool power, bool sums) {
  p.block = dice.One({16, 32, 128});
  const int blocks = (p.inner + p.block - 1) / p.block;
  for (int i = 0; i < p.samples * blocks; ++i) {
    for (Values* side : {&p.a_scale, &p.b_scale}) {
      const double scale = std::ldexp(power ? 1 : 1 + dice.Uniform(), dice.Below(9) - 4);
      side->push_back(F(scale));
    }
  }
  for (int i = 0; i < p.samples; ++i) {
    float acc = 0;
    for (int j = 0; j < blocks; ++j) {
      const auto at = static_cast<size_t>(i * blocks + j);
      const double sa = p.a_scale[at], sb = p.b_scale[at];
      float part = 0;
      for (int k = j * p.block; k < std::min((j + 1) * p.block, p.inner); ++k) {
        if (sums) {
          part += F(p.At(p.a, i, k) * p.At(p.b, i, k));
        } else {
          acc += F(p.At(p.a, i, k) * sa) * F(p.At(p.b, i, k) * sb);
        }
      }
      if (sums) acc += part * F(sa * sb);
    }
    p.d[static_cast<size_t>(i)] = acc;
  }
}

// Sets NVFP4 or MXFP4 factors and d as computed by one instruction: the exact sums of four blocks
// with their scales and the accumulator are aligned to the largest and truncated.
void ScaledInside(Product& p, Dice& dice) {
  const bool power = dice.Below(2) == 0;
  // Rounds to the nearest e2m1 value (0, .5, 1, 1.5, 2, 3, 4, 6).
  const auto code = [](double x) {
    const double size = std::min(std::fabs(x), 6.0), unit = size < 2 ? 0.5 : size < 4 ? 1 : 2;
    return std::copysign(std::nearbyint(size / unit) * unit, x);
  };
  p.block = power ? 32 : 16;
  p.input = DType::kE4M3;
  p.input_format = "e2m1";
  p.output = DType::kF32;
  for (std::vector<double>* side : {&p.a, &p.b}) {
    for (double& x : *side) x = code(2 * dice.Normal());
  }
  const int blocks = (p.inner + p.block - 1) / p.block, bits = dice.One({23, 25, 28});
  for (int i = 0; i < p.samples; ++i) {
    Values terms;
    for (int j = 0; j < blocks; ++j) {
      double sum = 0;
      for (int k = j * p.block; k < std::min((j + 1) * p.block, p.inner); ++k)
        sum += p.At(p.a, i, k) * p.At(p.b, i, k);
      for (Values* side : {&p.a_scale, &p.b_scale}) {
        const double scale = std::ldexp(power ? 1 : 1 + dice.Below(8) / 8.0, dice.Below(9) - 4);
        side->push_back(scale);
        sum *= scale;
      }
      terms.push_back(sum);
    }
    p.d[static_cast<size_t>(i)] = Aligned(terms, 4, bits);
  }
}

std::vector<ArithmeticFamily> Sums() {
  return {
      Plain("sequential", [](const Values& p, Dice&) { return Sequential(p); }),
      Plain("fused", [](const Values& p, Dice&) { return Fused(p); }),
      Plain("backwards",
            [](Values p, Dice&) {
              std::reverse(p.begin(), p.end());
              return Sequential(p);
            }),
      Plain("any-order",
            [](Values p, Dice& d) {
              std::shuffle(p.begin(), p.end(), d.engine());
              return Sequential(p);
            }),
      Plain("eight-lanes", [](const Values& p, Dice&) { return Lanes(p, 8); }),
      Plain("sixteen-lanes", [](const Values& p, Dice&) { return Lanes(p, 16); }),
      Plain("pairwise", [](const Values& p, Dice&) { return Pairwise(p, 0, p.size(), 1); }),
      Plain("pairwise-leaves", [](const Values& p, Dice&) { return Pairwise(p, 0, p.size(), 8); }),
      Plain("parts-of-24", [](const Values& p, Dice&) { return Parts(p, 24); }),
      Plain("parts-of-7", [](const Values& p, Dice&) { return Parts(p, 7); }),
      Plain("parts-of-64", [](const Values& p, Dice&) { return Parts(p, 64); }),
      Plain("tensor-core-4", [](const Values& p, Dice&) { return Aligned(p, 4, 23); }),
      Plain("tensor-core-8", [](const Values& p, Dice&) { return Aligned(p, 8, 24); }),
      Plain("tensor-core-16", [](const Values& p, Dice&) { return Aligned(p, 16, 25); }),
      Plain("tensor-core-12", [](const Values& p, Dice&) { return Aligned(p, 12, 25); }),
      Plain("kahan", [](const Values& p, Dice&) { return Kahan(p); }),
      Plain("double", [](const Values& p, Dice&) { return Double(p); }),
  };
}

}  // namespace

v1::Batch BatchOf(const Product& p) {
  v1::Batch batch;
  AddTrainer(0, 1, &batch);
  v1::Evidence& e = *batch.add_evidence();
  e.mutable_site()->set_layer("layers.0");
  e.mutable_site()->set_op("matmul");
  v1::MatmulConfig& config = *e.mutable_matmul()->mutable_config();
  config.set_inner(static_cast<uint64_t>(p.inner));
  config.set_declared_accumulator(v1::DTYPE_F32);
  config.set_input_format(p.input_format);
  config.set_output_rounding(p.output_rounding);
  config.set_scale(p.scale);
  config.set_block(static_cast<uint32_t>(p.block));
  v1::MatmulSample& sample = *e.mutable_matmul()->mutable_sample();
  *sample.mutable_a() = TensorOf(p.a, p.input, {p.samples, p.inner});
  *sample.mutable_b() = TensorOf(p.b, p.input, {p.samples, p.inner});
  *sample.mutable_d() = TensorOf(p.d, p.output, {p.samples});
  if (!p.c.empty()) *sample.mutable_c() = TensorOf(p.c, p.output, {p.samples});
  if (!p.row_scale.empty())
    *sample.mutable_scale() = TensorOf(p.row_scale, DType::kF32, {p.samples});
  if (p.block > 0) {
    const int blocks = (p.inner + p.block - 1) / p.block;
    *sample.mutable_a_scale() = TensorOf(p.a_scale, DType::kF32, {p.samples, blocks});
    *sample.mutable_b_scale() = TensorOf(p.b_scale, DType::kF32, {p.samples, blocks});
  }
  return batch;
}

Product CleanProduct(Dice& dice) {
  const auto dot = [](const Values& p, Dice&) -> double { return Sequential(p); };
  return Filled(DrawProduct(dice), dot, dice);
}

std::vector<ArithmeticFamily> CleanProducts() {
  std::vector<ArithmeticFamily> all = Sums();
  all.push_back(After("addend", [](Product& p, Dice& d) {
    for (double& y : p.d) {
      p.c.push_back(RoundToFormat(d.Normal(), p.output));
      y = F(y) + F(p.c.back());
    }
  }));
  all.push_back(After("scaled", [](Product& p, Dice& d) {
    p.scale = F(std::exp(3 * d.Normal()));
    for (double& y : p.d) y = F(y) * F(p.scale);
  }));
  all.push_back(After("scaled-in-one-rounding", [](Product& p, Dice& d) {
    p.scale = F(std::exp(d.Normal()));
    for (double& y : p.d) y *= p.scale;
  }));
  all.push_back(After("scaled-twice", [](Product& p, Dice& d) {
    const float x = F(std::exp(d.Normal())), y = F(std::exp(d.Normal()));
    for (double& v : p.d) v = F(v) * x * y;
    p.scale = static_cast<double>(x) * y;
  }));
  all.push_back(After("scaled-with-addend", [](Product& p, Dice& d) {
    p.scale = F(std::exp(d.Normal()));
    for (double& y : p.d) {
      p.c.push_back(RoundToFormat(d.Normal(), p.output));
      y = F(y) * F(p.scale) + F(p.c.back());
    }
  }));
  all.push_back(After("scale-a-row", [](Product& p, Dice& d) {
    for (double& y : p.d) {
      p.row_scale.push_back(F(std::exp(d.Normal())));
      y = F(y) * F(p.row_scale.back());
    }
  }));
  all.push_back(After("scale-undeclared", [](Product& p, Dice& d) {
    const float scale = F(std::exp(d.Normal()));
    for (double& y : p.d) y = F(y) * scale;
  }));
  all.push_back(After("blocks-1x128", [](Product& p, Dice& d) { Blocks(p, d, false, true); }));
  all.push_back(
      After("blocks-dequantised", [](Product& p, Dice& d) { Blocks(p, d, false, false); }));
  all.push_back(After("microscaled", [](Product& p, Dice& d) { Blocks(p, d, true, false); }));
  all.push_back(After("microscaled-sums", [](Product& p, Dice& d) { Blocks(p, d, true, true); }));
  all.push_back(After("scaled-inside", ScaledInside));
  all.push_back(After("stochastic-store", [](Product& p, Dice& d) {
    Narrow(p, d);
    for (double& y : p.d) y = StochasticRound(y, p.output, d);
    p.output_rounding = "stochastic";
  }));
  all.push_back(After("stochastic-store-undeclared", [](Product& p, Dice& d) {
    Narrow(p, d);
    for (double& y : p.d) y = StochasticRound(y, p.output, d);
  }));
  all.push_back(After("stored-toward-zero", [](Product& p, Dice& d) {
    Narrow(p, d);
    for (double& y : p.d) y = RoundToFormat(y, p.output, RoundingMode::kTowardZero);
  }));
  all.push_back(
      After("format-declared", [](Product& p, Dice&) { p.input_format = DTypeName(p.input); }));
  return all;
}

}  // namespace plumbline::rules::testing
