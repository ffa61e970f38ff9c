// plumbline_fingerprint and its C++ wrapper, through the façade and the real agent.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <stdexcept>

#include "plumbline/agent.h"

namespace {

double LeftFold(const double* a, const double*, uint64_t n) {
  float sum = 0;
  for (uint64_t i = 0; i < n; ++i) sum += static_cast<float>(a[i]);
  return static_cast<double>(sum);
}

plumbline::SumDescription Of(uint64_t n) {
  plumbline::SumDescription description;
  description.n = n;
  description.samples = 60;
  return description;
}

TEST(Fingerprint, ALeftFold) {
  const auto result = plumbline::Fingerprint(LeftFold, Of(100));
  ASSERT_TRUE(result.verified()) << result.error << result.text;
  EXPECT_STREQ(result.order, "left fold of 100 terms");
  EXPECT_STREQ(result.arithmetic, "f32 adds, nearest-even");
  EXPECT_EQ(result.matches, 60);
  EXPECT_NE(std::string(result.contract).find("words = 'left fold of 100 terms'"),
            std::string::npos)
      << result.contract;
}

TEST(Fingerprint, AFusedDotInF64) {
  auto description = Of(50);
  description.kind = PLUMBLINE_SUM_DOT;
  description.input = description.output = {PLUMBLINE_DL_FLOAT, 64, 1};
  const auto dot = [](const double* a, const double* b, uint64_t n) {
    double sum = 0;
    for (uint64_t i = n; i-- > 0;) sum = std::fma(a[i], b[i], sum);
    return sum;
  };
  const auto result = plumbline::Fingerprint(dot, description);
  ASSERT_TRUE(result.verified()) << result.error << result.text;
  EXPECT_STREQ(result.order, "right fold of 50 terms, last first");
}

TEST(Fingerprint, WhatIsNotExplainedHasNoArithmetic) {
  const auto odd = [](const double* a, const double*, uint64_t n) {
    float sum = 0;
    for (uint64_t i = 0; i < n; ++i) {
      sum += static_cast<float>(a[i]);
      if (i % 7 == 3) sum = std::nextafter(sum, 0.0F);
    }
    return static_cast<double>(sum);
  };
  const auto result = plumbline::Fingerprint(odd, Of(64));
  EXPECT_EQ(result.status, PLUMBLINE_OK) << result.error;
  EXPECT_FALSE(result.verified());
  EXPECT_STREQ(result.arithmetic, "");
  EXPECT_STRNE(result.evidence, "");
}

TEST(Fingerprint, MistakesAreNamed) {
  EXPECT_EQ(plumbline::Fingerprint(LeftFold, Of(1)).status, PLUMBLINE_INVALID_ARGUMENT);
  EXPECT_EQ(plumbline::Fingerprint(nullptr, Of(8)).status, PLUMBLINE_INVALID_ARGUMENT);
  auto description = Of(8);
  description.kind = 9;
  EXPECT_EQ(plumbline::Fingerprint(LeftFold, description).status, PLUMBLINE_INVALID_ARGUMENT);
  description = Of(8);
  description.input = {PLUMBLINE_DL_INT, 32, 1};
  EXPECT_EQ(plumbline::Fingerprint(LeftFold, description).status, PLUMBLINE_INVALID_ARGUMENT);
  const auto throws = [](const double*, const double*, uint64_t) -> double {
    throw std::runtime_error("no memory left");
  };
  const auto failed = plumbline::Fingerprint(throws, Of(8));
  EXPECT_EQ(failed.status, PLUMBLINE_FAILED_PRECONDITION);
  EXPECT_NE(failed.error.find("no memory left"), std::string::npos) << failed.error;
  plumbline_sum_t sum = PLUMBLINE_SUM_INIT;
  plumbline_fingerprint_result_t result = {};
  EXPECT_EQ(plumbline_fingerprint(nullptr, &result), PLUMBLINE_INVALID_ARGUMENT);
  EXPECT_EQ(plumbline_fingerprint(&sum, nullptr), PLUMBLINE_INVALID_ARGUMENT);
  EXPECT_EQ(plumbline_fingerprint(&sum, &result), PLUMBLINE_INVALID_ARGUMENT);  // size 0
  EXPECT_NE(std::string(plumbline_last_error()).find("result size is 0"), std::string::npos);
  result.size = sizeof(result);
  EXPECT_EQ(plumbline_fingerprint(&sum, &result), PLUMBLINE_INVALID_ARGUMENT);
  EXPECT_NE(std::string(plumbline_last_error()).find("sum is NULL"), std::string::npos);
}

TEST(Fingerprint, AForkedChildReturnsAtOnce) {
  ASSERT_TRUE(plumbline::Fingerprint(LeftFold, Of(8)).verified());
  const pid_t child = fork();
  if (child == 0) {
    const bool disabled = plumbline::Fingerprint(LeftFold, Of(8)).status == PLUMBLINE_DISABLED;
    _exit(disabled ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
