// Tensors and updates from the C ABI's structs to a record. For every kind of observation: order,
// mistakes and losses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "probes/calls/measure.h"
#include "tests/agent/core/observed_run.h"
#include "transport/batch_edit.h"

namespace plumbline::agent {
namespace {

using namespace transport;  // NOLINT: what leaves
using namespace testing;    // NOLINT: the tests' own
using ::testing::HasSubstr;

plumbline_tensor_t TensorOf(const Tensor& values, const char* role = "weight") {
  plumbline_tensor_t t = PLUMBLINE_TENSOR_INIT;
  t.values = values.get();
  t.role = role;
  return t;
}

TEST(Observe, TensorIsMeasuredAndSampled) {
  TempFolder dir;
  Recorded r(dir.path());
  std::vector<float> w = Ramp(60);
  w[7] = std::numeric_limits<float>::quiet_NaN();
  const Tensor values(w.data(), {6, 10});
  plumbline_tensor_t call = TensorOf(values);
  call.replicas = "dp";
  call.target_format = PLUMBLINE_DTYPE_E4M3;
  r.run->StepBegin(5);
  EXPECT_EQ(r.run->ObserveTensor(r.tensor, 5, call, &r.error), PLUMBLINE_OK) << r.error.text;
  std::fill(w.begin(), w.end(), 0.0f);  // the trainer continues
  r.run->StepEnd(5);
  const auto all = r.Close(dir.path());
  ASSERT_EQ(all.size(), 1u);
  const v1::TensorState& t = all[0].tensor();
  EXPECT_EQ(all[0].site().layer(), "w");
  EXPECT_EQ(all[0].site().op(), "weight");
  EXPECT_EQ(all[0].sample_size(), 60u);
  EXPECT_EQ(all[0].exercised(), v1::EXERCISED_YES);
  EXPECT_EQ(t.dtype(), v1::DTYPE_F32);
  EXPECT_EQ(t.role(), "weight");
  EXPECT_EQ(t.replicas(), "dp");
  EXPECT_EQ(t.target_format(), v1::DTYPE_E4M3);
  EXPECT_THAT(t.shape(), ::testing::ElementsAre(6, 10));
  EXPECT_EQ(t.summary().count(), 60u);
  EXPECT_EQ(t.summary().nan(), 1u);
  EXPECT_EQ(t.summary().amax(), 59);
  EXPECT_EQ(t.summary().sum(), 59 * 60 / 2 - 7);
  EXPECT_EQ(t.sample().values().data().size(), 60u * 4);
  EXPECT_EQ(r.account.declared.at({"w", "weight"}), "tensor");
}

TEST(Observe, LargeTensorIsMeasuredInTheCall) {
  TempFolder large_dir;
  const std::vector<float> w = Ramp(400'000, 0.5f);  // 1.6 MB
  ASSERT_GT(w.size() * 4, probes::kCopyBytes);
  const Tensor values(w.data(), {400, 1000});
  const plumbline_tensor_t call = TensorOf(values);
  Recorded r(large_dir.path());
  r.run->StepBegin(5);
  EXPECT_EQ(r.run->ObserveTensor(r.tensor, 5, call, &r.error), PLUMBLINE_OK) << r.error.text;
  r.run->StepEnd(5);
  const auto all = r.Close(large_dir.path());
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].tensor().summary().count(), 400'000u);
  EXPECT_EQ(all[0].tensor().summary().amax(), 0.5 * 399'999);
  EXPECT_EQ(all[0].order(), 1u);
  EXPECT_EQ(all[0].tensor().sample().offsets().shape(0), probes::kTensorSamples);
}

plumbline_update_t UpdateOf(const Tensor& before, const Tensor& after, const Tensor& intended) {
  plumbline_update_t u = PLUMBLINE_UPDATE_INIT;
  u.before = before.get();
  u.after = after.get();
  u.intended = intended.get();
  return u;
}

TEST(Observe, UpdateOfWholeTensorsAndOfSamples) {
  TempFolder dir;
  Recorded r(dir.path());
  // bf16 1.0 and an intended change far below its ulp: all lost.
  const std::vector<uint16_t> one(500, 0x3f80);
  const std::vector<float> tiny(500, 1e-4f);
  const Tensor w(one.data(), kBF16, {500}), d(tiny.data(), {500});
  plumbline_update_t call = UpdateOf(w, w, d);
  call.optimizer = "sgd";
  call.lr = 0.1;
  EXPECT_EQ(r.run->ObserveUpdate(r.update, 0, call, &r.error), PLUMBLINE_OK) << r.error.text;
  const uint64_t at[3] = {5, 499, 17};
  const Tensor few(one.data(), kBF16, {3}), few_d(tiny.data(), {3}), offsets(at, {3});
  plumbline_update_t part = UpdateOf(few, few, few_d);
  part.offsets = offsets.get();
  part.count = 500;
  part.optimizer = "accumulation";
  EXPECT_EQ(r.run->ObserveUpdate(r.update, 0, part, &r.error), PLUMBLINE_OK) << r.error.text;
  const auto all = r.Close(dir.path());
  ASSERT_EQ(all.size(), 2u);
  const v1::Update& whole = all[0].update();
  EXPECT_EQ(whole.config().optimizer(), "sgd");
  EXPECT_EQ(whole.config().lr(), 0.1);
  EXPECT_TRUE(std::isnan(whole.config().beta2()));
  EXPECT_EQ(whole.config().dtype(), v1::DTYPE_BF16);
  EXPECT_EQ(whole.summary().count(), 500u);
  EXPECT_EQ(whole.summary().lost(), 500u);
  EXPECT_EQ(whole.sample().before().shape(0), probes::kUpdateSamples);
  EXPECT_EQ(all[0].exercised(), v1::EXERCISED_YES);
  const v1::Update& sampled = all[1].update();
  EXPECT_FALSE(sampled.has_summary());
  EXPECT_EQ(Data<uint64_t>(sampled.sample().offsets()), std::vector<uint64_t>(at, at + 3));
  EXPECT_EQ(sampled.sample().intended().shape(0), 3);
  EXPECT_EQ(all[1].call(), 1u);
}

// A look requested in a step that is not due takes effect in this step and in the next ones.
TEST(Observe, ALookMakesTheOpenStepDue) {
  TempFolder dir;
  SparseRun sparse(dir.path(), PLUMBLINE_KIND_TENSOR, "w", "weight");
  const std::vector<float> values = Ramp(4096);
  const Tensor x(values.data(), {4096});
  plumbline_tensor_t given = PLUMBLINE_TENSOR_INIT;
  given.values = x.get();
  std::vector<int64_t> looked;
  constexpr int64_t kNoticed = 37, kSteps = 64;
  for (int64_t step = 0; step < kSteps; ++step) {
    ASSERT_EQ(sparse.run->StepBegin(step), PLUMBLINE_OK);
    if (step == kNoticed) {
      EXPECT_GT(sparse.due, static_cast<uint64_t>(step));
      EXPECT_EQ(sparse.run->Look(step, 3), PLUMBLINE_NOT_DUE);  // a budget of one byte per step: no
                                                                // bytes remain for looks
    }
    if (static_cast<uint64_t>(step) >= sparse.due) {
      looked.push_back(step);
      ASSERT_EQ(sparse.run->ObserveTensor(sparse.site, step, given, &sparse.error), PLUMBLINE_OK);
    }
    ASSERT_EQ(sparse.run->StepEnd(step), PLUMBLINE_OK);
  }
  EXPECT_EQ(std::count(looked.begin(), looked.end(), kNoticed), 0);
  ASSERT_EQ(sparse.run->Close(20000, &sparse.error), PLUMBLINE_OK);
}

TEST(Observe, ALookIsSampledAndEndsByItself) {
  TempFolder dir;
  AgentOptions options = RecordOptions(dir.path());
  options.traffic_bytes = 100;  // a period of 16 steps and more, and 50 KB of looks
  auto run = *Run::Open(std::move(options));
  uint64_t due = 0;
  plumbline_error_t error{};
  plumbline_agent_site_t declared{
      sizeof(declared), PLUMBLINE_KIND_TENSOR, "w", "weight", 0, &due, nullptr, 0};
  void* site = nullptr;
  ASSERT_EQ(run->DeclareSite(declared, &site, &error), PLUMBLINE_OK);
  const std::vector<float> values = Ramp(4096);
  const Tensor x(values.data(), {4096});
  plumbline_tensor_t given = PLUMBLINE_TENSOR_INIT;
  given.values = x.get();
  for (int64_t step = 0; step < 64; ++step) {
    ASSERT_EQ(run->StepBegin(step), PLUMBLINE_OK);
    if (step == 33) {
      ASSERT_GT(due, 35u);
      EXPECT_EQ(run->Look(step, 3), PLUMBLINE_OK);
      EXPECT_EQ(due, 33u);
    }
    if (static_cast<uint64_t>(step) >= due) {
      ASSERT_EQ(run->ObserveTensor(static_cast<Site*>(site), step, given, &error), PLUMBLINE_OK);
    }
    ASSERT_EQ(run->StepEnd(step), PLUMBLINE_OK);
    if (step == 35) {
      EXPECT_GT(due, 36u);
    }
  }
  ASSERT_EQ(run->Close(20000, &error), PLUMBLINE_OK);
  std::vector<int64_t> sampled;
  for (const v1::Batch& b : ReadRecord(RecordPath(dir.path(), v1::ROLE_TRAINER, 0, 0))) {
    for (const v1::Evidence& e : b.evidence()) {
      if (e.tensor().has_sample()) sampled.push_back(e.step());
    }
  }
  for (const int64_t step : {33, 34, 35}) {
    EXPECT_EQ(std::count(sampled.begin(), sampled.end(), step), 1) << step;
  }
  EXPECT_EQ(std::count(sampled.begin(), sampled.end(), 36), 0);
}

// A site that is called only in steps in which nothing is due is observed once, and then like all
// others.
TEST(Observe, TheFirstCallOfASiteIsDue) {
  TempFolder dir;
  SparseRun sparse(dir.path(), PLUMBLINE_KIND_TENSOR, "w", "weight");
  const std::vector<float> values = Ramp(4096);
  const Tensor x(values.data(), {4096});
  plumbline_tensor_t given = PLUMBLINE_TENSOR_INIT;
  given.values = x.get();
  const auto declare = [&](int32_t kind, const char* op, uint64_t* due) {
    const plumbline_agent_site_t site{sizeof(site), kind, "late", op, 37, due, nullptr, 0};
    void* made = nullptr;
    EXPECT_EQ(sparse.run->DeclareSite(site, &made, &sparse.error), PLUMBLINE_OK);
    return static_cast<Site*>(made);
  };
  uint64_t late = 0, together = 0;
  Site* site = nullptr;
  for (int64_t step = 0; step < 48; ++step) {
    ASSERT_EQ(sparse.run->StepBegin(step), PLUMBLINE_OK);
    if (static_cast<uint64_t>(step) >= sparse.due) {
      ASSERT_EQ(sparse.run->ObserveTensor(sparse.site, step, given, &sparse.error), PLUMBLINE_OK);
    }
    if (step == 37) {
      site = declare(PLUMBLINE_KIND_TENSOR, "gradient", &late);
      declare(PLUMBLINE_KIND_REDUCTION, "sum", &together);
      EXPECT_GT(sparse.due, 41u);
      EXPECT_EQ(together, sparse.due) << "ranks measure it together";
    }
    if (step >= 37) {
      EXPECT_EQ(late <= static_cast<uint64_t>(step), step <= 41) << step;
    }
    if (step == 41) {
      ASSERT_EQ(sparse.run->ObserveTensor(site, step, given, &sparse.error), PLUMBLINE_OK);
    }
    ASSERT_EQ(sparse.run->StepEnd(step), PLUMBLINE_OK);
  }
  EXPECT_EQ(late, sparse.due);
  ASSERT_EQ(sparse.run->Close(20000, &sparse.error), PLUMBLINE_OK);
}

// All kinds share one running number per step. A scalar, here the second item, takes a number too
// but is sent in the row of its step, which has no order.
TEST(Observe, OrderIsThatOfTheTrainer) {
  TempFolder dir;
  Recorded r(dir.path());
  const std::vector<float> w = Ramp(10);
  const Tensor values(w.data(), {10});
  const plumbline_tensor_t tensor = TensorOf(values);
  plumbline_reduction_t reduction = PLUMBLINE_REDUCTION_INIT;
  for (int64_t step = 0; step < 2; ++step) {
    r.run->StepBegin(step);
    EXPECT_EQ(r.run->ObserveTensor(r.tensor, step, tensor, &r.error), PLUMBLINE_OK);
    EXPECT_EQ(r.run->Scalar(step, "loss", 1), PLUMBLINE_OK);
    uint64_t span = 0;
    EXPECT_EQ(r.run->SpanBegin(step, "forward", "forward", &span, &r.error), PLUMBLINE_OK);
    EXPECT_EQ(r.run->ObserveReduction(r.reduction, step, reduction, &r.error), PLUMBLINE_OK);
    EXPECT_EQ(r.run->SpanEnd(span, &r.error), PLUMBLINE_OK);
    r.run->StepEnd(step);
  }
  std::vector<std::pair<int64_t, uint64_t>> order;
  for (const v1::Evidence& e : r.Close(dir.path())) {
    if (!e.has_scalar()) order.emplace_back(e.step(), e.order());
  }
  EXPECT_EQ(order, (std::vector<std::pair<int64_t, uint64_t>>{
                       {0, 1}, {0, 3}, {0, 4}, {1, 1}, {1, 3}, {1, 4}}));
}

TEST(Observe, MistakesNameTheFieldAndAreCounted) {
  TempFolder dir;
  Recorded r(dir.path());
  const std::vector<float> w = Ramp(12);
  const std::vector<int32_t> whole = {1, 2, 3, 4};
  const uint64_t at[2] = {3, 90};
  const Tensor six(w.data(), {6}), twelve(w.data(), {3, 4}), integers(whole.data(), {4}),
      offsets(at, {2}), two(w.data(), {2}), absent;
  const auto expect = [&](plumbline_status_t status, const char* text) {
    EXPECT_EQ(status, PLUMBLINE_INVALID_ARGUMENT);
    EXPECT_THAT(r.error.text, HasSubstr(text));
  };
  plumbline_tensor_t tensor = PLUMBLINE_TENSOR_INIT;
  expect(r.run->ObserveTensor(r.tensor, 0, tensor, &r.error), "values: required");
  tensor = TensorOf(six);
  tensor.target_format = 77;
  expect(r.run->ObserveTensor(r.tensor, 0, tensor, &r.error), "target_format = 77");
  plumbline_reduction_t reduction = ReductionOf(six, twelve);
  expect(r.run->ObserveReduction(r.reduction, 0, reduction, &r.error), "output: expected as many");
  reduction = ReductionOf(six, absent);
  expect(r.run->ObserveReduction(r.reduction, 0, reduction, &r.error), "both or neither");
  reduction = ReductionOf(six, six);
  reduction.count = 7;
  expect(r.run->ObserveReduction(r.reduction, 0, reduction, &r.error), "7 elements");
  reduction.count = 0;
  reduction.op = 9;
  expect(r.run->ObserveReduction(r.reduction, 0, reduction, &r.error), "op = 9");
  reduction = ReductionOf(two, two);
  reduction.offsets = offsets.get();
  reduction.count = 90;
  expect(r.run->ObserveReduction(r.reduction, 0, reduction, &r.error), "found 90 at 1");
  reduction.group_rank = reduction.group_size = 4;
  expect(r.run->ObserveReduction(r.reduction, 0, reduction, &r.error), "group_rank = 4");
  plumbline_update_t update = UpdateOf(six, six, absent);
  expect(r.run->ObserveUpdate(r.update, 0, update, &r.error), "intended: required");
  update = UpdateOf(six, twelve, six);
  expect(r.run->ObserveUpdate(r.update, 0, update, &r.error), "after: expected the shape");
  update = UpdateOf(integers, integers, integers);
  expect(r.run->ObserveUpdate(r.update, 0, update, &r.error), "before: expected a floating type");
  plumbline_matmul_t matmul = PLUMBLINE_MATMUL_INIT;
  expect(r.run->ObserveMatmul(r.matmul, 0, matmul, &r.error), "a: expected a tensor");
  matmul.a = twelve.get();
  matmul.b = matmul.d = twelve.get();
  expect(r.run->ObserveMatmul(r.matmul, 0, matmul, &r.error),
         "b: expected [4, N], K as in a [3,4]");
  plumbline_logits_t logits = PLUMBLINE_LOGITS_INIT;
  expect(r.run->ObserveLogits(r.logits, 0, logits, &r.error), "train: expected a tensor");
  logits.train = twelve.get();
  logits.rollout = six.get();
  expect(r.run->ObserveLogits(r.logits, 0, logits, &r.error),
         "rollout: expected the shape of train");
  logits.rollout = twelve.get();
  logits.tokens = offsets.get();
  expect(r.run->ObserveLogits(r.logits, 0, logits, &r.error), "tokens: expected the rows of train");
  logits.tokens = nullptr;
  logits.mode = 3;
  expect(r.run->ObserveLogits(r.logits, 0, logits, &r.error), "mode = 3");
  logits.mode = 0;
  logits.temperature = 0;
  expect(r.run->ObserveLogits(r.logits, 0, logits, &r.error), "temperature: expected");
  EXPECT_TRUE(r.Close(dir.path()).empty());
  EXPECT_EQ(r.account.lost_by_cause.at("invalid"), 18u);
}

TEST(Observe, DeviceTensorsAreLossesNotMistakes) {
  TempFolder dir;
  Recorded r(dir.path());
  const std::vector<float> w = Ramp(6);
  const Tensor values(w.data(), {6});
  DLTensor device = *values.get();
  device.device.device_type = static_cast<decltype(device.device.device_type)>(PLUMBLINE_DL_CUDA);
  plumbline_reduction_t reduction = PLUMBLINE_REDUCTION_INIT;
  reduction.input = reduction.output = &device;
  EXPECT_EQ(r.run->ObserveReduction(r.reduction, 0, reduction, &r.error), PLUMBLINE_UNAVAILABLE);
  plumbline_logits_t logits = PLUMBLINE_LOGITS_INIT;
  logits.train = logits.rollout = &device;
  EXPECT_EQ(r.run->ObserveLogits(r.logits, 0, logits, &r.error), PLUMBLINE_UNAVAILABLE);
  EXPECT_TRUE(r.Close(dir.path()).empty());
  EXPECT_EQ(r.account.lost_by_cause.at("device-kernels-not-loaded"), 2u);
}

// More tensors in one step than the ring holds: some are dropped, all are counted.
TEST(Observe, AFullRingIsCounted) {
  TempFolder dir;
  Recorded r(dir.path(), 0, 1 << 18);
  const std::vector<float> w = Ramp(10'000);
  const Tensor values(w.data(), {10'000});
  const plumbline_tensor_t tensor = TensorOf(values);
  uint64_t calls = 0, dropped = 0;
  for (; calls < 200 || (dropped == 0 && calls < 100'000); ++calls) {
    const plumbline_status_t s = r.run->ObserveTensor(r.tensor, 0, tensor, &r.error);
    dropped += s == PLUMBLINE_DROPPED;
  }
  const auto all = r.Close(dir.path());
  ASSERT_GT(dropped, 0u);
  EXPECT_EQ(all.size() + dropped, calls);
  EXPECT_EQ(r.account.lost_by_cause.at("ring-full"), dropped);
}

TEST(Observe, DroppedSamplesAreCounted) {
  v1::Batch batch;
  for (int i = 0; i < 3; ++i) {
    v1::Evidence* e = batch.add_evidence();
    e->mutable_site()->set_layer("w");
    if (i == 0) e->mutable_tensor()->mutable_sample();
    if (i == 1) e->mutable_reduction()->mutable_sample();
    if (i == 2) e->mutable_update()->mutable_sample();
  }
  EXPECT_EQ(transport::Seal(batch).samples, 3u);
  DropSamples(&batch, "sample-queue");
  EXPECT_EQ(transport::Seal(batch).samples, 0u);
  EXPECT_EQ(batch.evidence(1).reduction().no_sample_reason(), "dropped: sample-queue");
  EXPECT_EQ(batch.losses(0).count(), 3u);
}

}  // namespace
}  // namespace plumbline::agent
