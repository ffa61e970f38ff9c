// Collectives, products and updates as clean runs make them, and as broken ones do: the truth is
// what each was made by, in code that shares nothing with the rules but the number formats. A
// family is one function.
#pragma once

#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "base/half.h"
#include "plumbline/v1/batch.pb.h"

namespace plumbline::rules::testing {

// Draws of one recording.
class Dice {
 public:
  explicit Dice(uint64_t seed) : random_(seed * 0x9e3779b97f4a7c15ull + 1) {}
  double Normal() { return normal_(random_); }
  double Uniform() { return std::uniform_real_distribution(0.0, 1.0)(random_); }
  int Below(int n) { return static_cast<int>(random_() % static_cast<uint64_t>(n)); }
  template <typename T>
  T One(std::initializer_list<T> of) {
    return of.begin()[Below(static_cast<int>(of.size()))];
  }
  std::mt19937_64& engine() { return random_; }

 private:
  std::mt19937_64 random_;
  std::normal_distribution<double> normal_;
};

// A recording, and how biased the arithmetic that made it really is.
struct Attempt {
  Attempt(v1::Batch made, std::function<double()> truth = nullptr)  // NOLINT: a batch is one
      : batch(std::move(made)), bias(std::move(truth)) {}
  v1::Batch batch;
  // Mean error beyond rounding of the same arithmetic on thousands of other values of this kind, in
  // ulp of the result (of bf16 where that is f32). Unset: 0, or no business of a sum's.
  std::function<double()> bias;
};

struct ArithmeticFamily {
  std::string name;
  std::function<Attempt(Dice&)> make;
  // Of a broken one: the rule that must find it, as an error or (`warning`) a warning.
  std::string rule;
  bool warning = false;
};

std::vector<ArithmeticFamily> CleanCollectives();
// Sound sums that something was done to between the recording and the collective.
std::vector<ArithmeticFamily> AlteredCollectives();
std::vector<ArithmeticFamily> CleanProducts();
std::vector<ArithmeticFamily> CleanUpdates();
std::vector<ArithmeticFamily> BrokenArithmetics();
// Sums that are biased by what they are made with: each must be found.
std::vector<ArithmeticFamily> BiasedCollectives();
// Values that are not finite, where the arithmetic is sound: `rule` tells of them, no other may.
std::vector<ArithmeticFamily> PoisonedArithmetics();

// Compressed reductions over steps, with error feedback or without bias; and those that lose.
std::vector<ArithmeticFamily> CleanCompressions();
std::vector<ArithmeticFamily> LossyCompressions();

// x rounded up or down, each as often as it lies near.
double StochasticRound(double x, DType t, Dice& dice);

}  // namespace plumbline::rules::testing
