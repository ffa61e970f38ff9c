// Tests that scores normalised over tokens are detected at any recorded precision, and that scores
// per token are not mistaken for them.
#include "analysis/routing/policies/normalised.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "tests/rules/support/spec_values.h"

namespace plumbline::analysis {
namespace {

enum class Over { kCall, kSequences, kExperts };

// Returns [T,E] probabilities of random logits, E experts of equal popularity.
v1::Routing Recorded(int tokens, int experts, Over over, DType dtype, uint64_t seed) {
  std::mt19937_64 rng(seed);
  std::normal_distribution<double> normal;
  const auto T = static_cast<size_t>(tokens), E = static_cast<size_t>(experts);
  std::vector<double> x(T * E), sequence(T), position(T);
  for (double& v : x) v = std::exp(normal(rng));
  const size_t length = T / 4;
  const auto group = [&](size_t t, size_t e) {
    return over == Over::kExperts ? t : over == Over::kCall ? e : t / length * E + e;
  };
  std::vector<double> sum(T * E, 0);
  for (size_t i = 0; i < x.size(); ++i) sum[group(i / E, i % E)] += x[i];
  for (size_t i = 0; i < x.size(); ++i) x[i] /= sum[group(i / E, i % E)];
  for (size_t t = 0; t < T; ++t) {
    sequence[t] = static_cast<double>(t / length);
    position[t] = static_cast<double>(t % length);
  }
  v1::Routing routing;
  routing.mutable_config()->set_top_k(1);
  routing.mutable_config()->set_experts(static_cast<uint32_t>(experts));
  v1::RoutingSample& sample = *routing.mutable_sample();
  sample.set_scores_are_logits(false);
  *sample.mutable_scores() = rules::testing::TensorOf(x, dtype, {tokens, experts});
  const auto whole = [&](const std::vector<double>& values) {
    v1::Tensor tensor;
    tensor.set_dtype(static_cast<v1::DType>(DType::kI64));
    tensor.add_shape(tokens);
    for (const double v : values) {
      const auto i = static_cast<int64_t>(v);
      tensor.mutable_data()->append(reinterpret_cast<const char*>(&i), sizeof(i));
    }
    return tensor;
  };
  *sample.mutable_sequence_id() = whole(sequence);
  *sample.mutable_position() = whole(position);
  v1::Tensor& map = *sample.mutable_routing_map();
  map.set_dtype(static_cast<v1::DType>(DType::kU8));
  map.add_shape(tokens);
  map.add_shape(experts);
  for (size_t t = 0; t < T; ++t) {
    const auto row = x.begin() + static_cast<std::ptrdiff_t>(t * E);
    const auto best = std::max_element(row, row + experts) - row;
    for (int e = 0; e < experts; ++e) map.mutable_data()->push_back(e == best ? 1 : 0);
  }
  return routing;
}

bool Known(int tokens, int experts, Over over, DType dtype, uint64_t seed) {
  const v1::Routing routing = Recorded(tokens, experts, over, dtype, seed);
  const auto c = DecodeRouting(routing);
  EXPECT_TRUE(c.ok()) << c.status();
  return c.ok() && NormalisedOverTokens(*c);
}

constexpr DType kTypes[] = {DType::kF32, DType::kF16, DType::kBF16};

TEST(NormalisedOverTokens, AreKnownInEveryPrecision) {
  for (const DType dtype : kTypes) {
    for (const auto& [tokens, experts] : {std::pair{64, 8}, {512, 8}, {1024, 32}, {4096, 4}}) {
      for (uint64_t seed = 1; seed <= 8; ++seed) {
        EXPECT_TRUE(Known(tokens, experts, Over::kCall, dtype, seed))
            << static_cast<int>(dtype) << " " << tokens << " x " << experts;
        EXPECT_TRUE(Known(tokens, experts, Over::kSequences, dtype, seed))
            << static_cast<int>(dtype) << " " << tokens << " x " << experts;
      }
    }
  }
}

TEST(NormalisedOverTokens, WhatATokenHasByItselfIsNot) {
  for (const DType dtype : kTypes) {
    for (const auto& [tokens, experts] : {std::pair{64, 2}, {64, 4}, {512, 8}, {8192, 4}}) {
      for (uint64_t seed = 1; seed <= 40; ++seed)
        EXPECT_FALSE(Known(tokens, experts, Over::kExperts, dtype, seed))
            << static_cast<int>(dtype) << " " << tokens << " x " << experts << " " << seed;
    }
  }
}

}  // namespace
}  // namespace plumbline::analysis
