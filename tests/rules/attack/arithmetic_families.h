// Generators of collectives, products and updates, both clean and broken. The ground truth is the
// arithmetic that generated each recording. Of the code under test, the generators use only the
// number formats. A family is one function.
#pragma once

#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "base/half.h"
#include "plumbline/v1/batch.pb.h"

namespace plumbline::rules::testing {

// The random draws of one recording.
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

// A recording and the true bias of the arithmetic that generated it.
struct Attempt {
  Attempt(v1::Batch made, std::function<double()> truth = nullptr)  // NOLINT: a batch is one
      : batch(std::move(made)), bias(std::move(truth)) {}
  v1::Batch batch;
  // Returns the mean error beyond rounding of the same arithmetic on thousands of other values of
  // this kind. Unit: ulp of the result (of bf16 if the result is f32). If unset, the bias is 0 or
  // does not apply.
  std::function<double()> bias;
};

struct ArithmeticFamily {
  std::string name;
  std::function<Attempt(Dice&)> make;
  // If the family is broken: the rule that must report it, as an error, or as a warning if
  // `warning` is set.
  std::string rule;
  bool warning = false;
};

std::vector<ArithmeticFamily> CleanCollectives();
// Returns the families of correct sums that were altered between the collective and the recording.
std::vector<ArithmeticFamily> AlteredCollectives();
std::vector<ArithmeticFamily> CleanProducts();
std::vector<ArithmeticFamily> CleanUpdates();
std::vector<ArithmeticFamily> BrokenArithmetics();
// Returns the families of sums whose arithmetic is biased. Each must be reported.
std::vector<ArithmeticFamily> BiasedCollectives();
// Returns the families with non-finite values and correct arithmetic. `rule` must report them, and
// no other rule.
std::vector<ArithmeticFamily> PoisonedArithmetics();

// Return the families of compressed reductions over steps: with error feedback or unbiased, and
// lossy.
std::vector<ArithmeticFamily> CleanCompressions();
std::vector<ArithmeticFamily> LossyCompressions();

// Returns x rounded up or down at random. The probability of each neighbour is proportional to its
// closeness.
double StochasticRound(double x, DType t, Dice& dice);

}  // namespace plumbline::rules::testing
