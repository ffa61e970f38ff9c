// T6: finds the arithmetic on the revealed tree that gives the function's results bit for bit.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "analysis/sums/prober.h"
#include "analysis/sums/replay_data.h"
#include "analysis/sums/sum_model.h"

namespace plumbline::sums {

// The function's results for random addends.
struct Answers {
  std::vector<Addends> addends;
  std::vector<double> y;
};
absl::StatusOr<Answers> AnswersOnRandom(Prober* prober, uint64_t seed, int samples);

// Returns on how many samples the model gives the exact result (zeros compare equal, and so do
// NaNs). Stops after more than `most_misses` mismatches.
int Matches(const SumModel& model, const Answers& answers, int most_misses);

struct Scored {
  std::string words;
  int matches = 0;
};

struct SearchResult {
  SumModel model;   // the accepted model, else the best
  int matches = 0;  // out of answers.y.size()
  bool accepted = false;
  std::vector<std::string> also;  // other candidates that match on every sample
};
// Tries `candidates` in order, then variants of them: all products fused or rounded, the root and
// then all nodes in f64, subnormals flushed, the store's rounding.
SearchResult SearchModel(const std::vector<SumModel>& candidates, const Answers& answers);

// Returns plausible other models with their numbers of matches, which show how well the data
// distinguish them.
std::vector<Scored> RivalsOf(const SumModel& model, const Answers& answers);

}  // namespace plumbline::sums
