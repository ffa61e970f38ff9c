// Tests CheckRouter with routers of known class.
#include <gtest/gtest.h>

#include <cmath>
#include <iostream>

#include "analysis/routing/intervention/check_router.h"
#include "tests/rules/support/synthetic_routing.h"

namespace plumbline::analysis {
namespace {

using rules::testing::CleanKinds;
using rules::testing::Kind;
using rules::testing::LeakingKinds;
using rules::testing::RoutingSpec;
using rules::testing::SyntheticRouting;
using Row = RouterCheck::Row;

RouterInputs InputsOf(const SyntheticRouting& routing) {
  const RouterBatch& b = routing.batch();
  return {b.tokens, b.experts, b.logits, b.sequence, b.position, b.padding, {}};
}

Assignments FatesOf(const RouterResult& result, const RouterBatch& batch) {
  Assignments fates = result.map;
  for (size_t slot = 0; slot < result.indices.size(); ++slot) {
    const size_t row = slot / static_cast<size_t>(batch.top_k);
    uint8_t& fate =
        fates[row * static_cast<size_t>(batch.experts) + static_cast<size_t>(result.indices[slot])];
    if (fate == 0) fate = 2;
  }
  return fates;
}

// Returns a reference router as a callable.
RouterCall Callable(const SyntheticRouting& routing) {
  return
      [batch = routing.batch(), policy = routing.spec().policy, parameters = routing.parameters()](
          const std::vector<double>& logits) mutable -> absl::StatusOr<Assignments> {
        batch.logits = logits;
        return FatesOf(Route(batch, policy, parameters), batch);
      };
}

RouterCheck Check(const RouterCall& router, const RouterInputs& inputs,
                  const CheckOptions& options = {}) {
  auto check = CheckRouter(router, inputs, options);
  EXPECT_TRUE(check.ok()) << check.status();
  return check.ok() ? *check : RouterCheck{};
}

RoutingSpec SpecOf(RouterPolicy policy) {
  RoutingSpec spec;
  spec.policy = policy;
  spec.capacity_factor = 0.75;
  return spec;
}

TEST(CheckRouter, CleanKindsNeverFlip) {
  for (const Kind& kind : CleanKinds()) {
    for (uint64_t seed = 1; seed <= 2; ++seed) {
      RoutingSpec spec = kind.Make(seed);
      spec.length = std::min(spec.length, 48);
      spec.sequences = std::min(spec.sequences, 8);
      spec.repeat = std::min(spec.repeat, 4);
      const SyntheticRouting routing(spec);
      const RouterCheck check =
          Check(Callable(routing), InputsOf(routing), {.max_calls = 150, .max_sequences = 2});
      EXPECT_EQ(check.future.flipped, 0) << kind.name << " " << check.witness.text;
      EXPECT_NE(check.row, Row::kNondeterministic) << kind.name;
      const bool must_stay = PolicyClass(spec.policy) == RouterClass::kClean;
      EXPECT_TRUE(!must_stay || check.row == Row::kClean) << kind.name << " " << check.witness.text;
    }
  }
}

TEST(CheckRouter, LeakingKindsAreCaughtWithAWitness) {
  for (const Kind& kind : LeakingKinds()) {
    int caught = 0;
    for (uint64_t seed = 1; seed <= 4; ++seed) {
      RoutingSpec spec = kind.Make(seed);
      spec.length = std::min(spec.length, 48);
      const SyntheticRouting routing(spec);
      const RouterCheck check =
          Check(Callable(routing), InputsOf(routing), {.max_calls = 150, .max_sequences = 2});
      if (check.row != Row::kFutureLeak) continue;
      ++caught;
      EXPECT_TRUE(check.witness.found());
      EXPECT_EQ(check.witness.sequence, check.witness.changed_sequence);
      EXPECT_LT(check.witness.position, check.witness.cut) << check.witness.text;
    }
    EXPECT_GE(caught, 3) << kind.name;
  }
}

TEST(CheckRouter, FirstComeFeelsEarlierSequencesOnly) {
  const SyntheticRouting routing(SpecOf(RouterPolicy::kFifo));
  const RouterCheck check = Check(Callable(routing), InputsOf(routing));
  EXPECT_EQ(check.row, Row::kBatchDependent);
  EXPECT_EQ(check.future.flipped, 0);
  EXPECT_GT(check.earlier.flipped, 0);
  EXPECT_EQ(check.later.flipped, 0);
  EXPECT_EQ(check.other_rank.tried, 0);
  EXPECT_TRUE(std::isnan(check.other_rank.value()));
  EXPECT_TRUE(check.witness.found());
  EXPECT_NE(check.Explanation().find("another rank not tried"), std::string::npos);
}

TEST(CheckRouter, RowsOfAnotherRankCountApart) {
  const SyntheticRouting routing(SpecOf(RouterPolicy::kFifo));
  RouterInputs inputs = InputsOf(routing);
  for (int64_t sequence : inputs.sequence) inputs.rank.push_back(sequence < 102 ? 0 : 1);
  const RouterCheck check = Check(Callable(routing), inputs);
  EXPECT_GT(check.other_rank.flipped, 0);
  EXPECT_EQ(check.row, Row::kBatchDependent);
}

TEST(CheckRouter, ARouterThatDoesNotRepeatItselfIsNotAccused) {
  const SyntheticRouting routing(SpecOf(RouterPolicy::kAtomicsRace));
  uint64_t run = 0;
  const RouterCheck race = Check(
      [&](const std::vector<double>& logits) -> absl::StatusOr<Assignments> {
        RouterBatch batch = routing.batch();
        batch.logits = logits;
        RouterParameters parameters = routing.parameters();
        parameters.run = ++run;
        return FatesOf(Route(batch, RouterPolicy::kAtomicsRace, parameters), batch);
      },
      InputsOf(routing));
  EXPECT_EQ(race.row, Row::kNondeterministic);
  EXPECT_FALSE(race.witness.found());

  // A bias that drifts with every call: the first repetitions agree, the last does not.
  const SyntheticRouting dropless(SpecOf(RouterPolicy::kTokenChoice));
  double drift = 0;
  const RouterCheck stateful = Check(
      [&](const std::vector<double>& logits) -> absl::StatusOr<Assignments> {
        RouterBatch batch = dropless.batch();
        batch.logits = logits;
        drift += 0.001;
        for (size_t i = 0; i < batch.logits.size(); i += static_cast<size_t>(batch.experts))
          batch.logits[i] += drift;
        return FatesOf(Route(batch, RouterPolicy::kTokenChoice, {}), batch);
      },
      InputsOf(dropless));
  EXPECT_EQ(stateful.row, Row::kNondeterministic);
}

TEST(CheckRouter, PoisonAndMistakesAreNamed) {
  const SyntheticRouting routing(SpecOf(RouterPolicy::kFifo));
  const RouterCall router = Callable(routing);
  const auto refusal = [&](const RouterInputs& inputs, const RouterCall& call) {
    const auto check = CheckRouter(call, inputs);
    return check.ok() ? std::string("accepted") : std::string(check.status().message());
  };
  RouterInputs inputs = InputsOf(routing);
  inputs.logits[8 * 3 + 2] = std::nan("");
  EXPECT_EQ(refusal(inputs, router),
            "logits: row 3, expert 2 is NaN; expected finite numbers (-infinity masks an expert)");
  inputs.logits[8 * 3 + 2] = HUGE_VAL;
  EXPECT_NE(refusal(inputs, router).find("is +infinity"), std::string::npos);
  inputs.logits[8 * 3 + 2] = -HUGE_VAL;
  EXPECT_EQ(refusal(inputs, router), "accepted");

  inputs = InputsOf(routing);
  inputs.position[1] = inputs.position[0];
  EXPECT_NE(refusal(inputs, router).find("a second time"), std::string::npos);
  inputs = InputsOf(routing);
  inputs.sequence.pop_back();
  EXPECT_NE(refusal(inputs, router).find("sequence_id: expected one value a row"),
            std::string::npos);

  inputs = InputsOf(routing);
  EXPECT_EQ(refusal(inputs,
                    [](const std::vector<double>&) -> absl::StatusOr<Assignments> {
                      return Assignments(7);
                    }),
            "call 1 (the original batch): the router returned 7 results; expected [256, 8]");
  int calls = 0;
  const std::string late =
      refusal(inputs, [&](const std::vector<double>& logits) -> absl::StatusOr<Assignments> {
        if (++calls == 4) return absl::InternalError("out of memory");
        return router(logits);
      });
  EXPECT_NE(late.find("call 4 (the tokens from position 1 of sequence 100 replaced by"),
            std::string::npos)
      << late;
  EXPECT_NE(late.find("out of memory"), std::string::npos);
}

TEST(CheckRouter, WithoutASuffixItIsSilent) {
  RoutingSpec spec = SpecOf(RouterPolicy::kExpertChoice);
  spec.length = 1;
  const SyntheticRouting routing(spec);
  EXPECT_EQ(Check(Callable(routing), InputsOf(routing), {.max_calls = 8}).row, Row::kNotTried);
}

TEST(CheckRouter, MaskedExpertsStayMasked) {
  const SyntheticRouting routing(SpecOf(RouterPolicy::kScore));
  RouterInputs inputs = InputsOf(routing);
  for (size_t i = 0; i < inputs.logits.size(); i += 8) inputs.logits[i] = -HUGE_VAL;
  const RouterCheck check = Check(
      [&](const std::vector<double>& logits) -> absl::StatusOr<Assignments> {
        for (double x : logits) EXPECT_FALSE(std::isnan(x));
        return Callable(routing)(logits);
      },
      inputs);
  EXPECT_EQ(check.row, Row::kFutureLeak);
}

// Tests that even with few calls, a queue's dependence on earlier sequences is always tried.
TEST(CheckRouter, AShortSweepStillTriesEverything) {
  for (int calls : {24, 40, 64, 100, 150}) {
    const SyntheticRouting fifo(SpecOf(RouterPolicy::kFifo));
    EXPECT_EQ(Check(Callable(fifo), InputsOf(fifo), {.max_calls = calls}).row, Row::kBatchDependent)
        << calls;
    const SyntheticRouting rank_major(SpecOf(RouterPolicy::kRankMajor));
    EXPECT_EQ(Check(Callable(rank_major), InputsOf(rank_major), {.max_calls = calls}).row,
              Row::kFutureLeak)
        << calls;
  }
}

// Returns the description of the trial at which a router fails.
std::string TriedAt(const SyntheticRouting& routing, int failing, int max_calls) {
  int calls = 0;
  const auto check = CheckRouter(
      [&](const std::vector<double>& logits) -> absl::StatusOr<Assignments> {
        if (++calls == failing) return absl::InternalError("stop");
        return Callable(routing)(logits);
      },
      InputsOf(routing), {.max_calls = max_calls});
  return check.ok() ? "" : std::string(check.status().message());
}

TEST(CheckRouter, AShortSweepUsesEveryMethodOfReplacement) {
  const SyntheticRouting routing(SpecOf(RouterPolicy::kTokenChoice));
  // Four sequences of 64 tokens: 15 cuts by 3 methods, 180 trials; 60 calls use every third.
  for (int max_calls : {24, 40, 60, 91, 150}) {
    for (const char* method : {"random tokens", "copies of", "tokens that all choose"}) {
      bool used = false;
      for (int call = 3; call < 14; ++call)
        used |= TriedAt(routing, call, max_calls).find(method) != std::string::npos;
      EXPECT_TRUE(used) << method << " of " << max_calls;
    }
  }
}

TEST(CheckRouter, TheSweepIsBounded) {
  const SyntheticRouting routing(SpecOf(RouterPolicy::kTokenChoice));
  const RouterCheck check = Check(Callable(routing), InputsOf(routing), {.max_calls = 40});
  EXPECT_LE(check.calls, 40);
  EXPECT_GT(check.future.tried, 15);
  EXPECT_GT(check.earlier.tried, 2);
  EXPECT_GT(check.later.tried, 2);
  EXPECT_NE(check.assumptions.back().find("ended early"), std::string::npos);
}

}  // namespace
}  // namespace plumbline::analysis
