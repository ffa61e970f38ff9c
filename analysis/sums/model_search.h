// T6: which arithmetic on the revealed tree gives the function's results, to the bit?
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "analysis/sums/prober.h"
#include "analysis/sums/replay_data.h"
#include "analysis/sums/sum_model.h"

namespace plumbline::sums {

// What the function answered to random addends.
struct Answers {
  std::vector<Addends> addends;
  std::vector<double> y;
};
absl::StatusOr<Answers> AskRandom(Prober* prober, uint64_t seed, int samples);

// On how many samples the model gives the very answer (zeros compare equal, as do NaNs). Stops when
// more than `most_misses` were wrong.
int Matches(const SumModel& model, const Answers& answers, int most_misses);

struct Scored {
  std::string words;
  int matches = 0;
};

struct SearchResult {
  SumModel model;   // the accepted one, else the best
  int matches = 0;  // of answers.y.size()
  bool accepted = false;
  std::vector<std::string> also;  // other candidates that match everywhere
};
// Tries `candidates` in order, then their near variants (products fused or rounded throughout, the
// root and then all nodes in f64, subnormals flushed, the store's rounding).
SearchResult SearchModel(const std::vector<SumModel>& candidates, const Answers& answers);

// Plausible models that are not this one, with their matches: how well the data tells them apart.
std::vector<Scored> RivalsOf(const SumModel& model, const Answers& answers);

}  // namespace plumbline::sums
