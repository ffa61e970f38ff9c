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

struct ArithmeticFamily {
  std::string name;
  std::function<v1::Batch(Dice&)> make;
  // Of a broken one: the rule that must find it, as an error or (`warning`) a warning.
  std::string rule;
  bool warning = false;
};

std::vector<ArithmeticFamily> CleanCollectives();
std::vector<ArithmeticFamily> CleanProducts();
std::vector<ArithmeticFamily> CleanUpdates();
std::vector<ArithmeticFamily> BrokenArithmetics();

// x rounded up or down, each as often as it lies near.
double StochasticRound(double x, DType t, Dice& dice);

}  // namespace plumbline::rules::testing
