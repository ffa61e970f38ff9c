// The material of an intervention: sequences in time order, cuts, and rows to replace others with.
// Internal to analysis/routing/intervention/check_router*.cc.
#pragma once

#include <random>

#include "absl/status/status.h"
#include "analysis/routing/intervention/check_router.h"

namespace plumbline::rules::intervention {

struct Sequence {
  int64_t id = 0;
  int64_t rank = 0;
  std::vector<int32_t> rows;  // not padding, by position
};

absl::Status CheckInputs(const RouterInputs& inputs);

// By their first row.
std::vector<Sequence> Sequences(const RouterInputs& inputs);

// Up to `most` indices of 0..count-1, spread evenly, the first and the last among them.
std::vector<size_t> Spread(size_t count, size_t most);

// 1, the powers of two and their neighbours, length - 1.
std::vector<int64_t> Cuts(int64_t length);

// How replaced rows are made.
enum class Manner {
  kRandom,  // normal, with each expert's mean and deviation in the batch
  kCopies,  // of the models' strongest rows, a little sharper: they ask for the same experts
  kFlood,   // all ask first for one expert that the models use
};
inline constexpr Manner kManners[] = {Manner::kRandom, Manner::kCopies, Manner::kFlood};
const char* Describe(Manner manner);

class Replacement {
 public:
  // Borrows all but `options`.
  Replacement(const RouterInputs& inputs, const Assignments& base, const CheckOptions& options);

  // The batch's logits with `rows` replaced; `models` are the rows that shall feel it, `turn`
  // varies the expert that is flooded.
  std::vector<double> Make(Manner manner, const std::vector<int32_t>& rows,
                           const std::vector<int32_t>& models, size_t turn);

 private:
  void Random(double* row);
  void Sharpen(const double* model, double* row) const;
  int32_t FloodedExpert(const std::vector<int32_t>& models, size_t turn) const;
  double Round(double x) const { return options_.round == nullptr ? x : options_.round(x); }

  const RouterInputs& inputs_;
  const Assignments& base_;
  CheckOptions options_;
  std::mt19937_64 rng_;
  std::vector<double> mean_, deviation_;  // [E]
};

}  // namespace plumbline::rules::intervention
