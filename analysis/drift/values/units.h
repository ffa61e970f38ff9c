// Tests whether one side's log-probabilities are in another unit than the other's: a logarithm of
// another base, a sum divided by the sequence's length, or one number per sequence (the sum or mean
// over its tokens) that is repeated in each token. Not thread-safe.
#pragma once

#include <cstdint>

#include "base/archive.h"

namespace plumbline::analysis {

class UnitsFit {
 public:
  // Adds log pi and log mu of a fresh token. Both must be finite.
  void Add(double train, double rollout);
  void EndSequence();

  // Returns the factor c in log pi = c log mu. If no constant explains 99 % of d^2, returns NaN.
  double Factor() const;
  // Returns true if c is the sequence's length (or its inverse) in every sequence. The lengths must
  // differ.
  bool ByLength() const;
  bool ByInverseLength() const;

  // Result: one side has one number per sequence. It is the sum or the mean over the tokens of the
  // other side, which has a number per token.
  struct Repeated {
    bool found = false;
    bool of_train = false;  // the trainer's column has the number per sequence
    bool mean = false;      // the number is a mean; otherwise it is a sum
    double ratio = 0;       // ratio of the numbers to the sums (or means), over all sequences
    uint64_t sequences = 0;
  };
  // Finds nothing if a sequence of at least four tokens contradicts it, or if there are fewer than
  // eight such sequences.
  Repeated RepeatedNumber() const;
  void Persist(Archive& a) {
    a(all_, open_, sequences_, by_length_, by_inverse_, shortest_, longest_);
    a(train_, rollout_, train_repeated_, rollout_repeated_);
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
  // The values of one side within a sequence.
  struct Column {
    double first = 0, sum = 0;
    bool constant = true;
    void Add(double value, bool is_first);
    void Persist(Archive& a) { a(first, sum, constant); }
  };
  // Counts of sequences in which the number of one side is the sum or mean of the other side.
  struct Counts {
    uint64_t by_sum = 0, by_mean = 0;
    double number = 0, sum = 0, mean = 0;  // totals
    void Add(const Column& repeated, const Column& other, double length);
    void Persist(Archive& a) { a(by_sum, by_mean, number, sum, mean); }
  };
  bool SeveralLengths() const;

  Sums all_, open_;
  Column train_, rollout_;
  Counts train_repeated_, rollout_repeated_;
  uint64_t sequences_ = 0, by_length_ = 0, by_inverse_ = 0, shortest_ = 0, longest_ = 0;
};

}  // namespace plumbline::analysis
