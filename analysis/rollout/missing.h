// Tests whether log-probabilities are missing independently of the drawn tokens. If an engine
// records only its likeliest tokens, the rare ones are missing, so the record looks sharper than
// the sampled distribution. The values of the other side show this. Not thread-safe.
#pragma once

#include <cmath>
#include <cstdint>

#include "analysis/rollout/sequence.h"
#include "base/archive.h"

namespace plumbline::analysis {

class MissingValues {
 public:
  // Takes a judged token.
  void Add(const RolloutToken& token);

  // True if tokens with only one value differ in it from the tokens with both values, by 5 standard
  // errors, or if more than 1e-3 of the tokens have no value.
  bool depend() const;
  // Returns the number of tokens without a finite value on at least one side.
  uint64_t count() const { return no_rollout_.n + no_train_.n + neither_; }
  // Returns the figures in a sentence without its full stop, or "" if missing values do not depend
  // on the tokens.
  std::string Words() const;
  void Persist(Archive& a) { a(both_train_, both_rollout_, no_rollout_, no_train_, neither_); }

 private:
  struct Cell {
    uint64_t n = 0;
    double sum = 0, squares = 0;
    void Add(double x) {
      ++n;
      sum += x;
      squares += x * x;
    }
    double mean() const { return sum / static_cast<double>(n); }
    // Returns the squared standard error of the mean.
    double square_error() const {
      const auto count = static_cast<double>(n);
      return std::fmax(squares / count - mean() * mean(), 0) / (count - 1);
    }
    void Persist(Archive& a) { a(n, sum, squares); }
  };
  static bool Differ(const Cell& missing, const Cell& both);
  bool Untested() const;

  Cell both_train_, both_rollout_;
  Cell no_rollout_;  // log pi of tokens without log mu
  Cell no_train_;    // log mu of tokens without log pi
  uint64_t neither_ = 0;
};

}  // namespace plumbline::analysis
