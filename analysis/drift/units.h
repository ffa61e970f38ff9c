// Tests whether one side's log-probabilities are the other's times a constant: a logarithm of
// another base, or a sum divided by the sequence's length. Not thread-safe.
#pragma once

#include <cstdint>

#include "base/archive.h"

namespace plumbline::analysis {

class UnitsFit {
 public:
  // log pi and log mu of a fresh token, finite.
  void Add(double train, double rollout);
  void EndSequence();

  // Returns the factor c in log pi = c log mu. If no constant explains 99 % of d^2, returns NaN.
  double Factor() const;
  // Returns true if c is the sequence's length (or its inverse) in every sequence. The lengths must
  // differ.
  bool ByLength() const;
  bool ByInverseLength() const;
  void Persist(Archive& a) {
    a(all_, open_, sequences_, by_length_, by_inverse_, shortest_, longest_);
  }

 private:
  struct Sums {
    uint64_t tokens = 0;
    double rr = 0, tr = 0, tt = 0, dd = 0;
    double factor() const { return tr / rr; }
    // Share of d^2 that remains after the best factor.
    double rest() const { return (tt - tr * tr / rr) / dd; }
    void Persist(Archive& a) { a(tokens, rr, tr, tt, dd); }
  };
  bool SeveralLengths() const;

  Sums all_, open_;
  uint64_t sequences_ = 0, by_length_ = 0, by_inverse_ = 0, shortest_ = 0, longest_ = 0;
};

}  // namespace plumbline::analysis
