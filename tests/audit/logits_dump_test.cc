// Dumps of kind logits: invalid ones are refused by name, valid ones become the same evidence as
// from a live run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "base/half.h"
#include "tests/audit/audit_dumps.h"
#include "tests/audit/dump_builder.h"

namespace plumbline::audit {
namespace {

using test::TempFolder;
using testing::AuditBytes;
using testing::Bytes;
using testing::Change;
using testing::Dump;
using testing::ExpectProblems;
using testing::Problems;
using testing::SetTo;

constexpr int64_t kRows = 40, kVocabulary = 300;

// The rollout in bf16, the trainer in f32 with rounding noise, at `scale` times its logits.
Dump LogitsDump(float scale = 1, float noise = 0.01f) {
  std::mt19937_64 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> train;
  std::vector<uint16_t> rollout;
  for (int64_t i = 0; i < kRows * kVocabulary; ++i) {
    rollout.push_back(FloatToBF16(3 * normal(random)));
    train.push_back(scale * BF16ToFloat(rollout.back()) + noise * normal(random));
  }
  std::vector<int64_t> tokens;
  for (int64_t i = 0; i < kRows; ++i) tokens.push_back(i * 7 % kVocabulary);
  Dump dump;
  dump.metadata = {{"kind", "logits"}, {"layer", "policy"}, {"step", "3"}};
  dump.tensors = {{"train", "F32", {kRows, kVocabulary}, Bytes(train)},
                  {"rollout", "BF16", {kRows, kVocabulary}, Bytes(rollout)},
                  {"tokens", "I64", {kRows}, Bytes(tokens)}};
  return dump;
}

v1::Evidence EvidenceOf(const Dump& dump) {
  const TempFolder dir;
  InputReport report;
  report.path = dir.Write("a.safetensors", dump.File());
  report.named = true;
  v1::Batch batch;
  for (const auto& source : FindReader("safetensors")->Open({&report})) source->Next(&batch);
  for (const Problem& problem : report.problems) ADD_FAILURE() << problem.text;
  EXPECT_EQ(batch.evidence_size(), 1);
  return batch.evidence_size() == 1 ? batch.evidence(0) : v1::Evidence();
}

TEST(LogitsDumps, RowsAndTheirSumsAreMeasured) {
  Dump dump = LogitsDump();
  dump.metadata["temperature"] = "0.8";
  dump.metadata["logprob_mode"] = "processed_logits";
  const v1::Evidence e = EvidenceOf(dump);
  EXPECT_EQ(e.site().op(), "logits");
  EXPECT_EQ(e.step(), 3);
  EXPECT_EQ(e.sample_size(), static_cast<uint64_t>(kRows));
  EXPECT_EQ(e.exercised(), v1::EXERCISED_YES);
  const v1::Logits& logits = e.logits();
  EXPECT_EQ(logits.config().vocabulary(), static_cast<uint64_t>(kVocabulary));
  EXPECT_EQ(logits.config().train_dtype(), v1::DTYPE_F32);
  EXPECT_EQ(logits.config().rollout_dtype(), v1::DTYPE_BF16);
  EXPECT_EQ(logits.config().temperature(), 0.8);
  EXPECT_EQ(logits.config().mode(), v1::LOGPROB_MODE_PROCESSED);
  const v1::LogitsSummary& s = logits.summary();
  EXPECT_EQ(s.rows(), static_cast<uint64_t>(kRows));
  EXPECT_EQ(s.usable(), static_cast<uint64_t>(kRows));
  EXPECT_EQ(s.tokens(), static_cast<uint64_t>(kRows));
  EXPECT_GT(s.kl_train_rollout(), 2e-5);
  EXPECT_LT(s.kl_train_rollout(), 8e-5);  // half of 0.01^2
  ASSERT_EQ(logits.rows_size(), kRows);
  double sum = 0, d = 0;
  for (const v1::LogitsRow& row : logits.rows()) {
    sum += row.kl_train_rollout();
    d += row.logprob_train() - row.logprob_rollout();
    EXPECT_EQ(row.log_moments_size(), 14);
    EXPECT_EQ(row.downward_means_size(), 7);
    EXPECT_EQ(row.lattice_rollout(), 1);
    EXPECT_LT(row.lattice_train(), 0.1);
    EXPECT_NEAR(row.slope(), 1, 0.01);
  }
  EXPECT_NEAR(s.kl_train_rollout(), sum / kRows, 1e-15);
  EXPECT_NEAR(s.d_mean(), d / kRows, 1e-12);
  ASSERT_EQ(logits.worst_size(), 2);
  const v1::LogitsWitness& worst = logits.worst(0);
  const auto at = static_cast<size_t>(worst.row()) * kVocabulary;
  EXPECT_EQ(worst.train().data(), dump.Tensor("train").data.substr(4 * at, 4 * kVocabulary));
  EXPECT_EQ(worst.rollout().data(), dump.Tensor("rollout").data.substr(2 * at, 2 * kVocabulary));
  for (const v1::LogitsRow& row : logits.rows()) {
    if (row.row() == worst.row()) continue;
    EXPECT_LE(std::max(row.kl_train_rollout(), row.kl_rollout_train()),
              std::max(logits.rows(static_cast<int>(worst.row())).kl_train_rollout(),
                       logits.rows(static_cast<int>(worst.row())).kl_rollout_train()));
  }
}

TEST(LogitsDumps, KindIsRecognisedByTheTensors) {
  Dump dump = LogitsDump();
  dump.metadata.erase("kind");
  EXPECT_TRUE(EvidenceOf(dump).has_logits());
}

TEST(LogitsDumps, LabelsChooseRowsAndAreTheirTokens) {
  Dump dump = LogitsDump();
  std::vector<int64_t> labels(kRows, -100);
  labels[7] = 49;
  labels[9] = 63;
  dump.tensors.push_back({"labels", "I64", {kRows}, Bytes(labels)});
  for (const bool tokens : {true, false}) {
    if (!tokens) dump.Remove("tokens");
    const v1::Logits logits = EvidenceOf(dump).logits();
    ASSERT_EQ(logits.rows_size(), 2);
    EXPECT_EQ(logits.rows(0).row(), 7u);
    EXPECT_EQ(logits.rows(1).token(), 63);
    EXPECT_EQ(logits.summary().rows(), 2u);
    EXPECT_EQ(logits.summary().rows_seen(), static_cast<uint64_t>(kRows));
  }
  std::fill(labels.begin(), labels.end(), -100);
  dump.Tensor("labels").data = Bytes(labels);
  const v1::Evidence none = EvidenceOf(dump);
  EXPECT_EQ(none.exercised(), v1::EXERCISED_NO);
  EXPECT_EQ(none.logits().summary().rows(), 0u);
  EXPECT_TRUE(std::isnan(none.logits().summary().kl_train_rollout()));
}

TEST(LogitsDumps, FaultsAndMasksAreCounted) {
  Dump dump = LogitsDump();
  std::string& train = dump.Tensor("train").data;
  const float nan = NAN, masked = -INFINITY;
  std::memcpy(&train[4 * (5 * kVocabulary + 2)], &nan, 4);
  std::memcpy(&train[4 * (6 * kVocabulary + 2)], &masked, 4);
  dump.tensors.push_back({"allowed",
                          "BOOL",
                          {kRows, kVocabulary},
                          std::string(static_cast<size_t>(kRows * kVocabulary), '\1')});
  v1::Logits logits = EvidenceOf(dump).logits();
  EXPECT_EQ(logits.summary().train_non_finite(), 1u);
  EXPECT_EQ(logits.summary().usable(), static_cast<uint64_t>(kRows) - 1);
  EXPECT_EQ(logits.summary().support_differs(), 1u);
  EXPECT_TRUE(std::isinf(logits.summary().kl_rollout_train()));
  EXPECT_TRUE(std::isfinite(logits.summary().kl_train_rollout()));
  EXPECT_EQ(logits.worst(0).row(), 6u);
  EXPECT_TRUE(std::isnan(logits.rows(5).lse_train()));
  EXPECT_EQ(logits.rows(5).log_moments_size(), 0);
  dump.Tensor("allowed").data[6 * kVocabulary + 2] = '\0';
  EXPECT_EQ(EvidenceOf(dump).logits().summary().support_differs(), 0u);
}

TEST(LogitsDumps, ATemperatureIsFoundAndNoiseIsNot) {
  const AuditResult biased = AuditBytes(LogitsDump(1.25f).File());
  const AuditResult noisy = AuditBytes(LogitsDump().File());
  EXPECT_EQ(Problems(biased), "");
  const v1::Finding* found = nullptr;
  for (const v1::Finding* finding : biased.report.findings()) {
    if (finding->rule() == "drift/logit-drift") found = finding;
  }
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found->cause().id(), "temperature");
  EXPECT_NEAR(found->measured().value(), -0.2, 0.01);  // 1/1.25 minus 1
  int passes = 0;
  for (const v1::Verdict* verdict : noisy.report.verdicts()) {
    if (verdict->rule() != "drift/logit-drift") continue;
    EXPECT_NE(verdict->kind(), v1::Verdict::KIND_FINDING);
    passes += verdict->kind() == v1::Verdict::KIND_PASS;
  }
  EXPECT_EQ(passes, 1);
}

TEST(LogitsDumps, WhatDoesNotFitIsRefusedByName) {
  const auto add = [](const char* name, const char* dtype, std::vector<int64_t> shape,
                      std::string data) {
    return [=](Dump& dump) { dump.tensors.push_back({name, dtype, shape, data}); };
  };
  const std::string rows(8 * kRows, '\0'), one_byte(kRows * kVocabulary, '\1');
  const std::vector<Change> changes = {
      {"no train", [](Dump& d) { d.Remove("train"); }, "expected a tensor train of shape [T,V]"},
      {"no rollout", [](Dump& d) { d.Remove("rollout"); }, "expected a tensor rollout"},
      {"integers", [](Dump& d) { d.Tensor("train").dtype = "I32"; },
       "expected train as F32, F16 or BF16, found I32"},
      {"one axis", [](Dump& d) { d.Tensor("train").shape = {kRows * kVocabulary}; },
       "expected train of shape [T,V], V at least 1, found [12000]"},
      {"another shape",
       [](Dump& d) {
         d.Tensor("rollout").shape = {kVocabulary, kRows};
       },
       "expected rollout of shape [T,V] = [40,300], found [300,40]"},
      {"token shape",
       [](Dump& d) {
         d.Tensor("tokens").shape = {kRows / 2, 2};
       },
       "expected tokens of shape [T] = [40]"},
      {"token dtype", [](Dump& d) { d.Tensor("tokens").dtype = "F64"; },
       "expected tokens as an integer dtype"},
      {"token beyond",
       [](Dump& d) {
         const int64_t token = 300;
         std::memcpy(&d.Tensor("tokens").data[8 * 3], &token, 8);
       },
       "tokens: expected ids below 300, found 300 in row 3"},
      {"labels that are other tokens", add("labels", "I64", {kRows}, rows),
       "found 0 for token 7 in row 1"},
      {"label dtype", add("labels", "F64", {kRows}, rows), "expected labels as an integer dtype"},
      {"mask shape", add("allowed", "BOOL", {kVocabulary, kRows}, one_byte),
       "expected allowed of shape [T,V]"},
      {"mask dtype", add("allowed", "I8", {kRows, kVocabulary}, one_byte),
       "expected allowed as BOOL or U8"},
      {"temperature text", SetTo("temperature", "hot"), "expected metadata temperature"},
      {"temperature zero", SetTo("temperature", "0"),
       "expected metadata temperature to be above 0"},
      {"mode", SetTo("logprob_mode", "raw"),
       "expected metadata logprob_mode to be raw_logits or processed_logits"},
      {"misspelt key", SetTo("temprature", "1"), "expected metadata temperature"},
      {"misspelt tensor", add("token", "I64", {kRows}, rows), "expected tensor tokens"},
  };
  ExpectProblems([] { return LogitsDump(); }, changes);
}

}  // namespace
}  // namespace plumbline::audit
