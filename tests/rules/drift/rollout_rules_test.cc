// Tests drift/record-invalid and drift/sampler-mismatch in the engine: halves in any order,
// non-finite values, rows of logits, and the names of faults and of similar innocent patterns.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "rules/engine/report.h"
#include "tests/rules/support/simulated_rollout.h"
#include "tests/rules/support/verdicts.h"

namespace plumbline::rules {
namespace {

using testing::Of;
using testing::RolloutRun;
using testing::RolloutSpec;
using testing::Verdicts;
using testing::VerdictsOn;

constexpr char kRecord[] = "drift/record-invalid";
constexpr char kSampler[] = "drift/sampler-mismatch";

Verdicts Judge(std::vector<v1::Batch> batches) {
  return VerdictsOn(std::move(batches), {.rules = {kRecord, kSampler}});
}
Verdicts Judge(const RolloutSpec& spec) { return Judge({RolloutRun(spec)}); }

TEST(RolloutRules, EveryTokenFarOffIsAnErrorAndNeverClean) {
  for (const bool entropy : {false, true}) {
    RolloutSpec spec{.far = true};
    spec.rollout_entropy = spec.rollout_varentropy = spec.entropy = entropy;
    const auto verdicts = Judge(spec);
    const v1::Verdict* record = Of(verdicts, kRecord);
    ASSERT_NE(record, nullptr);
    ASSERT_EQ(record->kind(), v1::Verdict::KIND_FINDING);
    EXPECT_EQ(record->finding().level(), v1::LEVEL_ERROR);
    EXPECT_GT(record->details().fields().at("k3").number_value(), 1e7);
    for (const v1::Verdict& v : verdicts) EXPECT_NE(v.kind(), v1::Verdict::KIND_PASS) << v.rule();
  }
}

TEST(RolloutRules, HalvesAndWholeSequencesGiveOneVerdict) {
  for (const char* sin : {"", "raw-at-temperature"}) {
    RolloutSpec spec{.sin = sin, .temperature = .8};
    const auto whole = Judge(spec);
    spec.halves = true;
    const v1::Batch both = RolloutRun(spec);
    // The evidence of the roles in both orders.
    std::vector<v1::Batch> parts[2];
    for (const uint32_t first : {0u, 1u}) {
      for (const uint32_t source : {first, 1 - first}) {
        v1::Batch part = both;
        part.clear_evidence();
        for (const v1::Evidence& e : both.evidence())
          if (e.source() == source) *part.add_evidence() = e;
        parts[first].push_back(std::move(part));
      }
    }
    const auto forward = Judge(parts[0]), backward = Judge(parts[1]);
    ASSERT_EQ(forward.size(), whole.size());
    ASSERT_EQ(backward.size(), whole.size());
    for (size_t i = 0; i < whole.size(); ++i) {
      EXPECT_EQ(forward[i].DebugString(), backward[i].DebugString());
      EXPECT_EQ(forward[i].kind(), whole[i].kind());
      EXPECT_EQ(forward[i].details().DebugString(), whole[i].details().DebugString());
    }
  }
}

TEST(RolloutRules, HalvesOfOtherTextAreNamedAsAFact) {
  v1::Batch batch = RolloutRun({.halves = true});
  for (v1::Evidence& e : *batch.mutable_evidence()) {
    if (e.source() != 1) continue;
    auto& tokens = *e.mutable_logprobs()->mutable_sequences(3)->mutable_tokens()->mutable_data();
    for (size_t i = 40 * 8; i < 50 * 8; i += 8) tokens[i] = static_cast<char>(tokens[i] ^ 1);
  }
  const auto verdicts = Judge({batch});
  const v1::Verdict* record = Of(verdicts, kRecord);
  ASSERT_NE(record, nullptr);
  ASSERT_EQ(record->kind(), v1::Verdict::KIND_FINDING);
  EXPECT_EQ(record->finding().strength(), v1::STRENGTH_PROVED);
  EXPECT_EQ(record->finding().cause().id(), "retokenisation");
}

// Returns the first rows of a sequence. Every tensor here has 8 or 4 bytes per element.
v1::LogprobsSequence FirstRows(v1::LogprobsSequence m, int64_t rows) {
  for (v1::Tensor* tensor :
       {m.mutable_tokens(), m.mutable_weight_versions(), m.mutable_rollout()->mutable_logprobs(),
        m.mutable_train()->mutable_logprobs()}) {
    const size_t width = tensor->data().size() / m.length();
    tensor->mutable_data()->resize(static_cast<size_t>(rows) * width);
    tensor->set_shape(0, rows);
  }
  m.set_length(static_cast<uint64_t>(rows));
  return m;
}

void SetTurn(int64_t turn, v1::LogprobsSequence* m) {
  v1::Tensor& turns = *m->mutable_turns();
  turns.set_dtype(v1::DTYPE_I64);
  turns.add_shape(static_cast<int64_t>(m->length()));
  for (uint64_t i = 0; i < m->length(); ++i)
    turns.mutable_data()->append(reinterpret_cast<const char*>(&turn), sizeof turn);
}

// Returns each sequence as two turns. The prompt of the second turn contains the tokens of the
// first.
v1::Batch TwoTurns(int broken_every) {
  constexpr int64_t kFirst = 32;
  v1::Batch batch = RolloutRun({});
  int number = 0;
  for (v1::Evidence& e : *batch.mutable_evidence()) {
    v1::Logprobs turns;
    for (const v1::LogprobsSequence& whole : e.logprobs().sequences()) {
      v1::LogprobsSequence& first = *turns.add_sequences();
      first = FirstRows(whole, kFirst);
      SetTurn(0, &first);
      v1::LogprobsSequence& second = *turns.add_sequences();
      second = whole;
      SetTurn(1, &second);
      for (uint64_t i = 0; i < whole.length(); ++i)
        second.mutable_mask()->push_back(i < kFirst ? 0 : 1);
      if (broken_every > 0 && number++ % broken_every == 0)
        (*second.mutable_tokens()->mutable_data())[8 * 20] ^= 1;
    }
    *e.mutable_logprobs() = turns;
  }
  return batch;
}

TEST(RolloutRules, PromptsOfLaterTurnsAreCompared) {
  const auto healthy = Judge({TwoTurns(0)});
  ASSERT_EQ(Of(healthy, kRecord)->kind(), v1::Verdict::KIND_PASS);
  EXPECT_EQ(Of(healthy, kRecord)->details().fields().at("prompts_of_later_turns").number_value(),
            64);
  const auto broken = Judge({TwoTurns(8)});
  const v1::Verdict* record = Of(broken, kRecord);
  ASSERT_EQ(record->kind(), v1::Verdict::KIND_FINDING);
  EXPECT_EQ(record->finding().level(), v1::LEVEL_WARNING);
  EXPECT_EQ(record->finding().strength(), v1::STRENGTH_PROVED);
  EXPECT_EQ(record->finding().cause().id(), "retokenisation");
  EXPECT_EQ(record->finding().witness().fields().at("position").number_value(), 20);
}

TEST(RolloutRules, RowsOfLogitsAreJudgedAtTheirOwnSite) {
  RolloutSpec spec{.steps = 3, .logits = true};
  for (const v1::Verdict& v : Judge(spec)) {
    EXPECT_EQ(v.kind(), v1::Verdict::KIND_PASS) << v.rule() << " " << v.reason();
    EXPECT_EQ(v.site().op(), "logits");
  }
  spec.sin = "both-raw";
  spec.temperature = .7;
  const auto found = Judge(spec);
  EXPECT_EQ(Of(found, kRecord)->kind(), v1::Verdict::KIND_PASS);
  ASSERT_EQ(Of(found, kSampler)->kind(), v1::Verdict::KIND_FINDING);
  EXPECT_EQ(Of(found, kSampler)->finding().level(), v1::LEVEL_ERROR);
}

TEST(RolloutRules, AFailedRecordSilencesTheSampler) {
  RolloutSpec spec{.sin = "off-by-one"};
  spec.rollout_entropy = spec.rollout_varentropy = true;
  const auto verdicts = Judge(spec);
  EXPECT_EQ(Of(verdicts, kRecord)->kind(), v1::Verdict::KIND_FINDING);
  EXPECT_EQ(Of(verdicts, kSampler)->kind(), v1::Verdict::KIND_INCONCLUSIVE);
  EXPECT_EQ(Of(verdicts, kSampler)->reason().rfind("record-invalid: ", 0), 0u);
}

TEST(RolloutRules, EpochsDoNotEnterTwice) {
  RolloutSpec spec{.epochs = 3};
  const auto verdicts = Judge(spec);
  EXPECT_EQ(Of(verdicts, kRecord)->kind(), v1::Verdict::KIND_PASS);
  EXPECT_EQ(Of(verdicts, kRecord)->details().fields().at("tokens").number_value(), 4096);
}

// The names in the findings of one rule in one run, in order, and the name in the final report.
struct Named {
  std::vector<std::string> reported;
  std::string kept;
};
Named CausesOf(const std::string& rule, v1::Batch batch) {
  Named named;
  Report report;
  for (const v1::Verdict& verdict : VerdictsOn({std::move(batch)}, {.rules = {"drift/*"}})) {
    report.Add(verdict);
    if (verdict.rule() == rule) named.reported.push_back(verdict.finding().cause().id());
  }
  for (const v1::Finding* f : report.findings())
    if (f->rule() == rule) named.kept = f->cause().id();
  return named;
}

// Raises every third value of the trainer by half a nat from a step on. No known cause does this.
void Raise(int64_t from_step, v1::Batch* batch) {
  for (v1::Evidence& e : *batch->mutable_evidence()) {
    if (e.step() < from_step) continue;
    for (v1::LogprobsSequence& s : *e.mutable_logprobs()->mutable_sequences()) {
      std::string& data = *s.mutable_train()->mutable_logprobs()->mutable_data();
      for (size_t i = 0; i < data.size(); i += 3 * sizeof(float)) {
        float value;
        std::memcpy(&value, data.data() + i, sizeof value);
        value += 0.5f;
        std::memcpy(data.data() + i, &value, sizeof value);
      }
    }
  }
}

// Tests drift that is first attributed to noise, in a recording that is proved invalid later: the
// finding keeps its position and gets the later text, with or without a cause.
TEST(RolloutRules, NoiseIsTakenBackWhenTheRecordProvesUntrue) {
  RolloutSpec spec{.steps = 40, .noise = "fp8", .noise_scale = 2.5};
  EXPECT_EQ(CausesOf("drift/logit-drift", RolloutRun(spec)).kept, "noise");
  v1::Batch raised = RolloutRun(spec);
  Raise(8, &raised);
  const Named unknown = CausesOf("drift/logit-drift", raised);
  EXPECT_EQ(unknown.reported.front(), "noise");
  EXPECT_EQ(unknown.kept, "unknown");
  spec.sin = "zero-filled";
  spec.from_step = 8;
  spec.share = .2;
  const Named zeros = CausesOf("drift/logit-drift", RolloutRun(spec));
  EXPECT_EQ(zeros.reported.front(), "noise");
  EXPECT_EQ(zeros.kept, "zero-filled");
}

// Tests that healthy runs of every kind give no finding.
TEST(RolloutRules, HealthyRunsHaveNoFinding) {
  const bool long_run = std::getenv("PLUMB_LONG") != nullptr;
  for (int seed = 1; seed <= (long_run ? 1250 : 4); ++seed) {
    for (const char* noise : {"dense", "moe", "fp8", "none"}) {
      for (const char* family : {"small", "large"}) {
        RolloutSpec spec{.family = family, .contexts = 24, .seed = seed, .noise = noise, .lag = 8};
        spec.entropy = seed % 2 == 0;
        spec.rollout_entropy = spec.rollout_varentropy = seed % 3 == 0;
        if (seed % 4 == 0) spec.rounded = "both";
        if (seed % 5 == 0) spec.decimals = 4;
        for (const v1::Verdict& v : Judge(spec)) {
          EXPECT_NE(v.kind(), v1::Verdict::KIND_FINDING) << v.DebugString();
        }
      }
    }
  }
}

}  // namespace
}  // namespace plumbline::rules
