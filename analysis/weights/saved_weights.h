// Weights and optimizer state of a run's checkpoints: finds tensors that hold the bits of an
// earlier step, of another rank or of another tensor, weights that were replaced, and adapters and
// optimizers that do not learn.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "analysis/weights/saved_tensor.h"

namespace plumbline::analysis {

// A tensor of the current checkpoint with its history.
struct SavedPair {
  std::string layer, op;
  const SavedLook* look = nullptr;
  SavedTensor* past = nullptr;
  enum class Change { kFirst, kStill, kBack, kNew } change = Change::kFirst;
  int64_t back_step = 0;  // for kBack: the step with the same bits
  bool returned = false;  // has earlier bits, for kBack or with few elements
  bool weight() const { return op == "weight"; }
};

// The checkpoint of one rank.
struct SavedRank {
  uint32_t rank = 0;
  std::vector<SavedPair> tensors;          // by (layer, op)
  std::map<std::string, double> rates;     // of the weights that an optimizer holds
  std::map<std::string, double> betas;     // decay of the second moments
  std::optional<double> rate;              // smallest of all groups
  std::optional<double> steps;             // largest step count of the optimizer
  std::map<std::string, double> contents;  // steps that files state, by file name
  bool older = false;                      // a file's content states an earlier step than its name
  bool all_named = false;                  // the optimizer's parameters all have names
  const SavedPair* Find(std::string_view layer, std::string_view op) const;
  // Returns false for buffers: weights that no optimizer holds, although others are held.
  bool IsTrained(const SavedPair& pair) const {
    return !all_named || rates.empty() || rates.contains(pair.layer);
  }
  bool AnyNewWeight() const;  // among those that are trained
};

// Step that one file's content states.
struct ContentCourse {
  uint64_t equal = 0;               // consecutive checkpoints whose name states the same
  std::optional<double> last;       // newest content
  std::optional<int64_t> odd_step;  // newest name, if its content states an earlier step
  bool reported = false;
  void Persist(Archive& a) { a(equal, last, odd_step, reported); }
};

// A rank whose matrices were those of another one in the newest checkpoint.
struct CopiedRank {
  int64_t step = 0, before = 0;
  uint32_t other = 0;
  uint64_t tensors = 0;
  void Persist(Archive& a) { a(step, before, other, tensors); }
};

// What is kept of one rank.
struct SavedCourse {
  uint64_t checkpoints = 0;
  int64_t step_first = 0, step = 0;
  std::optional<int64_t> stood;  // the newest checkpoint, if only this rank did not change in it
  int64_t stood_before = 0;      // the checkpoint before `stood`
  bool moved = false;            // its weights changed in the newest checkpoint
  uint64_t zero_adapters = 0, still_adapters = 0;  // consecutive checkpoints
  int64_t adapters_first = 0;
  bool adapters_moved = false;
  bool empty_reported = false, reported = false;
  std::map<std::string, ContentCourse> contents;
  std::optional<double> steps;  // of the optimizer
  std::optional<CopiedRank> copied;
  void Persist(Archive& a) {
    a(checkpoints, step_first, step, stood, stood_before, moved, zero_adapters, still_adapters,
      adapters_first, adapters_moved, empty_reported, reported, contents, steps, copied);
  }
};

// Uses only steps that a checkpoint's reader made (they have the series "optimizer.named").
class SavedWeights {
 public:
  static bool ReadsScalar(const v1::Site& site);
  void Take(const SiteStep& step);
  void Close(const StepEnd& step, VerdictSink& out);
  void Rest(VerdictSink& out) const;

  // Between steps open_ and rates_ are empty.
  void Persist(Archive& a) { a(tensors_, courses_); }

 private:
  using Key = std::tuple<v1::Role, uint32_t, std::string, std::string>;  // rank, layer, op
  using Place = std::pair<v1::Role, uint32_t>;                           // rank
  struct Open {
    std::map<std::pair<std::string, std::string>, SavedLook> tensors;  // by layer and op
    std::map<std::string, double> rates, betas, contents;
    std::optional<double> steps;
    bool all_named = false;
  };

  SavedRank Compare(const StepEnd& step, uint32_t rank, Open& open);
  SavedCourse& CourseOf(const StepEnd& step, uint32_t rank) { return courses_[{step.role, rank}]; }
  void JudgeContents(const StepEnd& step, SavedRank& rank, VerdictSink& out);
  void JudgeReturns(const StepEnd& step, std::vector<SavedRank>& ranks, VerdictSink& out);
  void JudgeStandstill(const StepEnd& step, std::vector<SavedRank>& ranks, VerdictSink& out);
  void JudgeCopies(const StepEnd& step, std::vector<SavedRank>& ranks);
  void JudgeCopied(const StepEnd& step, std::vector<SavedRank>& ranks, VerdictSink& out);
  static bool ReportCopied(uint32_t rank, const SavedCourse& course, VerdictSink& out);
  void TakeAdapters(const StepEnd& step, const SavedRank& rank);
  bool ReportAdapters(const Place& place, const SavedCourse& course, VerdictSink& out) const;
  void JudgeEmpty(const StepEnd& step, const SavedRank& rank, VerdictSink& out);
  void JudgeMoments(const StepEnd& step, SavedRank& rank, VerdictSink& out);
  void Add(v1::Verdict verdict, const StepEnd& step, uint32_t rank, VerdictSink& out);

  std::map<Key, SavedTensor> tensors_;
  std::map<Place, SavedCourse> courses_;
  std::map<uint32_t, Open> open_;                    // of this step, by rank
  std::map<uint32_t, std::optional<double>> rates_;  // the same
};

// Finds weights of one rank that were replaced since the checkpoint before: by zeros, by their
// transpose, by another weight, or by new values; and gains that grow by one factor per step.
std::vector<v1::Verdict> JudgeReplaced(int64_t step, const SavedCourse& before, SavedRank& rank);
std::vector<v1::Verdict> JudgeGains(int64_t step, SavedRank& rank);

// Returns up to eight names, separated by spaces.
std::string NamesOf(const std::vector<const SavedPair*>& tensors);

}  // namespace plumbline::analysis
