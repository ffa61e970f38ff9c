// Compressed reductions over the steps of a run. If there is error feedback, the residual of a step
// is added to the next step; otherwise it is lost.
#include <algorithm>
#include <cmath>
#include <memory>

#include "tests/rules/attack/collective_families.h"

namespace plumbline::rules::testing {
namespace {

using Values = std::vector<double>;
// Returns the decompressed values of x (32 rows of 8).
using Compressor = std::function<Values(const Values&, Dice&)>;

constexpr int kRows = 32, kColumns = 8, kElements = kRows * kColumns;

Values Signs(const Values& x, Dice&) {
  double mean = 0;
  for (const double v : x) mean += std::fabs(v) / kElements;
  Values y;
  for (const double v : x) y.push_back(v < 0 ? -mean : mean);
  return y;
}

Values Largest(const Values& x, Dice&) {
  Values sizes;
  for (const double v : x) sizes.push_back(std::fabs(v));
  std::sort(sizes.begin(), sizes.end());
  const double least = sizes[kElements * 9 / 10];
  Values y;
  for (const double v : x) y.push_back(std::fabs(v) < least ? 0 : v);
  return y;
}

Values EightBits(const Values& x, Dice& dice) {
  double amax = 0;
  for (const double v : x) amax = std::max(amax, std::fabs(v));
  Values y;
  for (const double v : x) y.push_back(std::floor(v / amax * 127 + dice.Uniform()) * amax / 127);
  return y;
}

// Returns rank-1 PowerSGD: one power iteration from the direction of the previous step.
Compressor LowRank() {
  auto q = std::make_shared<Values>(kColumns, 1.0);
  return [q](const Values& x, Dice&) {
    Values p(kRows, 0), next(kColumns, 0), y(kElements);
    const auto at = [](int i, int j) { return static_cast<size_t>(i * kColumns + j); };
    double norm = 0;
    for (int i = 0; i < kRows; ++i) {
      for (int j = 0; j < kColumns; ++j)
        p[static_cast<size_t>(i)] += x[at(i, j)] * (*q)[static_cast<size_t>(j)];
      norm += p[static_cast<size_t>(i)] * p[static_cast<size_t>(i)];
    }
    for (double& v : p) v /= std::sqrt(norm);
    for (int i = 0; i < kRows; ++i) {
      for (int j = 0; j < kColumns; ++j)
        next[static_cast<size_t>(j)] += x[at(i, j)] * p[static_cast<size_t>(i)];
    }
    for (int i = 0; i < kRows; ++i) {
      for (int j = 0; j < kColumns; ++j)
        y[at(i, j)] = p[static_cast<size_t>(i)] * next[static_cast<size_t>(j)];
    }
    *q = next;
    return y;
  };
}

v1::Batch Steps(const char* algorithm, const Compressor& compress, bool feedback, int steps,
                Dice& dice) {
  Values persistent, kept(kElements, 0);
  for (int i = 0; i < kElements; ++i) persistent.push_back(0.3 * dice.Normal());
  v1::Batch all;
  for (int step = 0; step < steps; ++step) {
    Recorded call;
    call.ranks = 8;
    call.input = DType::kF32;
    call.algorithm = algorithm;
    Values sums;
    for (int i = 0; i < kElements; ++i) {
      Values column;
      double sum = feedback ? kept[static_cast<size_t>(i)] : 0;
      for (int r = 0; r < call.ranks; ++r) {
        column.push_back(static_cast<float>(persistent[static_cast<size_t>(i)] + dice.Normal()));
        sum += column.back();
      }
      call.columns.push_back(std::move(column));
      sums.push_back(sum);
    }
    call.output = compress(sums, dice);
    for (size_t i = 0; i < sums.size(); ++i) kept[i] = sums[i] - call.output[i];
    v1::Batch one = BatchOf(call);
    one.mutable_evidence(0)->set_step(step);
    if (step == 0) {
      all = std::move(one);
    } else {
      *all.add_evidence() = std::move(*one.mutable_evidence(0));
    }
  }
  return all;
}

ArithmeticFamily Run(const std::string& name, const char* algorithm,
                     const std::function<Compressor()>& compressor, bool feedback, int steps,
                     const char* rule = "", bool warning = false) {
  const auto make = [=](Dice& dice) -> Attempt {
    return Steps(algorithm, compressor(), feedback, steps, dice);
  };
  return {name, make, rule, warning};
}

}  // namespace

std::vector<ArithmeticFamily> CleanCompressions() {
  return {
      Run(
          "one-bit-over-steps", "one-bit", [] { return Signs; }, true, 64),
      Run(
          "top-k-over-steps", "top-k", [] { return Largest; }, true, 260),
      Run(
          "top-k-not-yet", "top-k", [] { return Largest; }, true, 70),
      Run("powersgd-over-steps", "powersgd", LowRank, true, 150),
      Run(
          "int8-over-steps", "int8-scaled", [] { return EightBits; }, false, 64),
      Run(
          "int8-few-steps", "int8-scaled", [] { return EightBits; }, false, 9),
  };
}

std::vector<ArithmeticFamily> LossyCompressions() {
  constexpr char kRule[] = "precision/collective-sum";
  return {
      Run(
          "one-bit-without-feedback", "one-bit", [] { return Signs; }, false, 128, kRule, true),
      Run(
          "top-k-without-feedback", "top-k", [] { return Largest; }, false, 260, kRule, true),
      Run("powersgd-without-feedback", "powersgd", LowRank, false, 260, kRule),
  };
}

}  // namespace plumbline::rules::testing
