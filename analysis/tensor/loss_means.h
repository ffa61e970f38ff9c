// Compares a logged loss with the mean over all tokens and with the means of means.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace plumbline::analysis {

// The sums of one rank in one micro-batch.
struct LossUnit {
  uint32_t rank = 0;
  uint32_t call = 0;
  double loss_sum = 0;
  double tokens = 0;  // > 0, finite; units without tokens are counted separately

  double mean() const { return loss_sum / tokens; }
};

enum class LossMean {
  kTokenMean,    // sum of losses over sum of tokens
  kMeanOfMeans,  // and not the token mean
  kBoth,         // too close to distinguish
  kLocal,        // the logging rank's own mean
  kNeither,
};

struct LossComparison {
  LossMean kind = LossMean::kNeither;
  double token_mean = 0;
  double mean_of_means = 0;  // the one that matches, else that over ranks
  double allowance = 0;      // if |logged - mean| is at most this, they are equal
  double chance = 1;         // probability that an unrelated value is as close to a mean of means
  std::string over;          // "ranks", "micro-batches"
};

// `chance` is the total width of the allowances of all candidates, divided by the distance of the
// two means: an unrelated value between or next to them is taken to be uniform. `logged` comes from
// rank `logger`. Requires at least two units. The allowance covers sums, counts and the logged
// value in fp32, with each sum over the units taken in fp32 and one rounding per term: (n + 4)
// 2^-24 of the mean of |terms|. If the logged value has no more digits, it adds half a unit of its
// last decimal, or half an ulp of bf16 or fp16.
LossComparison CompareLoss(double logged, uint32_t logger, const std::vector<LossUnit>& units,
                           size_t units_without_tokens);

// Returns half of the last place of a value that was rounded to few decimals (at least two) or to
// 16 bits. For other values, returns 0.
double LoggingStep(double value);

}  // namespace plumbline::analysis
