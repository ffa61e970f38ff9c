// Tests whether the first tokens of responses differ far more between the sides than later ones. A
// prefix cache that outlives a weight update has keys and values of older weights, and the tokens
// next to the prompt attend mostly to these. First tokens may be less likely, so they are compared
// with later tokens of about the same probability. Not thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "analysis/drift/fit.h"
#include "base/archive.h"

namespace plumbline::analysis {

struct FirstTokensExcess {
  bool found = false;   // ten times above later tokens, and 5 standard errors above them
  bool sharp = false;   // the tokens after them have less than a third of their mean square
  double square = 0;    // mean of min(d^2, 1/4) of the first tokens
  double expected = 0;  // mean of min(d^2, 1/4) of later tokens of equal probability
  double ratio() const { return square / expected; }
};

class FirstTokens {
 public:
  static constexpr size_t kFirst = 8, kNext = 32;  // numbers of judged tokens of a response

  // Takes one fresh token of the open sequence; `bin` is its probability stratum.
  void Add(double d, size_t bin, ContextKey context);
  // Skips a token of older weights. Tokens drawn after an update inside a sequence attend to caches
  // of older weights, but are not first tokens.
  void Skip() { ++index_; }
  void EndSequence();
  FirstTokensExcess Excess() const;
  // index_ belongs to one sequence, so it is not stored.
  void Persist(Archive& a) { a(first_, first_bins_, late_, next_); }

 private:
  static constexpr size_t kBins = 12;
  struct Cell {
    uint64_t count = 0;
    double squares = 0;
    void Add(double square) {
      ++count;
      squares += square;
    }
    double mean() const { return squares / static_cast<double>(count); }
    void Persist(Archive& a) { a(count, squares); }
  };

  size_t index_ = 0;
  ClusteredMean first_;
  std::array<uint64_t, kBins> first_bins_{};
  std::array<Cell, kBins> late_;
  Cell next_;
};

}  // namespace plumbline::analysis
