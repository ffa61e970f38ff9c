// Tests whether the first tokens of responses differ far more between the sides than later ones. A
// prefix cache that outlives a weight update has keys and values of older weights, and the tokens
// next to the prompt attend mostly to these. First tokens may be less likely, so they are compared
// with later tokens of about the same probability. Not thread-safe.
//
// Two other faults of first tokens are distinguished by the sequences that have it. Another chat
// template, or a BOS token on one side, is in all sequences from the first step on. Sequences that
// a trainer packs without a mask between documents attend to the document before: all but the first
// of each pack. A cache holds no older weights in the first step of a run, nor in sequences without
// cached tokens.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "analysis/drift/strata.h"
#include "analysis/drift/values/values.h"
#include "analysis/rollout/rollout.h"
#include "base/archive.h"

namespace plumbline::analysis {

struct FirstTokensExcess {
  enum class Where { kUnknown, kCache, kNotCache };
  bool found = false;   // ten times above later tokens, and 5 standard errors above them
  bool sharp = false;   // the tokens after them have less than a third of their mean square
  double square = 0;    // mean of min(d^2, 1/4) of the first tokens
  double expected = 0;  // mean of min(d^2, 1/4) of later tokens of equal probability
  // True if the mean square falls with the distance from the prompt by at least a tenth per
  // doubling, and four times in all, by 5 standard errors, and is twice that of later tokens of
  // equal probability.
  bool decays = false;
  Where where = Where::kUnknown;  // what the sequences show about a cache
  double share = 0;               // share of the sequences whose first tokens differ
  double ratio() const { return square / expected; }
};

class FirstTokens {
 public:
  static constexpr size_t kFirst = 8, kNext = 32;  // numbers of judged tokens of a response

  void BeginSequence(const RolloutSequence& sequence);
  // Takes one fresh token of the open sequence; `bin` is its probability stratum.
  void Add(double d, size_t bin, ContextKey context);
  // Skips a token of older weights. Tokens drawn after an update inside a sequence attend to caches
  // of older weights, but are not first tokens.
  void Skip() { ++index_; }
  void EndSequence();
  FirstTokensExcess Excess() const;
  // index_, open_, at_start_ and cached_tokens_ belong to one sequence, so they are not stored.
  void Persist(Archive& a) {
    a(first_, first_bins_, late_, next_);
    a(begun_, from_start_, start_step_, octaves_, all_, start_, cached_, uncached_);
  }

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

  // Sequences by the mean square of their first tokens.
  struct Group {
    DriftHistogram squares;
    void Persist(Archive& a) { a(squares); }
    bool any() const { return squares.count() >= kFewestSequences; }
    double Share(double above) const { return squares.ShareAbove(above); }
  };
  static constexpr uint64_t kFewestSequences = 8;
  static constexpr size_t kOctaves = 6;  // tokens 0-7, 8-15, 16-31, ..; the last one has the rest

  void Decay(FirstTokensExcess& excess) const;
  void Place(FirstTokensExcess& excess) const;

  size_t index_ = 0;
  Cell open_;
  bool at_start_ = false;
  int64_t cached_tokens_ = -1;
  bool begun_ = false;
  bool from_start_ = false;  // the record has the run's first step or weights
  int64_t start_step_ = 0;   // the first step of the record
  std::array<Cell, kOctaves> octaves_;
  // All sequences, those of the first step, with cached tokens, without cached tokens.
  Group all_, start_, cached_, uncached_;
  ClusteredMean first_;
  std::array<uint64_t, kBins> first_bins_{};
  std::array<Cell, kBins> late_;
  Cell next_;
};

}  // namespace plumbline::analysis
