// Reductions from the C ABI's structs to a record: all ranks keep the same elements.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "probes/calls/measure.h"
#include "proto/evidence_samples.h"
#include "tests/agent/core/observed_run.h"

namespace plumbline::agent {
namespace {

using namespace testing;  // NOLINT: the tests' own

// Ranks that pass whole buffers keep the same elements, without communication; a rank that asks for
// the indices and gathers by itself keeps them too.
TEST(Observe, ReductionsOfAllRanksKeepTheSameElements) {
  constexpr int64_t kCount = 5000;
  std::vector<std::vector<uint32_t>> offsets;
  for (uint32_t rank = 0; rank < 3; ++rank) {
    TempFolder dir;
    Recorded r(dir.path(), rank);
    const std::vector<float> in = Ramp(kCount, static_cast<float>(rank + 1));
    const std::vector<float> out = Ramp(kCount, 6);
    r.run->StepBegin(9);
    uint64_t indices[PLUMBLINE_MAX_SAMPLES];
    uint32_t n = 0;
    EXPECT_EQ(
        r.run->SampleIndices(*r.reduction, 9, kCount, indices, PLUMBLINE_MAX_SAMPLES, &n, &r.error),
        PLUMBLINE_OK);
    EXPECT_EQ(n, probes::kReductionSamples);
    const Tensor whole_in(in.data(), {50, 100}), whole_out(out.data(), {kCount});
    plumbline_reduction_t call = ReductionOf(whole_in, whole_out);
    std::vector<float> few_in, few_out;
    for (uint32_t i = 0; i < n; ++i) {
      few_in.push_back(in[indices[i]]);
      few_out.push_back(out[indices[i]]);
    }
    const Tensor at(indices, {int64_t{n}}), in_at(few_in.data(), {int64_t{n}}),
        out_at(few_out.data(), {int64_t{n}});
    if (rank == 2) {
      call = ReductionOf(in_at, out_at);
      call.offsets = at.get();
      call.count = kCount;
    }
    call.group_size = 3;
    call.group_rank = rank;
    call.sequence = 4;
    call.sequence_known = 1;
    EXPECT_EQ(r.run->ObserveReduction(r.reduction, 9, call, &r.error), PLUMBLINE_OK)
        << r.error.text;
    r.run->StepEnd(9);
    const auto all = r.Close(dir.path(), rank);
    ASSERT_EQ(all.size(), 1u);
    const v1::Reduction& red = all[0].reduction();
    EXPECT_EQ(red.call().count(), 5000u);
    EXPECT_EQ(red.call().wire_dtype(), v1::DTYPE_F32);
    EXPECT_EQ(red.call().group_rank(), rank);
    EXPECT_TRUE(red.call().sequence_known());
    EXPECT_EQ(red.call().sequence(), 4u);
    const auto taken = Data<float>(red.sample().inputs());
    std::vector<uint32_t> where;
    if (rank == 2) {
      for (const uint64_t o : Data<uint64_t>(red.sample().offsets())) {
        where.push_back(static_cast<uint32_t>(o));
      }
    } else {
      where = Data<uint32_t>(red.sample().offsets());
    }
    ASSERT_EQ(where.size(), 1024u);
    ASSERT_EQ(std::set<uint32_t>(where.begin(), where.end()).size(), 1024u);
    for (size_t i = 0; i < where.size(); ++i) {
      ASSERT_EQ(taken[i], in[where[i]]);
      ASSERT_EQ(Data<float>(red.sample().output())[i], out[where[i]]);
    }
    offsets.push_back(where);
  }
  EXPECT_EQ(offsets[0], offsets[1]);
  EXPECT_EQ(offsets[0], offsets[2]);
}

TEST(Observe, AddendsOfARunningSumAreRows) {
  TempFolder dir;
  Recorded r(dir.path());
  const std::vector<float> addends = Ramp(3 * 2000);
  const std::vector<float> sum = Ramp(2000);
  const Tensor in(addends.data(), {3, 2000}), out(sum.data(), {2000});
  plumbline_reduction_t call = ReductionOf(in, out);
  call.algorithm = "accumulation";
  EXPECT_EQ(r.run->ObserveReduction(r.reduction, 0, call, &r.error), PLUMBLINE_OK) << r.error.text;
  const auto all = r.Close(dir.path());
  const v1::ReductionSample& s = all.at(0).reduction().sample();
  EXPECT_THAT(s.inputs().shape(), ::testing::ElementsAre(3, 1024));
  const auto at = Data<uint32_t>(s.offsets());
  const auto kept = Data<float>(s.inputs());
  for (size_t row = 0; row < 3; ++row) {
    for (size_t i = 0; i < at.size(); ++i) {
      ASSERT_EQ(kept[row * 1024 + i], addends[row * 2000 + at[i]]);
    }
  }
}

// In a reduction to one rank, or in a reduce-scatter part that goes to one rank, the other ranks
// have no result.
TEST(Observe, AnInputWithOffsetsNeedsNoResult) {
  TempFolder dir;
  Recorded r(dir.path());
  const std::vector<float> few = Ramp(4);
  const std::vector<uint32_t> at = {1, 5, 9, 4000};
  const Tensor in(few.data(), {4}), offsets(at.data(), {4});
  plumbline_reduction_t call = PLUMBLINE_REDUCTION_INIT;
  call.op = PLUMBLINE_REDUCE_SUM;
  call.input = in.get();
  call.count = 5000;
  EXPECT_EQ(r.run->ObserveReduction(r.reduction, 0, call, &r.error), PLUMBLINE_INVALID_ARGUMENT);
  EXPECT_THAT(r.error.text, ::testing::HasSubstr("expected both or neither"));
  call.offsets = offsets.get();
  EXPECT_EQ(r.run->ObserveReduction(r.reduction, 0, call, &r.error), PLUMBLINE_OK) << r.error.text;
  const auto all = r.Close(dir.path());
  const v1::ReductionSample& sample = all.at(0).reduction().sample();
  EXPECT_EQ(Data<float>(sample.inputs()), few);
  EXPECT_EQ(Data<uint32_t>(sample.offsets()), at);
  EXPECT_FALSE(sample.has_output());
}

TEST(Observe, CallAloneComparesRanks) {
  TempFolder dir;
  Recorded r(dir.path());
  plumbline_reduction_t call = PLUMBLINE_REDUCTION_INIT;
  call.op = PLUMBLINE_REDUCE_AVG;
  call.count = 1 << 20;
  call.wire_dtype = PLUMBLINE_DTYPE_BF16;
  const uint32_t ring[] = {1, 0};
  call.ring_order = ring;
  call.ring_size = 2;
  EXPECT_EQ(r.run->ObserveReduction(r.reduction, 0, call, &r.error), PLUMBLINE_OK) << r.error.text;
  const auto all = r.Close(dir.path());
  const v1::Reduction& red = all.at(0).reduction();
  EXPECT_FALSE(red.has_sample());
  EXPECT_EQ(red.call().count(), 1u << 20);
  EXPECT_EQ(red.call().wire_dtype(), v1::DTYPE_BF16);
  EXPECT_THAT(red.call().ring_order(), ::testing::ElementsAre(1, 0));
}

// If all steps of the run kept elements, it would exceed its budget: most steps keep none, and
// report this before the gather.
TEST(Observe, StepsWithoutSamplesGiveNoIndices) {
  TempFolder dir;
  AgentOptions options = RecordOptions(dir.path());
  options.traffic_bytes = 64;
  auto run = Run::Open(std::move(options));
  ASSERT_TRUE(run.ok());
  uint64_t due = 0;
  plumbline_error_t error{};
  plumbline_agent_site_t site{
      sizeof(site), PLUMBLINE_KIND_REDUCTION, "g", "sum", 0, &due, nullptr, 0};
  void* made = nullptr;
  ASSERT_EQ((*run)->DeclareSite(site, &made, &error), PLUMBLINE_OK);
  const std::vector<float> w = Ramp(5000);
  const Tensor values(w.data(), {5000});
  const plumbline_reduction_t call = ReductionOf(values, values);
  uint32_t with = 0, without = 0;
  for (int64_t step = 0; step < 60; ++step) {
    (*run)->StepBegin(step);
    uint64_t out[4];
    uint32_t n = 9;
    EXPECT_EQ((*run)->SampleIndices(*static_cast<Site*>(made), step, 5000, out, 4, &n, &error),
              PLUMBLINE_OK);
    (n == 0 ? without : with) += 1;
    EXPECT_EQ((*run)->ObserveReduction(static_cast<Site*>(made), step, call, &error), PLUMBLINE_OK);
    (*run)->StepEnd(step);
  }
  EXPECT_EQ((*run)->Close(20000, &error), PLUMBLINE_OK);
  EXPECT_EQ(with,
            8u + 3);  // 0 to 7, then 8, 16 and 32
  EXPECT_EQ(without, 60u - with);
  uint32_t samples = 0;
  for (const v1::Batch& b : ReadRecord(FirstRecord(dir.path()))) {
    for (const v1::Evidence& e : b.evidence()) samples += HasSample(e);
  }
  EXPECT_EQ(samples, with);
}

}  // namespace
}  // namespace plumbline::agent
