// Tests routers that use statistics of the batch: logits that are normalised over the tokens, a
// softmax over the tokens. Their twins use stored statistics. 500 recordings of each family if
// PLUMB_LONG=1, otherwise a few.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iostream>
#include <numeric>
#include <string>
#include <vector>

#include "tests/rules/attack/lab.h"
#include "tests/rules/attack/parts.h"
#include "tests/rules/attack/seeds.h"
#include "tests/rules/support/verdicts.h"

namespace plumbline::rules::attack {
namespace {

constexpr char kRule[] = "causality/moe-future-leak";

// Calls change(group) for the row numbers of the call, or of each sequence.
void EachGroup(const Rows& rows, bool sequences,
               const std::function<void(const std::vector<int>&)>& change) {
  if (sequences) {
    for (const auto& group : BySequence(rows)) change(group);
    return;
  }
  std::vector<int> all(S(rows.count));
  std::iota(all.begin(), all.end(), 0);
  change(all);
}

double& Cell(Rows& rows, int t, int e) { return rows.x[S(t) * S(rows.experts) + S(e)]; }

struct Moments {
  std::vector<double> mean, deviation;
};

Moments MomentsOf(const Rows& rows, const std::vector<int>& group) {
  Moments m;
  for (int e = 0; e < rows.experts; ++e) {
    double mean = 0, squares = 0;
    for (const int t : group) mean += rows.At(t, e) / static_cast<double>(group.size());
    for (const int t : group) squares += std::pow(rows.At(t, e) - mean, 2);
    m.mean.push_back(mean);
    m.deviation.push_back(std::sqrt(squares / static_cast<double>(group.size()) + 1e-5));
  }
  return m;
}

void Normalise(Rows& rows, const std::vector<int>& group, const Moments& m, bool scale) {
  for (const int t : group) {
    for (int e = 0; e < rows.experts; ++e)
      Cell(rows, t, e) = (rows.At(t, e) - m.mean[S(e)]) / (scale ? m.deviation[S(e)] : 1);
  }
}

Call Recorded(const Lab& lab, const Rows& scores) {
  Rows stored = scores;  // as the trainer's fp32 tensor
  for (double& x : stored.x) x = static_cast<float>(x);
  return TopK(lab, stored);
}

template <bool kSequences, bool kScale>
Call BatchNorm(const Lab& lab, const Rows& rows) {
  Rows scores = rows;
  EachGroup(rows, kSequences,
            [&](const auto& group) { Normalise(scores, group, MomentsOf(rows, group), kScale); });
  return Recorded(lab, scores);
}

template <bool kSequences>
Call DivideByRms(const Lab& lab, const Rows& rows) {
  Rows scores = rows;
  EachGroup(rows, kSequences, [&](const auto& group) {
    for (int e = 0; e < rows.experts; ++e) {
      double squares = 0;
      for (const int t : group) squares += rows.At(t, e) * rows.At(t, e);
      for (const int t : group)
        Cell(scores, t, e) /= std::sqrt(squares / static_cast<double>(group.size()));
    }
  });
  return Recorded(lab, scores);
}

template <bool kLog>
Call Sinkhorn(const Lab& lab, const Rows& rows) {
  Rows scores = rows;
  for (double& x : scores.x) x = std::exp(x);
  for (int round = 0; round < 30; ++round) {
    for (int t = 0; t < rows.count; ++t) {
      double sum = 0;
      for (int e = 0; e < rows.experts; ++e) sum += scores.At(t, e);
      for (int e = 0; e < rows.experts; ++e) Cell(scores, t, e) /= sum;
    }
    for (int e = 0; e < rows.experts; ++e) {
      double sum = 0;
      for (int t = 0; t < rows.count; ++t) sum += scores.At(t, e);
      for (int t = 0; t < rows.count; ++t) Cell(scores, t, e) *= rows.count / sum / rows.experts;
    }
  }
  for (double& x : scores.x) x = kLog ? std::log(x) : x;
  return Recorded(lab, scores);
}

// Chooses by x - log sum exp over `of`; records x.
Call Softmax(const Lab& lab, const Rows& rows, const Rows& of, bool sequences) {
  Rows values = rows;
  const auto subtract = [&](const std::vector<int>& group, const std::vector<int>& source) {
    for (int e = 0; e < rows.experts; ++e) {
      double sum = 0;
      for (const int t : source) sum += std::exp(of.At(t, e));
      for (const int t : group) Cell(values, t, e) -= std::log(sum);
    }
  };
  EachGroup(rows, sequences, [&](const auto& group) { subtract(group, group); });
  return TopK(lab, rows, values.x);
}
template <bool kSequences>
Call TokenSoftmax(const Lab& lab, const Rows& rows) {
  return Softmax(lab, rows, rows, kSequences);
}
Call StoredSoftmax(const Lab& lab, const Rows& rows) {
  return Softmax(lab, rows, lab.Earlier(), false);
}

template <bool kScale>
Call RunningNorm(const Lab& lab, const Rows& rows) {
  const Rows earlier = lab.Earlier();
  Rows scores = rows;
  std::vector<int> all(S(earlier.count));
  std::iota(all.begin(), all.end(), 0);
  EachGroup(rows, false,
            [&](const auto& group) { Normalise(scores, group, MomentsOf(earlier, all), kScale); });
  return Recorded(lab, scores);
}
Call RowNorm(const Lab& lab, const Rows& rows) {
  Rows scores = rows;
  for (int t = 0; t < rows.count; ++t) {
    const double mean = Mean(rows, t);
    for (int e = 0; e < rows.experts; ++e) Cell(scores, t, e) -= mean;
  }
  return Recorded(lab, scores);
}
// Centred by the tokens before it: causal.
Call PrefixNorm(const Lab& lab, const Rows& rows) {
  Rows scores = rows;
  for (const auto& group : BySequence(rows)) {
    std::vector<double> sum(S(rows.experts), 0);
    for (size_t i = 0; i < group.size(); ++i) {
      for (int e = 0; e < rows.experts; ++e) {
        sum[S(e)] += rows.At(group[i], e);
        Cell(scores, group[i], e) -= sum[S(e)] / static_cast<double>(i + 1);
      }
    }
  }
  return Recorded(lab, scores);
}
// Centred over the sequences at each position: no later token is involved.
Call PositionNorm(const Lab& lab, const Rows& rows) {
  Rows scores = rows;
  const int64_t last = *std::max_element(rows.position.begin(), rows.position.end());
  for (int64_t p = 0; p <= last; ++p) {
    std::vector<int> group;
    for (int t = 0; t < rows.count; ++t) {
      if (rows.position[S(t)] == p) group.push_back(t);
    }
    if (!group.empty()) Normalise(scores, group, MomentsOf(rows, group), false);
  }
  return Recorded(lab, scores);
}
Call Plain(const Lab& lab, const Rows& rows) { return TopK(lab, rows); }

v1::Verdict Judge(const Family& family, uint64_t seed, const Recorder& recorder) {
  const Lab lab(family.data, seed);
  const Rows rows = lab.Text();
  return testing::Only(
      testing::VerdictsOf(kRule, {Record(lab, rows, family.route(lab, rows), recorder)}), kRule);
}

TEST(TokenAxis, RoutersThatNormaliseOverTokensAreFound) {
  const Family families[] = {
      {"batch norm over the call", BatchNorm<false, true>, Data::kLarge},
      {"batch norm over each sequence", BatchNorm<true, true>, Data::kLarge},
      {"centring over the call", BatchNorm<false, false>, Data::kLarge},
      {"centring over each sequence", BatchNorm<true, false>, Data::kLarge},
      {"root mean square over the call", DivideByRms<false>, Data::kLarge},
      {"root mean square over each sequence", DivideByRms<true>, Data::kLarge},
      {"optimal transport as logits", Sinkhorn<false>, Data::kLarge},
      {"log of optimal transport as logits", Sinkhorn<true>, Data::kLarge},
      {"softmax over the tokens of the call", TokenSoftmax<false>, Data::kLarge},
      {"softmax over the tokens of each sequence", TokenSoftmax<true>, Data::kLarge},
  };
  const uint64_t seeds = Seeds(2, 500);
  for (const Family& family : families) {
    Counts counts;
    uint64_t found = 0;
    for (uint64_t seed = 1; seed <= seeds; ++seed) {
      const v1::Verdict verdict = Judge(family, seed, {.facts = true});
      ++counts[testing::Outcome(verdict)];
      found += verdict.finding().cause().id() == "normalised-over-tokens";
      EXPECT_FALSE(Proved(verdict));
    }
    Print(family.name, counts);
    EXPECT_GE(static_cast<double>(found), 0.95 * static_cast<double>(seeds)) << family.name;
  }
}

TEST(TokenAxis, StoredStatisticsAreNotAccused) {
  const Family families[] = {
      {"stored batch norm", RunningNorm<true>, Data::kMixed},
      {"stored centring", RunningNorm<false>, Data::kMixed},
      {"stored batch norm of large calls", RunningNorm<true>, Data::kLarge},
      {"normalised by row", RowNorm, Data::kMixed},
      {"centred by the prefix", PrefixNorm, Data::kMixed},
      {"centred at each position", PositionNorm, Data::kLarge},
      {"stored sums of a softmax over tokens", StoredSoftmax, Data::kMixed},
      {"stored sums of a softmax over many tokens", StoredSoftmax, Data::kLarge},
      {"token choice", Plain, Data::kMixed},
      {"token choice of large calls", Plain, Data::kLarge},
  };
  const uint64_t seeds = Seeds(3, 500);
  for (const Family& family : families) {
    Counts counts;
    for (uint64_t seed = 1; seed <= seeds; ++seed) {
      const v1::Verdict verdict = Judge(family, seed, {.facts = seed % 2 == 0});
      ++counts[testing::Outcome(verdict)];
      EXPECT_FALSE(Found(verdict))
          << family.name << " seed " << seed << ": " << verdict.finding().explanation();
    }
    Print(family.name, counts);
  }
}

}  // namespace
}  // namespace plumbline::rules::attack
