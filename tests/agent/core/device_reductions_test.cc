// Reductions of CUDA tensors, through the agent and over the fake device: their sampled elements
// are gathered in stream order, and the record holds the same bytes as for host tensors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tests/agent/core/on_device.h"

namespace plumbline::agent {
namespace {

using namespace testing;  // NOLINT: the tests' own

// 0, 1, ... in the given shape.
template <typename T>
struct Buffer : PlacedTensor<T> {
  Buffer(std::vector<int64_t> dims, DLDataType dtype, DLDevice device)
      : PlacedTensor<T>(Count(dims), dims, dtype, device) {}
  static std::vector<T> Count(const std::vector<int64_t>& dims) {
    int64_t n = 1;
    for (const int64_t extent : dims) n *= extent;
    std::vector<T> out(static_cast<size_t>(n));
    for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<T>(i % 1009);
    return out;
  }
};

// One site for each form of input: the whole tensor, a whole tensor with few elements, three ranks
// at once, transposed, and elements at offsets.
struct Reductions {
  Reductions(TestRun* of, DLDevice device, uint32_t ranks = 3)
      : run(of),
        rows(ranks),
        whole(Shape{50, 100}, kPlacedFloat, device),
        few(Shape{5}, kPlacedFloat, device),
        stacked(Shape{ranks, 2000}, kPlacedFloat, device),
        reduced(Shape{2000}, kPlacedFloat, device),
        columns(Shape{100, 50}, kPlacedFloat, device),
        chosen(Shape{7}, kPlacedFloat, device),
        offsets(Shape{7}, kPlacedIndex, device) {
    columns.t.strides = transposed;
    for (const char* layer : {"whole", "few", "stacked", "columns", "chosen"})
      sites.push_back(DeclareSite(run, PLUMBLINE_KIND_REDUCTION, layer, "sum", &due));
  }

  std::vector<plumbline_status_t> At(int64_t step) {
    const std::pair<const DLTensor*, const DLTensor*> tensors[] = {{&whole.t, &whole.t},
                                                                   {&few.t, &few.t},
                                                                   {&stacked.t, &reduced.t},
                                                                   {&columns.t, &whole.t},
                                                                   {&chosen.t, &chosen.t}};
    std::vector<plumbline_status_t> statuses;
    for (size_t i = 0; i < sites.size(); ++i) {
      plumbline_reduction_t reduction = PLUMBLINE_REDUCTION_INIT;
      reduction.op = PLUMBLINE_REDUCE_SUM;
      reduction.input = tensors[i].first;
      reduction.output = tensors[i].second;
      if (i == 4) reduction.offsets = &offsets.t, reduction.count = 100;
      reduction.group = "data";
      reduction.group_size = rows;
      reduction.cuda_stream = Stream(3);
      statuses.push_back(run->run().ObserveReduction(sites[i], step, reduction, &error));
    }
    return statuses;
  }

  using Shape = std::vector<int64_t>;
  TestRun* run;
  uint32_t rows;
  int64_t transposed[2] = {1, 100};
  Buffer<float> whole, few, stacked, reduced, columns, chosen;
  Buffer<int64_t> offsets;
  uint64_t due = 0;
  std::vector<Site*> sites;
  plumbline_error_t error{};
};

std::vector<std::string> Recorded(DLDevice device, DLDevice offsets_on, uint32_t ranks = 3) {
  TempFolder dir;
  AgentOptions options = RecordOptions(dir.path());
  options.traffic_bytes = 40000;  // so that some steps are not sampled
  TestRun run(options);
  Reductions reductions(&run, device, ranks);
  reductions.offsets.t.device = offsets_on;
  return ItemsOfTwentySteps(&run, dir, &reductions, [&](int64_t /*step*/) {
    for (float& v : reductions.whole.values) v += 1;
  });
}

TEST_F(Device, ReductionsAreTheHostsByteForByte) {
  const auto host = Recorded({kDLCPU, 0}, {kDLCPU, 0});
  EXPECT_EQ(g_fake->calls("gather"), 0u);
  EXPECT_GE(host.size(), 100u);
  EXPECT_EQ(Recorded({kDLCUDA, 1}, {kDLCUDA, 1}), host);
  EXPECT_GT(g_fake->calls("gather"), 0u);
  EXPECT_EQ(Recorded({kDLCUDA, 1}, {kDLCPU, 0}), host);
  EXPECT_EQ(Held(), 0u);
}

// The rows of all ranks and the sum are gathered together, in launches of 23 rows.
TEST_F(Device, StackedRowsAreGatheredAtOnce) {
  for (const uint32_t ranks : {3u, 30u}) {
    SCOPED_TRACE(ranks);
    TempFolder dir;
    TestRun run(RecordOptions(dir.path()));
    Reductions reductions(&run, {kDLCUDA, 0}, ranks);
    const uint64_t before = g_fake->calls("gather");
    run.run().StepBegin(0);
    EXPECT_THAT(reductions.At(0), ::testing::Each(PLUMBLINE_OK)) << reductions.error.text;
    run.run().StepEnd(0);
    EXPECT_EQ(g_fake->calls("gather") - before, 4u) << "one a call; handed elements are copied";
    ASSERT_EQ(run.Close(), PLUMBLINE_OK);
    EXPECT_EQ(Recorded({kDLCUDA, 1}, {kDLCUDA, 1}, ranks),
              Recorded({kDLCPU, 0}, {kDLCPU, 0}, ranks));
  }
}

// The elements have the values that earlier kernels of the stream wrote.
TEST_F(Device, ReductionsComeInTheStreamsOrder) {
  TestRun run(RecordOptions(dir_.path()));
  Reductions reductions(&run, {kDLCUDA, 0});
  int found = 0;
  const std::vector<float> thousand(5, 1000);
  for (const v1::Evidence& e :
       ItemsOfAHeldStep(&run, dir_, &reductions, [&] { reductions.few.values.assign(5, 1000); })) {
    if (!e.has_reduction() || e.sample_size() != 5) continue;
    ++found;
    EXPECT_EQ(e.reduction().sample().output().data(),
              std::string(reinterpret_cast<const char*>(thousand.data()), 20));
  }
  EXPECT_EQ(found, 1);
}

// Offsets in device memory are checked after they are copied to the host.
TEST_F(Device, OffsetsOfADeviceThatAreBeyondTheCountAreCounted) {
  TestRun run(RecordOptions(dir_.path()));
  Reductions reductions(&run, {kDLCUDA, 0});
  reductions.offsets.values[3] = 100;
  run.run().StepBegin(0);
  EXPECT_THAT(reductions.At(0), ::testing::Each(PLUMBLINE_OK));
  run.run().StepEnd(0);
  ASSERT_EQ(run.Close(), PLUMBLINE_OK);
  const Account account = AccountOf(Batches(dir_));
  EXPECT_EQ(account.lost_by_cause.at("invalid"), 1u);
  EXPECT_EQ(account.items, 4u);
}

TEST_F(Device, AGatherThatFailsIsCounted) {
  g_fake->fail("gather", 0, kDeviceFailed, false);
  TestRun run(RecordOptions(dir_.path()));
  Reductions reductions(&run, {kDLCUDA, 0});
  run.run().StepBegin(0);
  EXPECT_THAT(reductions.At(0), ::testing::Each(PLUMBLINE_DROPPED));
  run.run().StepEnd(0);
  ASSERT_EQ(run.Close(), PLUMBLINE_OK);
  EXPECT_EQ(AccountOf(Batches(dir_)).lost_by_cause.at("device-error"), 5u);
}

// A call whose input and output are on different devices is refused.
TEST_F(Device, AReductionLiesOnOneDevice) {
  TestRun run(RecordOptions(dir_.path()));
  Reductions reductions(&run, {kDLCUDA, 0});
  reductions.reduced.t.device = {kDLCPU, 0};
  run.run().StepBegin(0);
  EXPECT_EQ(reductions.At(0)[2], PLUMBLINE_INVALID_ARGUMENT);
  EXPECT_THAT(reductions.error.text, ::testing::HasSubstr("output: expected on device 0"));
  run.run().StepEnd(0);
  ASSERT_EQ(run.Close(), PLUMBLINE_OK);
}

}  // namespace
}  // namespace plumbline::agent
