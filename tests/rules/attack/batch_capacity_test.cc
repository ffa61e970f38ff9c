// Tests capacities that are computed from the batch, the top of a 0/1 mask, and pools of prompts.
// 500 recordings of each family if PLUMB_LONG=1, otherwise a few.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
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

double& Cell(Rows& rows, int t, int e) { return rows.x[S(t) * S(rows.experts) + S(e)]; }

// ---- capacity of the batch -------------------------------------------------------------------

// Returns the capacity of a call from its loads, ascending, and its number in the run.
using CapacityRule = std::function<int64_t(const Lab&, const std::vector<int64_t>&, int)>;

int64_t Share(double share, int64_t of) {
  return std::max<int64_t>(1, static_cast<int64_t>(std::ceil(share * static_cast<double>(of))));
}

// Returns a first-come call with other tokens per call.
v1::Batch CapacityCall(const Lab& lab, const CapacityRule& rule, int number, bool declared) {
  Rows rows = lab.Text();
  for (int t = 0; t < rows.count; ++t) {
    for (int e = 0; e < rows.experts; ++e)
      Cell(rows, t, e) = lab.Normal(200 + static_cast<uint64_t>(number), S(t), S(e)) +
                         0.3 * lab.Normal(100, S(e)) +
                         0.2 * lab.Normal(400 + static_cast<uint64_t>(number), S(e));
  }
  Call call = TopK(lab, rows);
  std::vector<int64_t> load(S(rows.experts), 0);
  for (const int e : call.index) ++load[S(e)];
  std::sort(load.begin(), load.end());
  const int64_t capacity = rule(lab, load, number);
  call = Along(rows, std::move(call),
               [&](int, int, int e, const auto& held) { return held[S(e)] < capacity; });
  call.capacity = declared ? capacity : 0;
  call.policy = "fifo-capacity";
  v1::Batch batch = Record(lab, rows, call, {.facts = true});
  v1::RoutingConfig& config = *batch.mutable_evidence(0)->mutable_routing()->mutable_config();
  if (!declared) config.set_capacity_kind(v1::RoutingConfig::CAPACITY_ABSENT);
  batch.mutable_evidence(0)->set_step(16 * number);
  return batch;
}

std::vector<v1::Verdict> JudgeCalls(const CapacityRule& rule, uint64_t seed) {
  const Lab lab(Data::kLarge, seed);
  std::vector<v1::Batch> batches;
  for (int i = 0; i < 40; ++i) batches.push_back(CapacityCall(lab, rule, i, seed % 2 == 0));
  return testing::VerdictsOf(kRule, batches);
}

TEST(CapacityOfTheBatch, IsFound) {
  const std::pair<const char*, CapacityRule> families[] = {
      {"share of the largest load",
       [](const Lab&, const auto& load, int) { return Share(0.8, load.back()); }},
      {"median load", [](const Lab&, const auto& load, int) { return load[load.size() / 2]; }},
  };
  const uint64_t seeds = Seeds(1, 500);
  uint64_t all = 0;
  for (const auto& [name, rule] : families) {
    uint64_t found = 0, differs = 0;
    for (uint64_t seed = 1; seed <= seeds; ++seed) {
      const auto verdicts = JudgeCalls(rule, seed);
      const bool here = testing::Findings(verdicts, kRule, "capacity-follows-tokens") > 0;
      found += here;
      differs += !here && std::any_of(verdicts.begin(), verdicts.end(), [](const auto& v) {
        return v.reason().starts_with("capacity-differs");
      });
      EXPECT_EQ(testing::Highest(verdicts) == v1::LEVEL_ERROR, false);
    }
    std::cout << name << ": " << found << " found, " << differs << " differ, of " << seeds << "\n";
    all += found;
    EXPECT_GE(static_cast<double>(found + differs), 0.95 * static_cast<double>(seeds)) << name;
  }
  EXPECT_GT(all, 0u);  // the others have too few different capacities
}

TEST(CapacityOfTheBatch, OtherCapacitiesAreNotAccused) {
  const auto even = [](const auto& load) {
    return std::accumulate(load.begin(), load.end(), int64_t{0}) /
           static_cast<int64_t>(load.size());
  };
  const std::pair<const char*, CapacityRule> families[] = {
      {"fixed", [&](const Lab&, const auto& load, int) { return Share(1, even(load)); }},
      {"falling with the step",
       [&](const Lab&, const auto& load, int i) { return Share(1.3 - 0.01 * i, even(load)); }},
      {"drawn", [&](const Lab& lab, const auto& load,
                    int i) { return Share(0.8 + 0.4 * lab.Uniform(300, S(i)), even(load)); }},
      {"drawn widely", [&](const Lab& lab, const auto& load,
                           int i) { return Share(0.5 + 2 * lab.Uniform(300, S(i)), even(load)); }},
      {"rising, with noise",
       [&](const Lab& lab, const auto& load, int i) {
         return Share(0.8 + 0.01 * i + 0.05 * lab.Normal(300, S(i)), even(load));
       }},
      {"one of four factors",
       [&](const Lab& lab, const auto& load, int i) {
         return Share(0.75 + 0.125 * std::floor(4 * lab.Uniform(300, S(i))), even(load));
       }},
  };
  const uint64_t seeds = Seeds(1, 500);
  for (const auto& [name, rule] : families) {
    uint64_t passed = 0, found = 0;
    for (uint64_t seed = 1; seed <= seeds; ++seed) {
      const auto verdicts = JudgeCalls(rule, seed);
      found += testing::Findings(verdicts, kRule) > 0;
      passed += std::all_of(verdicts.begin(), verdicts.end(),
                            [](const auto& v) { return v.kind() == v1::Verdict::KIND_PASS; });
    }
    std::cout << name << ": " << passed << " pass, " << found << " found, of " << seeds << "\n";
    EXPECT_EQ(found, 0u) << name;
  }
}

// ---- ties of a mask --------------------------------------------------------------------------

// Returns the rows that torch.topk(mask, most) selects on a CPU.
std::vector<int> TorchTop(const std::vector<int>& mask, int64_t most) {
  std::vector<std::pair<int, int>> entries;
  for (const int value : mask) entries.emplace_back(value, static_cast<int>(entries.size()));
  const auto higher = [](const auto& a, const auto& b) { return a.first > b.first; };
  if (most * 64 <= static_cast<int64_t>(mask.size())) {
    std::partial_sort(entries.begin(), entries.begin() + most, entries.end(), higher);
  } else {
    std::nth_element(entries.begin(), entries.begin() + (most - 1), entries.end(), higher);
  }
  std::vector<int> rows;
  for (int64_t i = 0; i < most; ++i) rows.push_back(entries[S(i)].second);
  std::sort(rows.begin(), rows.end());
  return rows;
}

// As torch 2.15 computed them.
TEST(TiesOfAMask, TheSelectionIsThatOfTorch) {
  const auto mask = [](int rows, int modulus, int shift) {
    std::vector<int> out;
    for (int i = 0; i < rows; ++i) out.push_back((i * i * shift + i) % modulus == 0);
    return out;
  };
  EXPECT_EQ(TorchTop(mask(64, 3, 7), 12),
            (std::vector<int>{0, 27, 29, 30, 35, 36, 38, 39, 41, 42, 44, 45}));
  EXPECT_EQ(TorchTop(mask(200, 4, 11), 40),
            (std::vector<int>{68,  69,  72,  73,  76,  77,  80,  81,  84,  85,  88,  89,  92,  93,
                              96,  97,  100, 101, 104, 105, 108, 109, 112, 113, 116, 117, 120, 121,
                              124, 125, 128, 129, 132, 133, 169, 173, 176, 177, 180, 181}));
  EXPECT_EQ(TorchTop(mask(1000, 5, 13), 7), (std::vector<int>{0, 3, 5, 8, 10, 13, 15}));
}

// Every full expert keeps the top of its 0/1 mask; rows in the router's order.
v1::Batch TopOfMask(uint64_t seed, int k) {
  const Lab lab(Data::kLarge, seed);
  Rows rows = lab.Text();
  Call call = TopK(lab, rows);
  if (k == 1) {
    call = Blank(lab, rows);
    call.k = 1;
    call.index.assign(S(rows.count), 0);
    call.keep.assign(S(rows.count), 1);
    for (int t = 0; t < rows.count; ++t)
      call.index[S(t)] = Best(&rows.x[S(t) * S(rows.experts)], rows.experts, 1)[0];
  }
  const int64_t capacity =
      std::max<int64_t>(1, static_cast<int64_t>(0.8 * rows.count * call.k / rows.experts));
  for (int e = 0; e < rows.experts; ++e) {
    std::vector<int> mask(S(rows.count), 0);
    for (size_t i = 0; i < call.index.size(); ++i)
      if (call.index[i] == e) mask[i / S(call.k)] = 1;
    const std::vector<int> top = TorchTop(mask, capacity);
    for (size_t i = 0; i < call.index.size(); ++i) {
      if (call.index[i] == e)
        call.keep[i] = std::binary_search(top.begin(), top.end(), static_cast<int>(i / S(call.k)));
    }
  }
  Finish(rows, call);
  call.capacity = capacity;
  call.policy = "";
  v1::Batch batch = Record(lab, rows, call, {.facts = true});
  return batch;
}

TEST(TiesOfAMask, AreFoundAgain) {
  const uint64_t seeds = Seeds(4, 500);
  uint64_t found = 0, ties = 0, shuffled = 0;
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    const v1::Batch batch = TopOfMask(seed, seed % 2 == 0 ? 1 : 2);
    const v1::Verdict leak = testing::Only(testing::VerdictsOf(kRule, {batch}), kRule);
    const v1::Verdict tie = testing::Only(testing::VerdictsOf("causality/moe-tie-order", {batch}),
                                          "causality/moe-tie-order");
    EXPECT_FALSE(Proved(leak)) << seed;
    const auto& policy = leak.details().fields().at("policy").string_value();
    found += Found(leak) && policy == "tie-order-capacity";
    ties += Found(tie);
    shuffled += leak.reason().starts_with("inversions-unexplained");
  }
  std::cout << found << " leaks and " << ties << " ties found of " << seeds << ", " << shuffled
            << " unexplained\n";
  EXPECT_GE(static_cast<double>(found), 0.95 * static_cast<double>(seeds));
  EXPECT_GE(static_cast<double>(ties), 0.95 * static_cast<double>(seeds));
}

// ---- second choices --------------------------------------------------------------------------

// First choices queue in time order. Second choices get what is left, by score or by a draw.
v1::Batch SecondChoices(uint64_t seed, bool by_score) {
  const Lab lab(Data::kLarge, seed);
  const Rows rows = lab.Text();
  const Call call = Limited(
      lab, rows, TopK(lab, rows),
      [&](int t, int j, int e) {
        if (j == 0) return static_cast<double>(t);
        return 1e6 + (by_score ? -rows.At(t, e) : lab.Uniform(500, rows, t, e));
      },
      "");
  return Record(lab, rows, call, {.facts = true});
}

TEST(SecondChoices, ByScoreAreNotDrawn) {
  const uint64_t seeds = Seeds(8, 500);
  Counts by_score, drawn;
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    if (Lab(Data::kLarge, seed).k() < 2) continue;
    const auto judge = [&](bool score, Counts& counts) {
      const auto v = testing::Only(testing::VerdictsOf(kRule, {SecondChoices(seed, score)}), kRule);
      EXPECT_FALSE(Proved(v)) << seed;
      ++counts[Found(v) ? v.finding().cause().id() : v.reason().substr(0, v.reason().find(':'))];
    };
    judge(true, by_score);
    judge(false, drawn);
  }
  Print("second choices by score", by_score);
  Print("second choices drawn", drawn);
  EXPECT_EQ(by_score["random-token-selection"], 0);
  EXPECT_GT(by_score["drop-by-score"], 0);
  EXPECT_EQ(drawn["drop-by-score"], 0);
}

// ---- prompts ---------------------------------------------------------------------------------

// Drop by score, one pool per sequence; rows of sequences below `prompts` belong to a prompt.
v1::Verdict DropByScore(uint64_t seed, int64_t prompts, const char* rule) {
  const Lab lab(Data::kLarge, seed);
  const Rows rows = lab.Text();
  Call call = LimitedBySequence(
      lab, rows, TopK(lab, rows), [&](int t, int, int e) { return -rows.At(t, e); },
      "score-capacity");
  v1::Batch batch = Record(lab, rows, call, {.facts = true});
  v1::RoutingSample& sample = *batch.mutable_evidence(0)->mutable_routing()->mutable_sample();
  v1::Tensor& region = *sample.mutable_region();
  region.set_dtype(v1::DTYPE_U8);
  region.add_shape(rows.count);
  for (int t = 0; t < rows.count; ++t) {
    int64_t sequence = 0;
    std::memcpy(&sequence, sample.sequence_id().data().data() + 8 * S(t), 8);
    region.mutable_data()->push_back(sequence < prompts ? 1 : 0);
  }
  return testing::Only(testing::VerdictsOf(rule, {batch}), rule);
}

TEST(Region, APoolOfPromptsAloneIsNoLeak) {
  for (uint64_t seed = 1; seed <= Seeds(3, 100); ++seed) {
    EXPECT_EQ(testing::Outcome(DropByScore(seed, 1 << 20, kRule)), "pass") << seed;
    EXPECT_TRUE(Found(DropByScore(seed, 2, kRule))) << seed;
    EXPECT_TRUE(Found(DropByScore(seed, 0, kRule))) << seed;
    // One pool per sequence: no other sequence competes.
    EXPECT_EQ(testing::Outcome(DropByScore(seed, 1 << 20, "causality/moe-batch-dependence")),
              "pass");
  }
}

}  // namespace
}  // namespace plumbline::rules::attack
