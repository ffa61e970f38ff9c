// Tests halves that arrive separately, late, out of order or not at all.
#include "analysis/rollout/join.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/rules/support/simulated_rollout.h"

namespace plumbline::analysis {
namespace {

using rules::testing::RolloutHalf;
using rules::testing::RolloutSimulator;
using rules::testing::RolloutSpec;
using rules::testing::SequenceMessage;

const RolloutSpec kSpec{.sequences = 5, .length = 8, .lag = 2};

// The evidence of one role in one step; keeps it alive during the call.
struct Sent {
  v1::Source source;
  v1::Evidence evidence;
  SiteStep step;

  Sent(int number, v1::Role role, const std::vector<v1::LogprobsSequence>& sequences) {
    for (const auto& s : sequences) *evidence.mutable_logprobs()->add_sequences() = s;
    source.set_role(role);
    step.role = role;
    step.step = number;
    step.site.set_layer("policy");
    step.site.set_op("logprobs");
    step.items.push_back({&source, &evidence});
  }
  Sent(const Sent&) = delete;
};

std::vector<v1::LogprobsSequence> Messages(int step, RolloutHalf half) {
  RolloutSimulator simulator(kSpec);
  std::vector<v1::LogprobsSequence> list;
  for (const RolloutSequence& s : simulator.Step(step))
    list.push_back(SequenceMessage(kSpec, s, half));
  return list;
}

struct Steps {
  RolloutJoin join;
  std::vector<std::string> ids;
  uint64_t later = 0, differing = 0;

  void Collect(const std::vector<RolloutBatch>& batches) {
    for (const RolloutBatch& batch : batches) {
      batch.ForEach([&](const RolloutSequence& s) {
        ids.push_back(s.id + "@" + std::to_string(s.step));
        later += s.later_epoch;
        differing += s.differing_ids;
      });
    }
  }
  void Give(int step, RolloutHalf half) { Give(step, half, Messages(step, half)); }
  void Give(int step, RolloutHalf half, const std::vector<v1::LogprobsSequence>& sequences) {
    const Sent sent(step, half == RolloutHalf::kRollout ? v1::ROLE_ROLLOUT : v1::ROLE_TRAINER,
                    sequences);
    Collect(*join.Take(sent.step));
  }
};

TEST(RolloutJoin, HalvesGiveWhatWholeSequencesGive) {
  RolloutSimulator simulator(kSpec);
  const std::vector<RolloutSequence> made = simulator.Step(3);
  std::vector<v1::LogprobsSequence> train = Messages(3, RolloutHalf::kTrain);
  std::vector<v1::LogprobsSequence> rollout = Messages(3, RolloutHalf::kRollout);
  for (size_t i = 0; i < made.size(); ++i) {
    RolloutSequence joined;
    ASSERT_TRUE(DecodeRollout(train[i], rollout[i], &joined).ok());
    EXPECT_TRUE(joined.from_halves);
    ASSERT_EQ(joined.tokens.size(), made[i].tokens.size());
    for (size_t k = 0; k < joined.tokens.size(); ++k) {
      EXPECT_EQ(joined.tokens[k].train, static_cast<float>(made[i].tokens[k].train));
      EXPECT_EQ(joined.tokens[k].rollout, static_cast<float>(made[i].tokens[k].rollout));
      EXPECT_EQ(joined.tokens[k].lag, made[i].tokens[k].lag);
      EXPECT_EQ(joined.tokens[k].token, made[i].tokens[k].token);
    }
    EXPECT_EQ(joined.unpaired, 0u);
    EXPECT_EQ(joined.differing_ids, 0u);
  }
}

TEST(RolloutJoin, ArrivalOrderDoesNotMatter) {
  Steps together, trainer_first, rollout_first;
  for (int step = 0; step < 6; ++step) {
    together.Give(step, RolloutHalf::kTrain);
    together.Give(step, RolloutHalf::kRollout);
  }
  for (int step = 0; step < 6; ++step) trainer_first.Give(step, RolloutHalf::kTrain);
  for (int step = 0; step < 6; ++step) trainer_first.Give(step, RolloutHalf::kRollout);
  for (int step = 0; step < 6; ++step) rollout_first.Give(step, RolloutHalf::kRollout);
  for (int step = 0; step < 6; ++step) rollout_first.Give(step, RolloutHalf::kTrain);
  EXPECT_EQ(together.ids.size(), 30u);
  EXPECT_EQ(together.ids, trainer_first.ids);
  EXPECT_EQ(together.ids, rollout_first.ids);
  EXPECT_TRUE(std::is_sorted(together.ids.begin(), together.ids.end()));
}

TEST(RolloutJoin, AStepThatWaitsHoldsBackTheNextAndIsGivenUp) {
  Steps run;
  run.Give(0, RolloutHalf::kTrain);  // its rollout half is lost
  run.Give(1, RolloutHalf::kTrain);
  run.Give(1, RolloutHalf::kRollout);
  EXPECT_TRUE(run.ids.empty());
  EXPECT_EQ(run.join.counts("policy", "logprobs").waiting_train, 10u);
  run.Give(65, RolloutHalf::kRollout);  // more than 64 steps later
  EXPECT_EQ(run.ids.size(), 5u);
  EXPECT_EQ(run.join.counts("policy", "logprobs").given_up_train, 5u);
  run.Collect(run.join.Finish());
  EXPECT_EQ(run.join.counts("policy", "logprobs").given_up_rollout, 5u);
  EXPECT_EQ(run.ids.size(), 5u);
}

TEST(RolloutJoin, HalvesOfOtherStepsMeetByTheirTokens) {
  Steps run;
  // The rollout process counts one step ahead, and ids restart in every step.
  for (int step = 0; step < 4; ++step) {
    auto train = Messages(step, RolloutHalf::kTrain);
    auto rollout = Messages(step, RolloutHalf::kRollout);
    for (size_t i = 0; i < train.size(); ++i) {
      train[i].set_id(std::to_string(i));
      rollout[i].set_id(std::to_string(i));
    }
    run.Give(step + 1, RolloutHalf::kRollout, rollout);
    run.Give(step, RolloutHalf::kTrain, train);
  }
  run.Collect(run.join.Finish());
  EXPECT_EQ(run.ids.size(), 20u);
  EXPECT_EQ(run.differing, 0u);
}

TEST(RolloutJoin, SharersSeeOneJoin) {
  RolloutJoin first, second;
  const auto train = Messages(0, RolloutHalf::kTrain);
  const auto rollout = Messages(0, RolloutHalf::kRollout);
  const Sent a(0, v1::ROLE_TRAINER, train), b(0, v1::ROLE_ROLLOUT, rollout);
  EXPECT_TRUE(first.Take(a.step)->empty());
  EXPECT_EQ(first.Take(a.step), second.Take(a.step));
  const auto batches = first.Take(b.step);
  EXPECT_EQ(batches, second.Take(b.step));
  ASSERT_EQ(batches->size(), 1u);
}

TEST(RolloutJoin, HalvesMeetAfterARunThatEndedContinues) {
  Steps run;
  run.Give(0, RolloutHalf::kTrain);
  run.Give(1, RolloutHalf::kRollout);
  run.Collect(run.join.Finish());
  EXPECT_EQ(run.join.counts("policy", "logprobs").given_up_train, 5u);
  EXPECT_EQ(run.join.counts("policy", "logprobs").given_up_rollout, 5u);
  for (int step = 2; step < 4; ++step) {
    run.Give(step, RolloutHalf::kTrain);
    run.Give(step, RolloutHalf::kRollout);
  }
  EXPECT_EQ(run.ids.size(), 10u);
  run.Give(4, RolloutHalf::kTrain);
  run.Collect(run.join.Finish());
  EXPECT_EQ(run.ids.size(), 10u);
  EXPECT_EQ(run.join.counts("policy", "logprobs").given_up_train, 10u);
}

TEST(RolloutJoin, LaterEpochsAreKnown) {
  Steps run;
  run.Give(0, RolloutHalf::kBoth);
  EXPECT_EQ(run.later, 0u);
  run.Give(0, RolloutHalf::kBoth);
  run.Give(7, RolloutHalf::kBoth, Messages(0, RolloutHalf::kBoth));
  EXPECT_EQ(run.later, 10u);
  run.Give(8, RolloutHalf::kBoth);
  EXPECT_EQ(run.later, 10u);
}

TEST(RolloutJoin, BrokenTensorsAreNamedAndTheRestIsRead) {
  auto sequences = Messages(0, RolloutHalf::kBoth);
  sequences[1].mutable_train()->mutable_logprobs()->mutable_data()->pop_back();
  sequences[2].mutable_rollout()->mutable_logprobs()->set_dtype(v1::DTYPE_I64);
  sequences[3].set_mask("12");
  const Sent sent(0, v1::ROLE_TRAINER, sequences);
  RolloutJoin join;
  const auto batches = join.Take(sent.step);
  int read = 0;
  const std::string problem = (*batches)[0].ForEach([&](const RolloutSequence&) { ++read; });
  EXPECT_EQ(read, 2);
  EXPECT_EQ(problem.rfind("bad-tensor: ", 0), 0u) << problem;
}

TEST(RolloutSequence, GridsAreFound) {
  for (const char* rounded : {"", "train", "rollout", "both", "f16-both"}) {
    RolloutSpec spec{.sequences = 1, .length = 64, .rounded = rounded};
    RolloutSimulator simulator(spec);
    const auto message = SequenceMessage(spec, simulator.Step(0)[0], RolloutHalf::kBoth);
    RolloutSequence s;
    ASSERT_TRUE(DecodeRollout(message, message, &s).ok());
    const std::string r = rounded;
    const bool both = r == "both" || r == "f16-both";
    EXPECT_EQ(s.train_grid.sixteen_bit(), r == "train" || both) << rounded;
    EXPECT_EQ(s.rollout_grid.sixteen_bit(), r == "rollout" || both) << rounded;
    if (r == "both") {
      EXPECT_EQ(s.train_grid.HalfUnit(-3), std::ldexp(1, -7));
    }
    if (r == "f16-both") {
      EXPECT_EQ(s.train_grid.HalfUnit(-3), std::ldexp(1, -10));
    }
  }
  RolloutSpec text{.sequences = 1, .length = 64, .decimals = 4};
  RolloutSimulator simulator(text);
  const auto message = SequenceMessage(text, simulator.Step(0)[0], RolloutHalf::kBoth);
  RolloutSequence s;
  ASSERT_TRUE(DecodeRollout(message, message, &s).ok());
  EXPECT_EQ(s.train_grid.HalfUnit(-3), 5e-5);
}

}  // namespace
}  // namespace plumbline::analysis
