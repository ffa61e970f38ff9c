// Second moments of an optimizer from checkpoint to checkpoint: tests whether they ever fall.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "analysis/frame/frame.h"
#include "base/dtype.h"

namespace plumbline::analysis {

// One tensor of one rank. Elements are those that its evidence samples, the same in each
// checkpoint.
struct MomentCourse {
  DType dtype = DType::kUnspecified;
  double beta2 = 0;  // 0 if not known
  std::vector<float> last;
  std::vector<uint8_t> rose, fell;  // per element, since the first checkpoint that counts
  uint64_t checkpoints = 0;         // checkpoints that count, including the first
  uint64_t early = 0;               // checkpoints whose average was still filling
  uint64_t poisoned = 0;
  int64_t step_first = 0, step_last = 0;
  bool reported = false;
  void Persist(Archive& a) {
    a(dtype, beta2, last, rose, fell, checkpoints, early, poisoned, step_first, step_last,
      reported);
  }
};

// Keeps 6 bytes per sampled element. For checkpoints only: the op is "exp_avg_sq".
class MomentCourses {
 public:
  static constexpr uint64_t kCheckpoints = 3;

  // `elements` is the number of elements that must have moved. `share` is the largest share of
  // these that may have fallen.
  MomentCourses(size_t elements, double share) : elements_(elements), share_(share) {}

  static bool ReadsScalar(const v1::Site& site);
  // Takes a site of a step.
  void Take(const SiteStep& step);
  // Adds findings.
  void Close(const StepEnd& step, VerdictSink& out);
  // Adds the remaining verdicts: of each tensor, and of the small ones together.
  void Rest(VerdictSink& out) const;

  // Between steps open_ and optimizer_step_ are empty.
  void Persist(Archive& a) { a(courses_); }

 private:
  using Key = std::tuple<v1::Role, uint32_t, std::string>;  // rank, layer
  struct Counts {
    uint64_t moved = 0, fell = 0;
  };
  struct Open {
    DType dtype = DType::kUnspecified;
    std::vector<float> values;
    bool poisoned = false;
    std::optional<double> beta2;
  };

  void Compare(const StepEnd& step, const Open& open, MomentCourse& course) const;
  static Counts Count(const MomentCourse& course);
  static bool CannotDecay(const MomentCourse& course);
  bool Few(const Counts& counts) const;
  v1::Verdict Found(const MomentCourse& course, const Counts& counts, const std::string& who) const;
  v1::Verdict Judge(const MomentCourse& course, const Counts& counts) const;

  size_t elements_;
  double share_;
  std::map<Key, MomentCourse> courses_;
  std::map<std::pair<uint32_t, std::string>, Open> open_;  // of this step
  std::optional<double> optimizer_step_;                   // of this step
};

}  // namespace plumbline::analysis
