// Tests libplumbline_cuda.so over a stub of the driver: the drivers that it accepts, its message
// about others, and that its kernels and launches reach the driver without the toolkit's runtime.
#include <cuda.h>
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/device/table.h"
#include "tests/kernels/device/device_library.h"
#include "tests/kernels/device/stub_driver.h"

namespace plumbline {
namespace {

using ::testing::ExitedWithCode;
using ::testing::HasSubstr;

StubDriver& Stub() {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  return *reinterpret_cast<plumbline_stub_driver_fn>(dlsym(library, "plumbline_stub_driver"))();
}

// The driver is examined once per process, so each test is a separate process.
class DriverDeathTest : public ::testing::Test {
 protected:
  DriverDeathTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }

  // Prints the result of opening device 0, and ends the process.
  template <typename SetUp>
  [[noreturn]] static void Report(SetUp set_up) {
    set_up(Stub());
    std::string why;
    const DeviceTable* table = OpenDeviceLibrary(&why);
    DeviceError error{};
    void* device = nullptr;
    if (table == nullptr) {
      std::fprintf(stderr, "not loaded: %s\n", why.c_str());
    } else if (table->open(0, &device, &error) == kDeviceOk) {
      std::fprintf(stderr, "opened\n");
    } else {
      std::fprintf(stderr, "%s\n", error.text);
    }
    std::_Exit(0);
  }
};

TEST_F(DriverDeathTest, DriversFromTwelveOnAreTaken) {
  for (const int version : {12000, 12020, 12040, 13000, 14010}) {
    EXPECT_EXIT(Report([&](StubDriver& s) { s.version = version; }), ExitedWithCode(0), "^opened")
        << version;
  }
}

TEST_F(DriverDeathTest, AnOlderOneIsNamedNextToWhatIsNeeded) {
  EXPECT_EXIT(Report([](StubDriver& s) { s.version = 11080; }), ExitedWithCode(0),
              "driver is too old: it supports CUDA 11.8, and 12.0 or newer is needed .driver "
              "525.60 or newer");
}

TEST_F(DriverDeathTest, AFunctionThatIsMissingIsNamed) {
  EXPECT_EXIT(Report([](StubDriver& s) { s.missing = "cuLibraryLoadData"; }), ExitedWithCode(0),
              "the CUDA driver, for CUDA 13.0, has no cuLibraryLoadData");
  EXPECT_EXIT(Report([](StubDriver& s) { s.missing = "cuFuncLoad"; }), ExitedWithCode(0), "^opened")
      << "one that is not needed";
}

TEST_F(DriverDeathTest, CodeThatADriverDoesNotTakeIsReportedWithBothVersions) {
  const auto refuse = [](StubDriver& s) {
    s.version = 12020;
    s.fail["cuLibraryLoadData"] = 200;
  };
  EXPECT_EXIT(Report(refuse), ExitedWithCode(0),
              "routing kernels: driver error .compiled by CUDA 1[0-9.]*; the driver supports CUDA "
              "12.2.");
}

class DriverTest : public ::testing::Test {
 protected:
  DriverTest() {
    std::string why;
    table_ = OpenDeviceLibrary(&why);
    if (table_ == nullptr) {
      ADD_FAILURE() << why;
      std::abort();
    }
    Stub() = StubDriver{};
    EXPECT_EQ(table_->open(0, &device_, &error_), kDeviceOk) << error_.text;
  }
  // Another thread may be capturing meanwhile, also while kernels are loaded.
  ~DriverTest() override {
    table_->close(device_);
    EXPECT_EQ(Stub().unsafe, 0);
  }

  const DeviceTable* table_ = nullptr;
  void* device_ = nullptr;
  DeviceError error_{};
};

// Each file's code is loaded once per process, and each kernel when a device is opened.
TEST_F(DriverTest, KernelsAreLoadedWhenADeviceIsOpened) {
  const int loaded = Stub().calls["cuFuncLoad"];
  EXPECT_GT(loaded, 10);
  EXPECT_EQ(Stub().calls["cuFuncGetAttribute"], loaded);
  EXPECT_TRUE(Stub().launches.empty());
  void* again = nullptr;
  const int files = Stub().calls["cuLibraryLoadData"];
  ASSERT_EQ(table_->open(0, &again, &error_), kDeviceOk) << error_.text;
  EXPECT_EQ(Stub().calls["cuLibraryLoadData"], files);
  EXPECT_EQ(Stub().calls["cuFuncLoad"], 2 * loaded);
  table_->close(again);
}

TEST_F(DriverTest, ALaunchReachesTheDriver) {
  std::vector<double> values(64);
  const TensorView view = [&] {
    TensorView v = TensorView::Dense(values.data(), DType::kF64, 8, 8);
    std::swap(v.stride[0], v.stride[1]);  // not dense: copied by a kernel
    return v;
  }();
  std::vector<double> to(64);
  void* stream = reinterpret_cast<void*>(uintptr_t{8});
  ASSERT_EQ(table_->copy(device_, &view, to.data(), stream, &error_), kDeviceOk) << error_.text;
  ASSERT_EQ(Stub().launches.size(), 1u);
  const StubLaunch& launch = Stub().launches[0];
  EXPECT_THAT(launch.kernel, HasSubstr("PackKernel"));
  EXPECT_EQ(launch.grid, 1u);
  EXPECT_EQ(launch.block, 256u);
  EXPECT_EQ(launch.stream, stream);
  EXPECT_EQ(launch.first_argument, values.data());
  // An error is reported once, and not by the next call.
  Stub().fail["cuLaunchKernel"] = 700;
  EXPECT_EQ(table_->copy(device_, &view, to.data(), stream, &error_), kDeviceFailed);
  EXPECT_STREQ(error_.text, "copy: driver error");
  Stub().fail.clear();
  EXPECT_EQ(table_->copy(device_, &view, to.data(), stream, &error_), kDeviceOk);
}

// A tensor, an update or a gather is one launch with its items as arguments; more launches only if
// the arguments have no space.
TEST_F(DriverTest, ACallIsOneLaunch) {
  alignas(256) static std::byte staging[65536], workspace[65536];
  void* stream = reinterpret_cast<void*>(uintptr_t{8});
  const struct {
    const char* kernel;
    DeviceBatchCall call;
    int most;
    uint64_t item_bytes;
  } kinds[] = {
      {"TensorStatsKernel", table_->measure_tensors, kTensorsOfLaunch, sizeof(TensorItem)},
      {"UpdateCheckKernel", table_->check_updates, kUpdatesOfLaunch, sizeof(UpdateItem)},
      {"GatherKernel", table_->gather, kGathersOfLaunch, sizeof(GatherItem)},
  };
  for (const auto& kind : kinds) {
    SCOPED_TRACE(kind.kernel);
    for (const int items : {1, kind.most, kind.most + 1, 2 * kind.most + 1}) {
      const BatchShape shape{0, items, 0, static_cast<uint64_t>(items) * kind.item_bytes, 64};
      const BatchMemory memory{staging, staging, workspace, sizeof(workspace)};
      SampledPart sampled{};
      Stub().launches.clear();
      ASSERT_EQ(kind.call(device_, &shape, &memory, &sampled, stream, &error_), kDeviceOk)
          << error_.text;
      ASSERT_EQ(Stub().launches.size(), static_cast<size_t>((items + kind.most - 1) / kind.most));
      for (const StubLaunch& launch : Stub().launches) {
        EXPECT_THAT(launch.kernel, HasSubstr(kind.kernel));
        EXPECT_EQ(launch.stream, stream);
      }
    }
  }
}

// A replay of a tensor's, an update's or a product's call is one launch, whether its step is due or
// not: the graph holds no other.
TEST_F(DriverTest, ACapturedCallIsOneLaunch) {
  Stub().capturing = true;
  GraphSlot slot;
  uint64_t words[2] = {};
  uint32_t arrived = 0;
  const GraphCall call{&slot, &words[0], &arrived, &words[1]};
  alignas(256) static std::byte workspace[16384];
  void* stream = reinterpret_cast<void*>(uintptr_t{8});
  for (const int64_t work : {0, 1, 1 << 20}) {
    const BatchShape shape{0, 1, work, 512, 1024};
    const std::pair<const char*, std::function<DeviceStatus()>> calls[] = {
        {"TensorStatsKernel",
         [&] {
           return table_->capture_tensor(device_, &shape, workspace, &call, stream, &error_);
         }},
        {"UpdateCheckKernel",
         [&] {
           return table_->capture_update(device_, &shape, workspace, &call, stream, &error_);
         }},
        {"GraphProductKernel",
         [&] { return table_->capture_product(device_, work, &call, stream, &error_); }},
    };
    for (const auto& [kernel, capture] : calls) {
      SCOPED_TRACE(kernel);
      Stub().launches.clear();
      ASSERT_EQ(capture(), kDeviceOk) << error_.text;
      ASSERT_EQ(Stub().launches.size(), 1u);
      EXPECT_THAT(Stub().launches[0].kernel, HasSubstr(kernel));
      EXPECT_GE(Stub().launches[0].grid, 1u);
      EXPECT_EQ(Stub().launches[0].stream, stream);
    }
  }
}

// While streams are captured, a device is prepared and a call is captured: kernels are loaded,
// memory is allocated and written, without calls that would invalidate a capture.
TEST_F(DriverTest, ADeviceIsGotReadyWithinACapture) {
  Stub().capturing = true;
  void* device = nullptr;
  ASSERT_EQ(table_->open(0, &device, &error_), kDeviceOk) << error_.text;
  EXPECT_GT(Stub().calls["cuFuncLoad"], 10);
  void* memory = nullptr;
  void* alias = nullptr;
  void* event = nullptr;
  void* timer = nullptr;
  alignas(256) static std::byte pages[4096];
  ASSERT_EQ(table_->pin(device, pages, sizeof(pages), &alias, &error_), kDeviceOk);
  ASSERT_EQ(table_->make_event(device, &event, &error_), kDeviceOk);
  ASSERT_EQ(table_->make_timer(device, &timer, &error_), kDeviceOk);
  ASSERT_EQ(table_->allocate(device, 4096, &memory, &error_), kDeviceOk) << error_.text;
  const auto* bytes = static_cast<const std::byte*>(memory);
  EXPECT_TRUE(std::all_of(bytes, bytes + 4096, [](std::byte b) { return b == std::byte{0}; }));
  ASSERT_EQ(table_->write_memory(device, memory, pages, 64, &error_), kDeviceOk) << error_.text;
  void* stream = reinterpret_cast<void*>(uintptr_t{8});
  const BatchShape shape{0, 1, 1, 512, 1024};
  GraphSlot slot;
  const GraphCall call{&slot, nullptr, nullptr, nullptr};
  ASSERT_EQ(table_->capture_tensor(device, &shape, memory, &call, stream, &error_), kDeviceOk);
  EXPECT_EQ(Stub().spoiled, 0);
  table_->destroy_event(device, event);
  table_->destroy_timer(device, timer);
  table_->free_memory(device, memory);
  table_->unpin(device, pages);
  table_->close(device);
}

// From the first call on, the thread's mode is set before any driver call, especially before the
// context is retained, even if the device is not used or its kernels do not load.
TEST_F(DriverTest, TheModeIsSetBeforeAnythingElse) {
  void* device = nullptr;
  Stub() = StubDriver{};
  Stub().initialised = false;  // as before the trainer's first call: no capture yet
  ASSERT_EQ(table_->open(0, &device, &error_), kDeviceOk) << error_.text;
  EXPECT_EQ(Stub().unsafe, 0);
  EXPECT_EQ(Stub().retained, 1);
  table_->close(device);
  EXPECT_EQ(Stub().retained, 0);
  EXPECT_EQ(table_->open(1, &device, &error_), kDeviceFailed) << "no context of device 1 is active";
  Stub().fail = {{"cuFuncLoad", 200}};
  EXPECT_EQ(table_->open(0, &device, &error_), kDeviceFailed);
  EXPECT_EQ(Stub().retained, 0);
  Stub().fail.clear();
  EXPECT_EQ(Stub().unsafe, 0);
}

// If the driver needs a context for the mode, it is set with the context.
TEST_F(DriverTest, AModeThatNeedsAContextIsSetWithIt) {
  Stub().mode_needs_context = true;
  uint64_t id = 0;
  EXPECT_EQ(table_->stream_id(device_, nullptr, &id, &error_), kDeviceOk) << error_.text;
  EXPECT_LE(std::exchange(Stub().unsafe, 0), 2) << "what makes the context current";
  Stub().mode_needs_context = false;
  EXPECT_EQ(table_->stream_id(device_, nullptr, &id, &error_), kDeviceOk);
  EXPECT_EQ(Stub().unsafe, 0) << "and was put back: it is set and put back again";
}

// If the driver still refuses, the capture is reported as the cause.
TEST_F(DriverTest, WhatACaptureForbidsIsNoFaultOfTheDevice) {
  for (const char* refused : {"cuFuncLoad", "cuKernelGetFunction"}) {
    Stub().fail = {{refused, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED}};
    void* device = nullptr;
    EXPECT_EQ(table_->open(0, &device, &error_), kDeviceCapturing) << refused;
    EXPECT_THAT(error_.text, HasSubstr("routing kernels"));
  }
  for (const char* refused : {"cuMemAlloc", "cuStreamCreate", "cuStreamSynchronize"}) {
    Stub().fail = {{refused, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT}};
    void* memory = nullptr;
    EXPECT_EQ(table_->allocate(device_, 64, &memory, &error_), kDeviceCapturing) << refused;
  }
  Stub().fail.clear();
}

// The stub behaves like CUDA here: memory, events, captures.
TEST_F(DriverTest, TheRestReachesTheDriver) {
  void* memory = nullptr;
  const char text[] = "sixteen bytes...";
  ASSERT_EQ(table_->allocate(device_, 16, &memory, &error_), kDeviceOk) << error_.text;
  ASSERT_EQ(table_->write_memory(device_, memory, text, 16, &error_), kDeviceOk) << error_.text;
  EXPECT_EQ(std::memcmp(memory, text, 16), 0);
  table_->free_memory(device_, memory);
  void* alias = nullptr;
  char pages[64];
  ASSERT_EQ(table_->pin(device_, pages, 64, &alias, &error_), kDeviceOk) << error_.text;
  EXPECT_EQ(alias, pages);
  table_->unpin(device_, pages);
  void* event = nullptr;
  ASSERT_EQ(table_->make_event(device_, &event, &error_), kDeviceOk);
  ASSERT_EQ(table_->record_event(device_, event, nullptr, &error_), kDeviceOk);
  EXPECT_EQ(table_->event_passed(device_, event, &error_), kDeviceOk);
  Stub().fail["cuEventQuery"] = 600;
  EXPECT_EQ(table_->event_passed(device_, event, &error_), kDeviceNotYet);
  Stub().fail.clear();
  table_->destroy_event(device_, event);

  void* timer = nullptr;
  uint64_t ns = 0;
  ASSERT_EQ(table_->make_timer(device_, &timer, &error_), kDeviceOk) << error_.text;
  EXPECT_EQ(table_->mark_timer(device_, timer, 0, nullptr, &error_), kDeviceOk);
  EXPECT_EQ(table_->mark_timer(device_, timer, 1, nullptr, &error_), kDeviceOk);
  EXPECT_EQ(table_->read_timer(device_, timer, &ns, &error_), kDeviceOk);
  EXPECT_EQ(ns, 500'000u);
  table_->destroy_timer(device_, timer);

  uint64_t id = 0;
  EXPECT_EQ(table_->stream_id(device_, nullptr, &id, &error_), kDeviceOk) << error_.text;
  EXPECT_EQ(id, 42u);
  EXPECT_EQ(table_->capture_id(device_, nullptr, &id, &error_), kDeviceRefused);
  Stub().capturing = true;
  EXPECT_EQ(table_->stream_id(device_, nullptr, &id, &error_), kDeviceCapturing);
  EXPECT_EQ(table_->capture_id(device_, nullptr, &id, &error_), kDeviceOk) << error_.text;
  EXPECT_EQ(id, 17u);
  int reported = 0;
  const auto gone = [](void* argument) { ++*static_cast<int*>(argument); };
  EXPECT_EQ(table_->watch_graph(device_, nullptr, gone, &reported, &error_), kDeviceOk);
  EXPECT_EQ(reported, 1);
}

}  // namespace
}  // namespace plumbline
