// plumbline::CheckRouter through the façade and the real agent.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <numeric>
#include <random>
#include <stdexcept>

#include "plumbline/agent.h"

namespace {

constexpr int64_t kSequences = 4, kLength = 32, kExperts = 8, kCapacity = 12;
constexpr int64_t kTokens = kSequences * kLength;

plumbline::RouterInputs Inputs() {
  plumbline::RouterInputs inputs{.tokens = kTokens, .experts = kExperts};
  std::mt19937 rng(7);
  std::normal_distribution<float> normal;
  for (int64_t i = 0; i < kTokens * kExperts; ++i) inputs.logits.push_back(normal(rng));
  for (int64_t t = 0; t < kTokens; ++t) {
    inputs.sequence_id.push_back(t / kLength);
    inputs.position.push_back(t % kLength);
  }
  return inputs;
}

int64_t Best(const float* row) { return std::max_element(row, row + kExperts) - row; }

// Top-1; an expert holds kCapacity tokens, taken in `order`.
void Top1(const float* logits, const std::vector<int64_t>& order, uint8_t* fates) {
  int64_t held[kExperts] = {};
  for (int64_t t : order) {
    const int64_t e = Best(logits + t * kExperts);
    fates[t * kExperts + e] = held[e]++ < kCapacity ? 1 : 2;
  }
}

std::vector<int64_t> RowOrder() {
  std::vector<int64_t> order(kTokens);
  std::iota(order.begin(), order.end(), 0);
  return order;
}

void FirstCome(const float* logits, uint64_t, uint8_t* fates) { Top1(logits, RowOrder(), fates); }

// Serves the tokens with the best scores first, so this router looks ahead.
void BestFirst(const float* logits, uint64_t, uint8_t* fates) {
  std::vector<int64_t> order = RowOrder();
  const auto best = [&](int64_t t) { return logits[t * kExperts + Best(logits + t * kExperts)]; };
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return best(a) > best(b); });
  Top1(logits, order, fates);
}

TEST(CheckRouter, NamesTheRowOfTheTaxonomy) {
  const plumbline::RouterVerdict fifo = plumbline::CheckRouter(FirstCome, Inputs());
  ASSERT_EQ(fifo.status, PLUMBLINE_OK) << fifo.error;
  EXPECT_EQ(fifo.verdict, PLUMBLINE_VERDICT_FINDING);
  EXPECT_EQ(fifo.level, PLUMBLINE_LEVEL_WARNING);
  EXPECT_EQ(fifo.strength, PLUMBLINE_STRENGTH_PROVED);
  EXPECT_STREQ(fifo.row, "batch-dependent");
  EXPECT_EQ(fifo.future_share, 0);
  EXPECT_GT(fifo.earlier_share, 0);
  EXPECT_EQ(fifo.later_share, 0);
  EXPECT_TRUE(std::isnan(fifo.other_rank_share));

  const plumbline::RouterVerdict score = plumbline::CheckRouter(BestFirst, Inputs());
  ASSERT_EQ(score.status, PLUMBLINE_OK) << score.error;
  EXPECT_EQ(score.level, PLUMBLINE_LEVEL_ERROR);
  EXPECT_STREQ(score.row, "future-leak");
  EXPECT_GT(score.future_share, 0);
  EXPECT_EQ(score.witness_sequence, score.changed_sequence);
  EXPECT_LT(score.witness_position, score.changed_from);
  EXPECT_NE(std::string(score.witness).find("expert"), std::string::npos) << score.witness;
  EXPECT_GT(score.calls, 20);

  const plumbline::RouterVerdict clean = plumbline::CheckRouter(
      [](const float* logits, uint64_t, uint8_t* fates) {
        for (int64_t t = 0; t < kTokens; ++t) fates[t * kExperts + Best(logits + t * kExperts)] = 1;
      },
      Inputs());
  ASSERT_EQ(clean.status, PLUMBLINE_OK) << clean.error;
  EXPECT_EQ(clean.verdict, PLUMBLINE_VERDICT_PASS);
  EXPECT_EQ(clean.level, 0);
  EXPECT_EQ(clean.witness_row, -1);
}

TEST(CheckRouter, RandomnessUnderTheSeedIsNoFault) {
  const auto noisy = [](bool seeded) {
    return
        [seeded, calls = uint64_t{0}](const float* logits, uint64_t seed, uint8_t* fates) mutable {
          std::mt19937_64 rng(seeded ? seed : ++calls);
          std::normal_distribution<float> normal;
          std::vector<float> row(kExperts);
          for (int64_t t = 0; t < kTokens; ++t) {
            for (int64_t e = 0; e < kExperts; ++e) row[e] = logits[t * kExperts + e] + normal(rng);
            fates[t * kExperts + Best(row.data())] = 1;
          }
        };
  };
  EXPECT_STREQ(plumbline::CheckRouter(noisy(true), Inputs()).row, "clean");
  const plumbline::RouterVerdict race = plumbline::CheckRouter(noisy(false), Inputs());
  EXPECT_STREQ(race.row, "nondeterministic");
  EXPECT_EQ(race.verdict, PLUMBLINE_VERDICT_INCONCLUSIVE);
}

TEST(CheckRouter, MistakesAreNamed) {
  plumbline::RouterInputs inputs = Inputs();
  inputs.logits[3] = std::nanf("");
  plumbline::RouterVerdict verdict = plumbline::CheckRouter(FirstCome, inputs);
  EXPECT_EQ(verdict.status, PLUMBLINE_INVALID_ARGUMENT);
  EXPECT_NE(verdict.error.find("row 0, expert 3 is NaN"), std::string::npos) << verdict.error;

  inputs = Inputs();
  inputs.logits.pop_back();
  EXPECT_EQ(plumbline::CheckRouter(FirstCome, inputs).status, PLUMBLINE_INVALID_ARGUMENT);
  inputs = Inputs();
  inputs.position.pop_back();
  EXPECT_EQ(plumbline::CheckRouter(FirstCome, inputs).status, PLUMBLINE_INVALID_ARGUMENT);

  int calls = 0;
  verdict = plumbline::CheckRouter(
      [&](const float* logits, uint64_t seed, uint8_t* fates) {
        if (++calls == 5) throw std::runtime_error("no memory left");
        FirstCome(logits, seed, fates);
      },
      Inputs());
  EXPECT_EQ(verdict.status, PLUMBLINE_FAILED_PRECONDITION);
  EXPECT_NE(verdict.error.find("call 5"), std::string::npos) << verdict.error;
  EXPECT_NE(verdict.error.find("no memory left"), std::string::npos) << verdict.error;
  EXPECT_EQ(plumbline::CheckRouter(nullptr, Inputs()).status, PLUMBLINE_INVALID_ARGUMENT);
}

TEST(CheckRouter, TheCAbiRefusesWhatItCannotRead) {
  plumbline_router_check_t check = PLUMBLINE_ROUTER_CHECK_INIT;
  plumbline_router_verdict_t verdict = {};
  EXPECT_EQ(plumbline_check_router(nullptr, &verdict), PLUMBLINE_INVALID_ARGUMENT);
  EXPECT_EQ(plumbline_check_router(&check, nullptr), PLUMBLINE_INVALID_ARGUMENT);
  EXPECT_EQ(plumbline_check_router(&check, &verdict), PLUMBLINE_INVALID_ARGUMENT);  // size 0
  EXPECT_NE(std::string(plumbline_last_error()).find("verdict size is 0"), std::string::npos);
  verdict.size = sizeof(verdict);
  EXPECT_EQ(plumbline_check_router(&check, &verdict), PLUMBLINE_INVALID_ARGUMENT);
  EXPECT_NE(std::string(plumbline_last_error()).find("route is NULL"), std::string::npos);
}

// The verdict struct of an older program is shorter. Nothing may be written beyond its end.
TEST(CheckRouter, AShorterVerdictIsNotOverrun) {
  plumbline::RouterInputs inputs = Inputs();
  int64_t shape[2] = {kTokens, kExperts};
  DLTensor logits = {};
  logits.data = inputs.logits.data();
  logits.device = {static_cast<decltype(logits.device.device_type)>(PLUMBLINE_DL_CPU), 0};
  logits.ndim = 2;
  logits.dtype = {PLUMBLINE_DL_FLOAT, 32, 1};
  logits.shape = shape;
  plumbline_router_check_t check = PLUMBLINE_ROUTER_CHECK_INIT;
  check.logits = &logits;
  check.route = [](void*, const DLTensor* given, uint64_t seed, uint8_t* fates) -> int32_t {
    FirstCome(static_cast<const float*>(given->data), seed, fates);
    return 0;
  };
  plumbline_router_verdict_t verdict = {};
  verdict.size = offsetof(plumbline_router_verdict_t, calls);
  verdict.calls = -77;
  ASSERT_EQ(plumbline_check_router(&check, &verdict), PLUMBLINE_OK) << plumbline_last_error();
  EXPECT_EQ(verdict.calls, -77);
  EXPECT_EQ(verdict.verdict, PLUMBLINE_VERDICT_PASS);  // one sequence: first-come order is clean
}

TEST(CheckRouter, AForkedChildReturnsAtOnce) {
  const pid_t child = fork();
  if (child == 0) {
    _exit(plumbline::CheckRouter(FirstCome, Inputs()).status == PLUMBLINE_DISABLED ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
