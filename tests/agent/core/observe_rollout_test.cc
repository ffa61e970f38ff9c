// Rollouts from the C ABI's structs to a record: logits of both sides, log-probabilities by
// sequence.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <set>
#include <vector>

#include "base/half.h"
#include "kernels/core/sample_index.h"
#include "kernels/logits/pair.h"
#include "kernels/sample/gather.h"
#include "probes/logit_probe.h"
#include "probes/logprobs_probe.h"
#include "proto/evidence_samples.h"
#include "tests/agent/core/observed_run.h"
#include "transport/batch_edit.h"

namespace plumbline::agent {
namespace {

using namespace transport;  // NOLINT: what leaves
using namespace testing;    // NOLINT: the tests' own
using ::testing::HasSubstr;

// Logits of a rollout in bf16 and of a trainer in f32, with rounding noise.
struct BothLogits {
  int64_t rows, vocabulary;
  std::vector<float> train;
  std::vector<uint16_t> rollout;
  std::vector<int64_t> tokens;
  BothLogits(int64_t t, int64_t v) : rows(t), vocabulary(v) {
    std::mt19937 random(3);
    const auto draw = [&] { return static_cast<float>(random() >> 8) / (1 << 22) - 2; };
    for (int64_t i = 0; i < t * v; ++i) {
      rollout.push_back(FloatToBF16(draw()));
      train.push_back(BF16ToFloat(rollout.back()) + 0.01f * draw());
    }
    for (int64_t i = 0; i < t; ++i) tokens.push_back(i % v);
  }
  LogitInput Input() const {
    LogitInput in;
    in.train = TensorView::Dense(train.data(), DType::kF32, rows, vocabulary);
    in.rollout = TensorView::Dense(rollout.data(), DType::kBF16, rows, vocabulary);
    in.tokens = TensorView::Dense(tokens.data(), DType::kI64, rows);
    return in;
  }
};

// Rows selected by the step's key, measured later (gathered, or whole in the ring) or in the call.
TEST(Observe, LogitsAreMeasuredByRow) {
  for (const auto& [rows, vocabulary] :
       {std::pair<int64_t, int64_t>{5, 50}, {2000, 100}, {50, 2500}, {70, 3000}, {3, 400000}}) {
    SCOPED_TRACE(std::to_string(rows) + " rows of " + std::to_string(vocabulary));
    TempFolder dir;
    Recorded r(dir.path());
    const BothLogits both(rows, vocabulary);
    const Tensor train(both.train.data(), {rows, vocabulary}),
        rollout(both.rollout.data(), {PLUMBLINE_DL_BFLOAT, 16, 1}, {rows, vocabulary}),
        tokens(both.tokens.data(), {rows});
    plumbline_logits_t call = PLUMBLINE_LOGITS_INIT;
    call.train = train.get();
    call.rollout = rollout.get();
    call.tokens = tokens.get();
    call.mode = PLUMBLINE_LOGPROBS_PROCESSED;
    call.temperature = 0.7;
    r.run->StepBegin(4);
    EXPECT_EQ(r.run->ObserveLogits(r.logits, 4, call, &r.error), PLUMBLINE_OK) << r.error.text;
    r.run->StepEnd(4);
    const std::string key_run = r.run->state().options.run;
    const auto all = r.Close(dir.path());
    ASSERT_EQ(all.size(), 1u);
    const v1::Logits& logits = all[0].logits();
    EXPECT_EQ(all[0].exercised(), v1::EXERCISED_YES);
    EXPECT_EQ(logits.config().vocabulary(), static_cast<uint64_t>(vocabulary));
    EXPECT_EQ(logits.config().mode(), v1::LOGPROB_MODE_PROCESSED);
    EXPECT_EQ(logits.config().temperature(), 0.7);
    EXPECT_EQ(logits.config().rollout_dtype(), v1::DTYPE_BF16);
    const auto expected =
        SampleIndices(SampleKey(key_run, 4, "policy", "logits"), static_cast<uint64_t>(rows),
                      vocabulary > 65536 ? 2 : probes::kLogitRows);
    EXPECT_EQ(all[0].sample_size(), expected.size());
    EXPECT_EQ(logits.summary().rows(), expected.size());
    EXPECT_EQ(logits.summary().usable(), expected.size());
    const auto seen = static_cast<uint64_t>(rows);
    EXPECT_EQ(logits.summary().rows_seen(), expected.size() < seen ? seen : 0);
    ASSERT_EQ(logits.rows_size(), static_cast<int>(expected.size()));
    const LogitPlan plan = PlanLogits(both.Input());
    for (int i = 0; i < logits.rows_size(); ++i) {
      const v1::LogitsRow& row = logits.rows(i);
      EXPECT_EQ(row.row(), expected[static_cast<size_t>(i)]);
      const LogitRow alone = MeasureLogitRow(plan, static_cast<int64_t>(row.row()), true);
      EXPECT_EQ(row.kl_train_rollout(), alone.kl_train_rollout);
      EXPECT_EQ(row.js(), alone.js);
      EXPECT_EQ(row.token(), alone.token);
      EXPECT_EQ(row.logprob_train(), alone.logprob[kTrain]);
    }
    EXPECT_EQ(logits.worst_size(), vocabulary > 20000 ? 0 : 1);
    if (logits.worst_size() == 1) {
      const auto at = logits.worst(0).row() * static_cast<uint64_t>(vocabulary);
      EXPECT_EQ(std::memcmp(logits.worst(0).train().data().data(), &both.train[at],
                            static_cast<size_t>(vocabulary) * sizeof(float)),
                0);
    }
    v1::Batch batch;
    *batch.add_evidence() = all[0];
    EXPECT_TRUE(HasSample(batch.evidence(0)));
    DropSamples(&batch, "traffic");
    EXPECT_FALSE(HasSample(batch.evidence(0)));
    EXPECT_EQ(batch.evidence(0).logits().summary().rows(), expected.size());
  }
}

TEST(Observe, LogitsCostNothingAtStepsWithoutSamples) {
  TempFolder dir;
  SparseRun r(dir.path(), PLUMBLINE_KIND_LOGITS, "policy", "logits");
  const BothLogits both(4, 30);
  const Tensor train(both.train.data(), {4, 30});
  plumbline_logits_t call = PLUMBLINE_LOGITS_INIT;
  call.train = call.rollout = train.get();
  for (int64_t step = 0; step < 40; ++step) {
    r.run->StepBegin(step);
    EXPECT_EQ(r.run->ObserveLogits(r.site, step, call, &r.error), PLUMBLINE_OK);
    r.run->StepEnd(step);
  }
  ASSERT_EQ(r.run->Close(20000, &r.error), PLUMBLINE_OK);
  int sampled = 0, bare = 0;
  for (const v1::Batch& batch : ReadRecord(FirstRecord(dir.path()))) {
    for (const v1::Evidence& e : batch.evidence()) {
      ++(e.logits().rows_size() > 0 ? sampled : bare);
      EXPECT_EQ(e.logits().config().vocabulary(), 30u);
      EXPECT_EQ(e.logits().summary().rows(), e.sample_size());
      EXPECT_EQ(e.logits().summary().rows_seen(), e.sample_size() == 4 ? 0u : 4u);
    }
  }
  EXPECT_GE(sampled, 1);
  EXPECT_GE(bare, 1);
}

// ---- log-probabilities -------------------------------------------------------------------------

// Two sequences of three rows each and padding, as one engine batch.
struct Batch {
  std::vector<int64_t> tokens = {5, 6, 7, 8, 9, 10}, ids = {41, 42}, versions = {3, 3, 3, 3, 4, 4};
  std::vector<int32_t> cached = {2, 0};
  std::vector<float> rollout = {-1, -2, -3, -4, -5, NAN};
  std::vector<double> train = {-1.5, -2, -3, -4, -5, -6}, start = {0.5, 1}, end = {2, 3};
  std::vector<uint8_t> mask = {1, 1, 0, 1, 1, 1};
};

plumbline_status_t Observe(Recorded& r, Site* site, int64_t step,
                           const plumbline_logprobs_t& call) {
  r.run->StepBegin(step);
  const plumbline_status_t status = r.run->ObserveLogprobs(site, step, call, &r.error);
  r.run->StepEnd(step);
  return status;
}

TEST(Observe, LogprobsAreKeptBySequence) {
  TempFolder dir;
  Recorded r(dir.path());
  Site* site = r.Declare(PLUMBLINE_KIND_LOGPROBS, "policy", "logprobs");
  const Batch b;
  const Tensor tokens(b.tokens.data(), {2, 3}), ids(b.ids.data(), {2}),
      versions(b.versions.data(), {2, 3}), cached(b.cached.data(), {2}),
      rollout(b.rollout.data(), {2, 3}), train(b.train.data(), {2, 3}), mask(b.mask.data(), {2, 3}),
      start(b.start.data(), {2}), end(b.end.data(), {2});
  plumbline_logprobs_t call = PLUMBLINE_LOGPROBS_INIT;
  call.tokens = tokens.get();
  call.sequence_id = ids.get();
  call.versions = versions.get();
  call.cached_tokens = cached.get();
  call.rollout = rollout.get();
  call.train = train.get();
  call.mask = mask.get();
  call.t_start = start.get();
  call.t_end = end.get();
  call.behaviour = train.get();
  call.temperature = 0.7;
  call.train_version = 4;
  call.mode = PLUMBLINE_LOGPROBS_PROCESSED;
  call.selection = PLUMBLINE_SELECTION_ALL;
  call.worker = "w0";
  ASSERT_EQ(Observe(r, site, 9, call), PLUMBLINE_OK) << r.error.text;
  const auto all = r.Close(dir.path());
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].sample_size(), 6u);
  const v1::Logprobs& l = all[0].logprobs();
  EXPECT_EQ(l.sequences_seen(), 2u);
  EXPECT_EQ(l.tokens_seen(), 6u);
  ASSERT_EQ(l.sequences_size(), 2);
  const v1::LogprobsSequence& s = l.sequences(1);
  EXPECT_EQ(s.id(), "42");
  EXPECT_EQ(s.length(), 3u);
  EXPECT_EQ(s.first_position(), 0);
  EXPECT_EQ(Data<int64_t>(s.tokens()), (std::vector<int64_t>{8, 9, 10}));
  EXPECT_EQ(Data<int64_t>(s.weight_versions()), (std::vector<int64_t>{3, 4, 4}));
  EXPECT_EQ(s.rollout().logprobs().dtype(), v1::DTYPE_F32);
  EXPECT_TRUE(std::isnan(Data<float>(s.rollout().logprobs())[2]))
      << "what was handed over, as it is";
  EXPECT_EQ(Data<double>(s.train().logprobs()), (std::vector<double>{-4, -5, -6}));
  EXPECT_EQ(Data<double>(s.behaviour().logprobs()), (std::vector<double>{-4, -5, -6}));
  EXPECT_EQ(l.sequences(0).mask(), std::string({1, 1, 0}));
  EXPECT_EQ(l.sequences(0).cached_tokens(), 2);
  EXPECT_EQ(s.t_start(), 1);
  EXPECT_EQ(s.t_end(), 3);
  EXPECT_EQ(s.temperature(), 0.7);
  EXPECT_FALSE(s.has_top_p());
  EXPECT_FALSE(s.has_kept_share());
  EXPECT_EQ(s.train_version(), 4);
  EXPECT_EQ(s.mode(), v1::LOGPROB_MODE_PROCESSED);
  EXPECT_EQ(s.selection(), v1::LogprobsSequence::SELECTION_ALL);
  EXPECT_EQ(s.worker(), "w0");
}

// A façade built before the struct became longer passes a shorter one: nothing beyond its end is
// read.
TEST(Observe, AnOlderLogprobsStructIsReadToItsEnd) {
  TempFolder dir;
  Recorded r(dir.path());
  Site* site = r.Declare(PLUMBLINE_KIND_LOGPROBS, "policy", "logprobs");
  const Batch b;
  const Tensor ids(b.ids.data(), {2}), train(b.train.data(), {2, 3});
  plumbline_logprobs_t call = PLUMBLINE_LOGPROBS_INIT;
  call.sequence_id = ids.get();
  call.train = train.get();
  call.size = offsetof(plumbline_logprobs_t, behaviour);
  call.behaviour = reinterpret_cast<const DLTensor*>(uintptr_t{1});
  ASSERT_EQ(Observe(r, site, 9, call), PLUMBLINE_OK) << r.error.text;
  const auto all = r.Close(dir.path());
  EXPECT_FALSE(all.at(0).logprobs().sequences(0).has_behaviour());
}

// Rows of several sequences mixed, padding, positions that are not in order.
TEST(Observe, LogprobsOfMixedRowsComeTogether) {
  TempFolder dir;
  Recorded r(dir.path());
  Site* site = r.Declare(PLUMBLINE_KIND_LOGPROBS, "policy", "logprobs");
  const std::vector<int64_t> ids = {7, 8, 7, -1, 8, 7}, at = {10, 0, 11, 0, 5, 12};
  const std::vector<float> train = {0, -1, -2, -3, -4, -5};
  const Tensor id(ids.data(), {6}), position(at.data(), {6}), column(train.data(), {6});
  plumbline_logprobs_t call = PLUMBLINE_LOGPROBS_INIT;
  call.sequence_id = id.get();
  call.position = position.get();
  call.train = column.get();
  ASSERT_EQ(Observe(r, site, 0, call), PLUMBLINE_OK) << r.error.text;
  const auto all = r.Close(dir.path());
  const v1::Logprobs& l = all.at(0).logprobs();
  ASSERT_EQ(l.sequences_size(), 2);
  EXPECT_EQ(l.tokens_seen(), 5u);
  EXPECT_EQ(Data<float>(l.sequences(0).train().logprobs()), (std::vector<float>{0, -2, -5}));
  EXPECT_EQ(l.sequences(0).first_position(), 10);
  EXPECT_FALSE(l.sequences(0).has_positions());
  EXPECT_EQ(Data<int64_t>(l.sequences(1).positions()), (std::vector<int64_t>{0, 5}));
  EXPECT_FALSE(l.sequences(1).has_rollout());
}

// Each side keeps the sequences that its budget allows, so both keep those below the lower
// threshold.
TEST(Observe, BothSidesKeepTheSameSequences) {
  const int64_t sequences = 400, length = 8;
  std::vector<int64_t> ids;
  std::vector<float> column(static_cast<size_t>(sequences * length), -1);
  for (int64_t i = 0; i < sequences; ++i) ids.push_back(1000 + i);
  probes::LogprobsCall call;
  call.rollout = TensorView::Dense(column.data(), DType::kF32, sequences, length);
  call.sequence_id = TensorView::Dense(ids.data(), DType::kI64, sequences);
  const auto kept = [&](uint64_t threshold) {
    v1::Evidence e;
    EXPECT_TRUE(probes::Measure(call, 99, threshold, &e).ok());
    std::set<std::string> out;
    for (const auto& s : e.logprobs().sequences()) out.insert(s.id());
    EXPECT_EQ(e.logprobs().sequences_seen(), 400u);
    return out;
  };
  constexpr uint64_t kAll = std::numeric_limits<uint64_t>::max();
  const auto half = kept(kAll / 2), tenth = kept(kAll / 10);
  EXPECT_EQ(kept(kAll).size(), 400u);
  EXPECT_GT(half.size(), 160u);
  EXPECT_LT(half.size(), 240u);
  EXPECT_GT(tenth.size(), 20u);
  EXPECT_LT(tenth.size(), 60u);
  EXPECT_TRUE(std::includes(half.begin(), half.end(), tenth.begin(), tenth.end()));
  EXPECT_TRUE(kept(0).empty());
}

TEST(Observe, LogprobsStayWithinTheirBudget) {
  probes::LogprobsBudget budget;
  const uint64_t bytes = 1 << 20, per_step = 3072;
  double sent = 0;
  for (int64_t step = 0; step < 1000; ++step) {
    const uint64_t threshold = budget.Threshold(step, bytes, per_step);
    sent += std::ldexp(static_cast<double>(threshold), -64) * static_cast<double>(bytes);
  }
  EXPECT_NEAR(sent, probes::LogprobsBudget::kBurst + 999.0 * per_step, 2 * bytes);
}

TEST(Observe, LogprobsAreDueAtEveryStep) {
  TempFolder dir;
  SparseRun r(dir.path(), PLUMBLINE_KIND_LOGPROBS, "policy", "logprobs", 77);
  for (int64_t step = 0; step < 40; ++step) {
    EXPECT_LE(r.due, static_cast<uint64_t>(step));
    r.run->StepBegin(step);
    r.run->StepEnd(step);
  }
  EXPECT_EQ(r.run->Close(20000, &r.error), PLUMBLINE_OK);
}

TEST(Observe, LogprobMistakesNameTheColumn) {
  TempFolder dir;
  Recorded r(dir.path());
  Site* site = r.Declare(PLUMBLINE_KIND_LOGPROBS, "policy", "logprobs");
  const Batch b;
  const Tensor six(b.train.data(), {6}), two(b.ids.data(), {2}), grid(b.train.data(), {2, 3});
  const auto refused = [&](const plumbline_logprobs_t& call, const char* text) {
    EXPECT_EQ(Observe(r, site, 0, call), PLUMBLINE_INVALID_ARGUMENT);
    EXPECT_THAT(r.error.text, HasSubstr(text));
  };
  plumbline_logprobs_t call = PLUMBLINE_LOGPROBS_INIT;
  refused(call, "rollout and train: expected at least one");
  call.train = six.get();
  refused(call, "sequence_id: required");
  call.sequence_id = two.get();
  refused(call, "sequence_id: expected the shape of the log-probabilities, f64[6], found i64[2]");
  call.train = grid.get();
  call.tokens = grid.get();
  refused(call, "tokens: expected an integer type");
  call.tokens = nullptr;
  call.mode = 9;
  refused(call, "mode = 9");
  EXPECT_TRUE(r.Close(dir.path()).empty());
  EXPECT_EQ(r.account.lost_by_cause.at("invalid"), 5u);
}

}  // namespace
}  // namespace plumbline::agent
