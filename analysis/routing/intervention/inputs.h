// The data of an intervention: sequences in time order, cuts, and replacement rows. Internal to
// analysis/routing/intervention/check_router*.cc.
#pragma once

#include <random>

#include "absl/status/status.h"
#include "analysis/routing/intervention/check_router.h"

namespace plumbline::analysis::intervention {

struct Sequence {
  int64_t id = 0;
  int64_t rank = 0;
  std::vector<int32_t> rows;  // rows that are not padding, by position
};

absl::Status CheckInputs(const RouterInputs& inputs);

// Returns the sequences by their first row.
std::vector<Sequence> Sequences(const RouterInputs& inputs);

// Returns up to `most` indices of 0..count-1, spread evenly, including the first and the last.
std::vector<size_t> Spread(size_t count, size_t most);

// Returns 1, the powers of two and their neighbours, and length - 1.
std::vector<int64_t> Cuts(int64_t length);

// How replacement rows are made.
enum class Method {
  kRandom,  // normal, with each expert's mean and deviation in the batch
  kCopies,  // the models' strongest rows, slightly sharper, so that they choose the same experts
  kFlood,   // all choose first one expert that the models use
};
inline constexpr Method kMethods[] = {Method::kRandom, Method::kCopies, Method::kFlood};
const char* Describe(Method method);

class Replacement {
 public:
  // Borrows all arguments except `options`.
  Replacement(const RouterInputs& inputs, const Assignments& base, const CheckOptions& options);

  // Returns the batch's logits with `rows` replaced. `models` are the rows that should be affected.
  // `turn` varies the flooded expert.
  std::vector<double> Make(Method method, const std::vector<int32_t>& rows,
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

}  // namespace plumbline::analysis::intervention
