// One logged loss against what it may be: the mean over all tokens, or a mean of means.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace plumbline::rules {

// What one rank summed in one micro-batch.
struct LossUnit {
  uint32_t rank = 0;
  uint32_t call = 0;
  double loss_sum = 0;
  double tokens = 0;  // > 0, finite; units without tokens are counted apart

  double mean() const { return loss_sum / tokens; }
};

enum class LossMean {
  kTokenMean,    // sum of losses over sum of tokens
  kMeanOfMeans,  // and it is not the token mean
  kBoth,         // too close to tell
  kLocal,        // the logging rank's own mean
  kNeither,
};

struct LossComparison {
  LossMean kind = LossMean::kNeither;
  double token_mean = 0;
  double mean_of_means = 0;  // the one that was met, else that over ranks
  double allowance = 0;      // |logged - mean| up to which they are the same
  double chance = 1;         // that a value of another making lay as near to a mean of means
  std::string over;          // "ranks", "micro-batches"
};

// `chance`: the width of what is met, over all candidates, over the distance of the two means:
// where a value between or beside them lies is taken to be anyone's guess. `logged` by rank
// `logger`. At least two units. Allowances: sums, counts and the logged value kept in fp32, each
// sum taken in fp32 over the units, each term one rounding: (n + 4) 2^-24 of the mean of |terms|;
// plus half a unit of the logged value's last decimal, or half an ulp of bf16 or fp16, where it has
// no more digits than that.
LossComparison CompareLoss(double logged, uint32_t logger, const std::vector<LossUnit>& units,
                           size_t units_without_tokens);

// Half of the last place of a value that was rounded to few decimals (two at least) or to 16 bits;
// 0 for others.
double LoggingStep(double value);

}  // namespace plumbline::rules
