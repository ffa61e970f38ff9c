// Tests several GPUs in one process: the result for each equals that of a separate trace.
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "analysis/timeline/timeline.h"

namespace plumbline::timeline {
namespace {

// Adds work of about `each` ns at random places on one device, launched by its own thread.
void AddWork(std::mt19937_64* rng, uint8_t device, int64_t each, Columns* columns) {
  for (int i = 0; i < 50; ++i) {
    GpuWork work;
    work.start = static_cast<int64_t>((*rng)() % 1'000'000'000);
    work.end = work.start + each + static_cast<int64_t>((*rng)() % 1000);
    work.device = device;
    work.correlation = static_cast<uint32_t>(columns->launches.size()) + 1;
    columns->gpu.push_back(work);
    columns->launches.push_back({work.start - 100, 50, work.correlation, device, true});
  }
}

std::vector<std::string> NamesOf(const Devices& devices) {
  std::vector<std::string> names;
  for (const OfDevice& device : devices.kept) names.push_back(device.name);
  return names;
}

TEST(Devices, EachIsReducedAsIfItWereAlone) {
  std::mt19937_64 rng(3);
  for (int round = 0; round < 20; ++round) {
    Columns both, alone[2];
    both.devices = {"0", "1"};
    for (Columns* columns : {&both, &alone[0], &alone[1]}) columns->names = {"k"};
    for (const uint8_t device : {uint8_t{0}, uint8_t{1}}) {
      const size_t before = both.gpu.size(), launches = both.launches.size();
      AddWork(&rng, device, 5'000'000, &both);
      alone[device].gpu.assign(both.gpu.begin() + static_cast<ptrdiff_t>(before), both.gpu.end());
      alone[device].launches.assign(both.launches.begin() + static_cast<ptrdiff_t>(launches),
                                    both.launches.end());
    }
    Devices devices = ByDevice(both);
    ASSERT_EQ(NamesOf(devices), (std::vector<std::string>{"", "1"}));
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(Reduce(&devices.kept[i].columns).DebugString(), Reduce(&alone[i]).DebugString());
      EXPECT_EQ(devices.kept[i].columns.launches.size(), 50u);
    }
  }
}

TEST(Devices, TheMainOneIsTheLowestThatWorksAndStrayWorkIsLeftOut) {
  std::mt19937_64 rng(4);
  Columns columns;
  columns.names = {"k"};
  columns.devices = {"10", "2", "0"};
  AddWork(&rng, 0, 5'000'000, &columns);
  AddWork(&rng, 1, 4'000'000, &columns);
  AddWork(&rng, 2, 1000, &columns);
  const Devices devices = ByDevice(columns);
  EXPECT_EQ(NamesOf(devices), (std::vector<std::string>{"", "10"}));
  EXPECT_EQ(devices.kept[0].columns.gpu[0].device, 1);
  EXPECT_EQ(devices.left_out, std::vector<std::string>{"0"});
}

TEST(Devices, OneIsLeftAsItIs) {
  Columns columns;
  columns.names = {"k"};
  columns.launches.push_back({1, 1, 9, 0, true});
  const Devices devices = ByDevice(columns);
  ASSERT_EQ(devices.kept.size(), 1u);
  EXPECT_EQ(devices.kept[0].name, "");
  EXPECT_EQ(devices.kept[0].columns.launches.size(), 1u);
}

}  // namespace
}  // namespace plumbline::timeline
