// Tests prompts of later turns against the logged tokens of earlier turns.
#include "analysis/rollout/turns.h"

#include <gtest/gtest.h>

#include <vector>

#include "analysis/drift/run.h"
#include "tests/rules/support/simulated_rollout.h"

namespace plumbline::analysis {
namespace {

// Returns one recording of one turn: its complete text so far.
RolloutSequence Turn(const std::string& id, int64_t turn, const std::vector<int64_t>& ids,
                     int64_t first = 0) {
  RolloutSequence s;
  s.id = id;
  for (size_t i = 0; i < ids.size(); ++i) {
    RolloutToken& token = s.tokens.emplace_back();
    token.token = ids[i];
    token.turn = turn;
    token.position = first + static_cast<int64_t>(i);
  }
  return s;
}

const std::vector<int64_t> kFirst = {5, 6, 7, 8, 9, 10, 11};

TEST(TurnPrefixes, APromptThatRepeatsWhatWasLoggedIsSilent) {
  TurnPrefixes turns;
  EXPECT_EQ(turns.Take(Turn("a", 0, kFirst)), TurnPrefixes::kNoTurn);
  EXPECT_EQ(turns.Take(Turn("a", 1, {5, 6, 7, 8, 9, 10, 11, 20, 21})), TurnPrefixes::kNoTurn);
  EXPECT_EQ(turns.Take(Turn("a", 2, {5, 6, 7, 8, 9, 10, 11, 20, 21, 30})), TurnPrefixes::kNoTurn);
  EXPECT_EQ(turns.compared, 2u);
  EXPECT_EQ(turns.retokenised + turns.shortened, 0u);
}

TEST(TurnPrefixes, OtherIdsInThePromptAreFoundAndNamed) {
  TurnPrefixes turns;
  turns.Take(Turn("a", 0, kFirst));
  EXPECT_EQ(turns.Take(Turn("a", 1, {5, 6, 7, 8, 99, 98, 10, 11, 20})), 1);
  EXPECT_EQ(turns.retokenised, 1u);
  EXPECT_EQ(turns.sequence, "a");
  EXPECT_EQ(turns.turn, 1);
  EXPECT_EQ(turns.position, 4);
  EXPECT_EQ(turns.logged_token, 9);
  EXPECT_EQ(turns.found_token, 99);
}

// Tests turns of one recording in sequence, then repeated completely.
TEST(TurnPrefixes, TurnsWithinOneRecord) {
  RolloutSequence s = Turn("a", 0, kFirst);
  for (const RolloutToken& token : Turn("a", 1, {20, 21, 22}, 7).tokens) s.tokens.push_back(token);
  TurnPrefixes turns;
  EXPECT_EQ(turns.Take(s), TurnPrefixes::kNoTurn);
  EXPECT_EQ(turns.compared, 0u);  // nothing is repeated
  RolloutSequence next = Turn("a", 2, {5, 6, 7, 8, 9, 10, 11, 20, 77, 22, 30});
  EXPECT_EQ(turns.Take(next), 2);
  EXPECT_EQ(turns.position, 8);
}

TEST(TurnPrefixes, NearMisses) {
  const struct {
    const char* what;
    RolloutSequence next;
    uint64_t compared, shortened;
  } cases[] = {
      {"reasoning left out", Turn("a", 1, {5, 6, 7, 8, 11, 20, 21}), 1, 1},
      {"padding", Turn("a", 1, {0, 0, 0, 0, 0, 0, 0, 20}), 0, 0},
      {"ids not recorded", Turn("a", 1, {-1, -1, -1, -1, -1, -1, -1, 20}), 1, 0},
      {"another sequence", Turn("b", 1, {5, 6, 7, 8, 99}), 0, 0},
      {"an epoch of the same turn", Turn("a", 0, {5, 6, 7, 8, 99}), 0, 0},
      {"no turn is recorded", Turn("a", -1, {5, 6, 7, 8, 99}), 0, 0},
      {"the response alone", Turn("a", 1, {99, 98, 97}, 7), 0, 0},
      {"a shorter context", Turn("a", 1, {5, 6, 7, 8}), 1, 0},
      {"nothing", Turn("a", 1, {}), 0, 0},
  };
  for (const auto& c : cases) {
    TurnPrefixes turns;
    turns.Take(Turn("a", 0, kFirst));
    EXPECT_EQ(turns.Take(c.next), TurnPrefixes::kNoTurn) << c.what;
    EXPECT_EQ(turns.retokenised, 0u) << c.what;
    EXPECT_EQ(turns.compared, c.compared) << c.what;
    EXPECT_EQ(turns.shortened, c.shortened) << c.what;
  }
}

// Returns conversations of two turns, one recording each. If the prompt of the second was
// retokenised, the trainer scores other text, and its values there are far off.
DriftSite Conversations(int broken_in, int seed) {
  rules::testing::RolloutSpec spec;
  spec.seed = seed;
  rules::testing::RolloutSimulator simulator(spec);
  DriftSite site("policy", "logprobs");
  int number = 0;
  for (int step = 0; step < spec.steps; ++step) {
    site.BeginStep(0, step);
    for (RolloutSequence& s : simulator.Step(step)) {
      RolloutSequence second = s;
      const size_t half = s.tokens.size() / 2;
      s.tokens.resize(half);
      const bool broken = broken_in > 0 && number++ % broken_in == 0;
      for (RolloutToken& token : s.tokens) token.turn = 0;
      for (size_t i = 0; i < second.tokens.size(); ++i) {
        RolloutToken& token = second.tokens[i];
        token.turn = 1;
        token.judged = i >= half;
        if (broken && i == half / 2) token.token += 1000;
        if (broken && token.judged) token.train += i % 2 == 0 ? 0.3 : -0.3;
      }
      site.Take(s);
      site.Take(second);
    }
    site.EndStep();
  }
  site.End();
  return site;
}

TEST(TurnPrefixes, NamesTheCauseOfWhatFollows) {
  const DriftSite healthy = Conversations(0, 4);
  EXPECT_EQ(healthy.statistics.turns.compared, 64u);
  EXPECT_EQ(healthy.Cause().id, "noise");
  const DriftSite broken = Conversations(4, 4);
  EXPECT_EQ(broken.statistics.turns.retokenised, 16u);
  EXPECT_EQ(broken.Cause().id, "retokenisation");
}

}  // namespace
}  // namespace plumbline::analysis
