// Series that are logged next to the losses of a run and explain a rise of one: a phase (a stage, a
// task, the length of sequences) that changes, a weight of a term that moves, a term that grows, a
// measure of quality that improves all the same. Not thread-safe.
#pragma once

#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "analysis/series/series.h"
#include "base/archive.h"
#include "rules/analysis_names.h"

namespace plumbline::rules {

// The words of a series' name, in lower case, split at separators.
using PlainWords = std::vector<std::string>;
PlainWords PlainWordsOf(const std::string& op);
bool HasAnyWord(const PlainWords& words, std::span<const std::string_view> any);

class Companions {
 public:
  enum class Kind : uint8_t {
    kNone,
    kPhase,    // stage, task, seq_len, round
    kModel,    // fold, member: a phase in which another model begins anew
    kWeight,   // kl_weight, beta, mixup
    kQuality,  // accuracy, mAP, the margins of pairs: higher is better
    kTerm,     // an auxiliary loss that is no side of a game
    kPart,     // another loss: of training, or of a side of a game
  };
  static Kind KindOf(const std::string& op);

  struct Series {
    Kind kind = Kind::kNone;
    double value = 0;  // the newest
    uint64_t points = 0, ups = 0, downs = 0;
    std::vector<int64_t> steps;  // of the first changes of a phase
    BlockMedians course;         // of a weight, a quality or a term
    // Of a loss: its first step, the number of exact zeros at its beginning, the first step after
    // them, and the largest of the first 5 values from there on.
    int64_t begin = 0, on = 0;
    uint64_t zeros = 0, ons = 0;
    double size = 0;
    bool is_phase() const { return kind == Kind::kPhase || kind == Kind::kModel; }
    void Take(int64_t step, double value);
    void Persist(Archive& a) {
      a(kind, value, points, ups, downs, steps, course, begin, on, zeros, ons, size);
    }
  };
  // Returns the series of that name; nullptr if there are too many. The pointer stays valid.
  Series* Of(const std::string& op);

  // Returns the phase that changes within `within` steps of a step. A series that changes in more
  // than an eighth of the points names no phases. `of_model`: only one in which another model
  // begins.
  std::optional<std::string> PhaseNear(int64_t step, double within, uint64_t points,
                                       bool of_model = false) const;
  // Returns the weight that moved by a fifth of its span or more from `within` steps before a step
  // to `until`, and that mostly moves in one direction: "kl_weight (0.01 to 1)".
  std::optional<std::string> WeightMoved(int64_t step, double within,
                                         double until = HUGE_VAL) const;
  // Returns the term that rose most since a step, and by how much.
  std::pair<std::string, double> TermRose(int64_t step) const;
  // Returns the loss that was switched on within `within` steps of a step: it left exactly 0 there,
  // or began there, `within` steps or more after `start`. And its size then.
  std::optional<std::pair<std::string, double>> SwitchedOn(int64_t step, double within,
                                                           int64_t start) const;
  // True if the margins or accuracies of pairs are logged: preference training, as DPO.
  bool OfPairs() const;
  // Returns the quality whose last third lies above its first third by 3 standard errors.
  std::optional<std::string> QualityRises() const;
  // Returns the quality that has improved since a step up to its end (ImprovedSince).
  std::optional<std::string> QualityImproved(int64_t onset, int64_t last) const;

  void Persist(Archive& a) { a(series_); }

 private:
  std::map<std::string, Series> series_;
};

// Returns by how much the newest 3 blocks lie above the newest 3 up to a step. NaN if one is empty.
double RoseSince(const BlockMedians& course, int64_t step);
// Returns true if `sign` times the values rises from before `onset` to the end, beyond noise, has
// its best values at the end, and has 3 blocks since or more, the newest in the second half of the
// steps from `onset` to `last`. `best_last`: the best values need not be at the end if it is false.
bool ImprovedSince(const BlockMedians& course, double sign, int64_t onset, int64_t last,
                   bool best_last = true);

}  // namespace plumbline::rules
