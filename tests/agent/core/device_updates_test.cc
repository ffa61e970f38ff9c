// Updates of sampled elements in device memory, through the agent and over the fake: they are
// copied in stream order, and the record holds the same bytes as for host tensors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/agent/core/on_device.h"

namespace plumbline::agent {
namespace {

using namespace testing;  // NOLINT: the tests' own

constexpr int64_t kElements = 9;
constexpr uint64_t kCount = 100;  // of the whole tensor

// Two sites: an update of three tensors, some of them strided, and one of six.
struct HandedUpdates {
  HandedUpdates(TestRun* of, DLDevice device, DLDevice offsets_on) : run(of) {
    for (float by : {1.0f, 1.5f, 1.25f, 0.5f, 2.0f, 2.5f}) {
      std::vector<float> values(2 * kElements);
      for (size_t i = 0; i < values.size(); ++i) values[i] = by * static_cast<float>(i + 1);
      tensors.push_back(std::make_unique<PlacedTensor<float>>(
          values, std::vector<int64_t>{kElements}, kPlacedFloat, device));
    }
    tensors[2]->t.strides = every_second;
    offsets = std::make_unique<PlacedTensor<int64_t>>(
        std::vector<int64_t>{3, 1, 4, 15, 92, 65, 35, 89, 79}, std::vector<int64_t>{kElements},
        kPlacedIndex, offsets_on);
    few = DeclareSite(run, PLUMBLINE_KIND_UPDATE, "few", "", &due);
    all = DeclareSite(run, PLUMBLINE_KIND_UPDATE, "all", "", &due);
  }

  std::vector<plumbline_status_t> At(int64_t step) {
    plumbline_update_t update = PLUMBLINE_UPDATE_INIT;
    update.before = &tensors[0]->t;
    update.after = &tensors[1]->t;
    update.intended = &tensors[2]->t;
    update.offsets = &offsets->t;
    update.count = kCount;
    update.optimizer = "adam";
    update.cuda_stream = Stream(3);
    std::vector<plumbline_status_t> statuses = {
        run->run().ObserveUpdate(few, step, update, &error)};
    update.gradient = &tensors[3]->t;
    update.moment_before = &tensors[4]->t;
    update.moment_after = &tensors[5]->t;
    statuses.push_back(run->run().ObserveUpdate(all, step, update, &error));
    return statuses;
  }

  TestRun* run;
  int64_t every_second[1] = {2};
  std::vector<std::unique_ptr<PlacedTensor<float>>> tensors;
  std::unique_ptr<PlacedTensor<int64_t>> offsets;
  uint64_t due = 0;
  Site *few, *all;
  plumbline_error_t error{};
};

std::vector<std::string> Recorded(DLDevice device, DLDevice offsets_on) {
  TempFolder dir;
  AgentOptions options = RecordOptions(dir.path());
  options.traffic_bytes = 250;  // so that some steps are not sampled
  TestRun run(options);
  HandedUpdates updates(&run, device, offsets_on);
  return ItemsOfTwentySteps(&run, dir, &updates, [&](int64_t step) {
    updates.tensors[1]->values[0] = static_cast<float>(step);
  });
}

TEST_F(Device, UpdatesOfHandedElementsAreTheHostsByteForByte) {
  const auto host = Recorded({kDLCPU, 0}, {kDLCPU, 0});
  EXPECT_EQ(g_fake->calls("copy"), 0u);
  EXPECT_EQ(host.size(), 40u);
  uint64_t with_sample = 0;
  for (const std::string& item : host) {
    v1::Evidence evidence;
    ASSERT_TRUE(evidence.ParseFromString(item));
    EXPECT_EQ(evidence.sample_size(), uint64_t{kElements});
    with_sample += evidence.update().has_sample();
  }
  EXPECT_GT(with_sample, 0u);
  EXPECT_LT(with_sample, 40u);
  EXPECT_EQ(Recorded({kDLCUDA, 1}, {kDLCUDA, 1}), host);
  const uint64_t copies = g_fake->calls("copy");
  EXPECT_EQ(copies, 40 + with_sample / 2 * (3 + 6)) << "offsets always, elements where kept";
  EXPECT_EQ(Recorded({kDLCUDA, 1}, {kDLCPU, 0}), host);
  EXPECT_EQ(g_fake->calls("copy"), copies + with_sample / 2 * (3 + 6));
  EXPECT_EQ(Held(), 0u);
}

// The elements have the values that earlier kernels of the stream wrote.
TEST_F(Device, HandedElementsComeInTheStreamsOrder) {
  TestRun run(RecordOptions(dir_.path()));
  HandedUpdates updates(&run, {kDLCUDA, 0}, {kDLCUDA, 0});
  const std::vector<float> thousand(2 * kElements, 1000);
  int found = 0;
  for (const v1::Evidence& e :
       ItemsOfAHeldStep(&run, dir_, &updates, [&] { updates.tensors[1]->values = thousand; })) {
    ++found;
    EXPECT_EQ(e.update().sample().after().data(),
              std::string(reinterpret_cast<const char*>(thousand.data()), kElements * 4));
  }
  EXPECT_EQ(found, 2);
}

// Host offsets are checked within the call, device offsets after they are copied to the host.
TEST_F(Device, HandedElementsBeyondTheCountAreCounted) {
  for (const bool on_host : {true, false}) {
    SCOPED_TRACE(on_host);
    TempFolder dir;
    TestRun run(RecordOptions(dir.path()));
    HandedUpdates updates(&run, {kDLCUDA, 0}, {on_host ? kDLCPU : kDLCUDA, 0});
    updates.offsets->values[5] = kCount;
    run.run().StepBegin(0);
    EXPECT_THAT(updates.At(0),
                ::testing::Each(on_host ? PLUMBLINE_INVALID_ARGUMENT : PLUMBLINE_OK));
    run.run().StepEnd(0);
    ASSERT_EQ(run.Close(), PLUMBLINE_OK);
    const Account account = AccountOf(Batches(dir));
    EXPECT_EQ(account.lost_by_cause.at("invalid"), 2u);
    EXPECT_EQ(account.items, 0u);
  }
}

TEST_F(Device, HandedElementsLieInOnePlace) {
  TestRun run(RecordOptions(dir_.path()));
  HandedUpdates updates(&run, {kDLCUDA, 0}, {kDLCUDA, 1});
  run.run().StepBegin(0);
  EXPECT_THAT(updates.At(0), ::testing::Each(PLUMBLINE_INVALID_ARGUMENT));
  EXPECT_THAT(updates.error.text, ::testing::HasSubstr("offsets: expected on device 0 as before"));
  run.run().StepEnd(0);
  ASSERT_EQ(run.Close(), PLUMBLINE_OK);
}

}  // namespace
}  // namespace plumbline::agent
