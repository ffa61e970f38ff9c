// Tests the CUDA device table over stubs of driver and runtime: contexts, capture modes and errors
// of the trainer are restored after every call. Only a GPU can test that CUDA executes the
// requests: device_ring_gpu_test.cc.
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>

#include "kernels/device/table.h"
#include "tests/kernels/device/stub_driver.h"
#include "tests/kernels/device/stub_runtime.h"

namespace plumbline {
namespace {

StubDriver& Driver() {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  return *reinterpret_cast<plumbline_stub_driver_fn>(dlsym(library, "plumbline_stub_driver"))();
}

class CudaDevice : public ::testing::Test {
 protected:
  CudaDevice() {
    g_runtime = Runtime{};
    Driver() = StubDriver{};
  }
  // The thread's state is restored after every outcome of a call.
  ~CudaDevice() override {
    EXPECT_EQ(Current(), nullptr);
    EXPECT_EQ(g_runtime.mode, cudaStreamCaptureModeGlobal);
    EXPECT_EQ(g_runtime.last, cudaSuccess) << "an error of ours is still set";
  }
  void* Open() {
    void* device = nullptr;
    EXPECT_EQ(table_.open(0, &device, &error_), kDeviceOk) << error_.text;
    return device;
  }
  const DeviceTable& table_ = plumbline_device_table;
  GraphCall call_;
  DeviceError error_{};
};

TEST_F(CudaDevice, OpensADeviceThatIsInUseAndLoadsItsKernels) {
  void* device = Open();
  EXPECT_EQ(Driver().retained, 1);
  for (const char* kernel :
       {"LoadRoutingKernels", "LoadPackKernel", "LoadProductKernel", "LoadTensorStatsKernel",
        "LoadUpdateCheckKernel", "LoadGatherKernel", "LoadGraphKernels"}) {
    EXPECT_EQ(g_runtime.calls[kernel], 1) << kernel;
  }
  table_.close(device);
  EXPECT_EQ(Driver().retained, 0);
}

TEST_F(CudaDevice, MakesNoContextOnAnUnusedDevice) {
  void* device = nullptr;
  EXPECT_EQ(table_.open(1, &device, &error_), kDeviceFailed);
  EXPECT_THAT(error_.text, ::testing::HasSubstr("does not use device 1"));
  EXPECT_EQ(Driver().retained, 0);
  EXPECT_EQ(table_.open(2, &device, &error_), kDeviceFailed);
  EXPECT_EQ(device, nullptr);
}

TEST_F(CudaDevice, StatesThatThereIsNoDevice) {
  Driver().init_result = CUDA_ERROR_NO_DEVICE;
  void* device = nullptr;
  EXPECT_EQ(table_.open(0, &device, &error_), kDeviceFailed);
  EXPECT_STREQ(error_.text, "no CUDA device: no CUDA-capable device is detected");
}

TEST_F(CudaDevice, KernelsThatDoNotLoadGiveTheContextBack) {
  g_runtime.fail["LoadRoutingKernels"] = cudaErrorNoKernelImageForDevice;
  void* device = nullptr;
  EXPECT_EQ(table_.open(0, &device, &error_), kDeviceFailed);
  EXPECT_THAT(error_.text, ::testing::StartsWith("routing kernels: "));
  EXPECT_EQ(Driver().retained, 0);
}

// Makes each function of the table fail, one after another: each returns a status and CUDA's text,
// and leaves no error.
TEST_F(CudaDevice, EachErrorIsReadAwayAndReported) {
  void* device = Open();
  const ProductPlan product{};
  uint64_t id = 0;
  const BatchShape batch{0, 1, 1, 10, 20};
  const BatchMemory memory{&id, &id, &id, BatchWorkspace(batch)};
  const auto run = [&](DeviceBatchCall call) {
    return [&, call] { return call(device, &batch, &memory, nullptr, nullptr, &error_); };
  };
  RoutingPlan plan;
  plan.tokens = 1;
  plan.rule.experts = 8;
  TensorView view;
  GraphSlot slot;
  void* out = nullptr;
  const struct {
    const char* runtime;
    std::function<DeviceStatus()> call;
    DeviceStatus status;
  } cases[] = {
      {"cudaMalloc", [&] { return table_.allocate(device, 1, &out, &error_); }, kDeviceFailed},
      {"cudaHostRegister", [&] { return table_.pin(device, &id, 8, &out, &error_); },
       kDeviceFailed},
      {"cudaHostGetDevicePointer", [&] { return table_.pin(device, &id, 8, &out, &error_); },
       kDeviceFailed},
      {"cudaEventCreateWithFlags", [&] { return table_.make_event(device, &out, &error_); },
       kDeviceFailed},
      {"cudaStreamIsCapturing", [&] { return table_.stream_id(device, nullptr, &id, &error_); },
       kDeviceRefused},
      {"cudaStreamGetId", [&] { return table_.stream_id(device, nullptr, &id, &error_); },
       kDeviceRefused},
      {"LaunchRouting",
       [&] { return table_.measure(device, &plan, &id, 1000, nullptr, nullptr, &error_); },
       kDeviceFailed},
      {"LaunchProduct",
       [&] { return table_.gather_product(device, &product, nullptr, nullptr, &error_); },
       kDeviceFailed},
      {"LaunchTensorStats", run(table_.measure_tensors), kDeviceFailed},
      {"LaunchUpdateChecks", run(table_.check_updates), kDeviceFailed},
      {"LaunchGathers", run(table_.gather), kDeviceFailed},
      {"LaunchPack", [&] { return table_.copy(device, &view, nullptr, nullptr, &error_); },
       kDeviceFailed},
      {"cudaEventRecord", [&] { return table_.record_event(device, nullptr, nullptr, &error_); },
       kDeviceFailed},
      {"cudaEventQuery", [&] { return table_.event_passed(device, nullptr, &error_); },
       kDeviceFailed},
      {"cudaStreamCreateWithFlags",
       [&] { return table_.write_memory(device, &id, &id, 8, &error_); }, kDeviceFailed},
      {"cudaMemcpyAsync", [&] { return table_.write_memory(device, &id, &id, 8, &error_); },
       kDeviceFailed},
      {"cudaStreamSynchronize", [&] { return table_.write_memory(device, &id, &id, 8, &error_); },
       kDeviceFailed},
      {"cudaStreamDestroy", [&] { return table_.write_memory(device, &id, &id, 8, &error_); },
       kDeviceFailed},
      {"LaunchMove", [&] { return table_.set_slots(device, &slot, &slot, 1, nullptr, &error_); },
       kDeviceFailed},
      {"cudaMemsetAsync",
       [&] { return table_.set_slots(device, &slot, nullptr, 1, nullptr, &error_); },
       kDeviceFailed},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.runtime);
    EXPECT_EQ(c.call(), kDeviceOk) << error_.text;
    g_runtime.fail[c.runtime] = cudaErrorIllegalAddress;
    error_ = DeviceError{};
    EXPECT_EQ(c.call(), c.status);
    EXPECT_THAT(error_.text, ::testing::HasSubstr("error 700"));
    EXPECT_EQ(g_runtime.last, cudaSuccess);
    EXPECT_EQ(Current(), nullptr);
    g_runtime.fail.clear();
  }
  for (const char* name : {"cudaFree", "cudaHostUnregister", "cudaEventDestroy"}) {
    g_runtime.fail[name] = cudaErrorIllegalAddress;
  }
  table_.free_memory(device, nullptr);
  table_.unpin(device, nullptr);
  table_.destroy_event(device, nullptr);
  EXPECT_EQ(g_runtime.last, cudaSuccess);
  table_.close(device);
}

TEST_F(CudaDevice, AnEventThatHasNotPassedIsNoError) {
  void* device = Open();
  g_runtime.fail["cudaEventQuery"] = cudaErrorNotReady;
  EXPECT_EQ(table_.event_passed(device, nullptr, &error_), kDeviceNotYet);
  EXPECT_EQ(g_runtime.last, cudaSuccess);
  table_.close(device);
}

TEST_F(CudaDevice, TimersThatFailLeaveNothing) {
  void* device = Open();
  void* timer = nullptr;
  uint64_t ns = 0;
  g_runtime.fail["cudaEventCreateWithFlags"] = cudaErrorMemoryAllocation;
  EXPECT_EQ(table_.make_timer(device, &timer, &error_), kDeviceFailed);
  EXPECT_THAT(error_.text, ::testing::StartsWith("timer: "));
  g_runtime.fail.clear();
  ASSERT_EQ(table_.make_timer(device, &timer, &error_), kDeviceOk);
  EXPECT_EQ(table_.read_timer(device, timer, &ns, &error_), kDeviceOk);
  EXPECT_EQ(ns, 250'000u);
  g_runtime.fail["cudaEventElapsedTime"] = cudaErrorNotReady;
  EXPECT_EQ(table_.read_timer(device, timer, &ns, &error_), kDeviceFailed);
  g_runtime.fail.clear();
  const int destroyed = g_runtime.calls["cudaEventDestroy"];
  table_.destroy_timer(device, timer);
  EXPECT_EQ(g_runtime.calls["cudaEventDestroy"], destroyed + 2);
  table_.close(device);
}

TEST_F(CudaDevice, CapturesAreSeen) {
  void* device = Open();
  uint64_t id = 0;
  EXPECT_EQ(table_.stream_id(device, nullptr, &id, &error_), kDeviceOk);
  EXPECT_EQ(id, 42u);
  for (const auto status : {cudaStreamCaptureStatusActive, cudaStreamCaptureStatusInvalidated}) {
    g_runtime.capture = status;
    EXPECT_EQ(table_.stream_id(device, nullptr, &id, &error_), kDeviceCapturing);
  }
  g_runtime.capture = cudaStreamCaptureStatusNone;
  g_runtime.fail["cudaStreamIsCapturing"] = cudaErrorStreamCaptureImplicit;
  EXPECT_EQ(table_.stream_id(device, nullptr, &id, &error_), kDeviceCapturing);
  table_.close(device);
}

// A captured call needs a graph: a launch on any other stream would run once.
TEST_F(CudaDevice, CapturedCallsNeedACapture) {
  void* device = Open();
  const BatchShape batch{0, 1, 1, 10, 20};
  RoutingPlan plan;
  plan.tokens = 1;
  plan.rule.experts = 8;
  uint64_t id = 0;
  const std::map<std::string, std::function<DeviceStatus()>> calls = {
      {"", [&] { return table_.capture_id(device, nullptr, &id, &error_); }},
      {"CaptureTensorStats",
       [&] { return table_.capture_tensor(device, &batch, &plan, &call_, nullptr, &error_); }},
      {"CaptureUpdateChecks",
       [&] { return table_.capture_update(device, &batch, &plan, &call_, nullptr, &error_); }},
      {"CaptureRouting",
       [&] {
         return table_.capture_routing(device, &plan, &plan, 1000, &call_, nullptr, &error_);
       }},
      {"CaptureProduct",
       [&] { return table_.capture_product(device, 9, &call_, nullptr, &error_); }}};
  for (const auto& [launch, call] : calls) {
    SCOPED_TRACE(launch);
    for (const auto status : {cudaStreamCaptureStatusNone, cudaStreamCaptureStatusInvalidated}) {
      g_runtime.capture = status;
      EXPECT_EQ(call(), kDeviceRefused);
      EXPECT_THAT(error_.text, ::testing::HasSubstr("expected a stream that is being captured"));
    }
    g_runtime.fail["cudaStreamGetCaptureInfo"] = cudaErrorStreamCaptureImplicit;
    EXPECT_EQ(call(), kDeviceRefused);
    g_runtime.fail.clear();
    EXPECT_EQ(g_runtime.calls[launch], 0);
    g_runtime.capture = cudaStreamCaptureStatusActive;
    EXPECT_EQ(call(), kDeviceOk) << error_.text;
    if (launch.empty()) continue;
    EXPECT_EQ(g_runtime.calls[launch], 1);
    g_runtime.fail[launch] = cudaErrorIllegalAddress;
    EXPECT_EQ(call(), kDeviceFailed);
    EXPECT_THAT(error_.text, ::testing::HasSubstr("error 700"));
    EXPECT_EQ(g_runtime.last, cudaSuccess);
    g_runtime.fail.clear();
  }
  EXPECT_EQ(id, 17u);
  EXPECT_EQ(table_.capture_routing(device, &plan, &plan, 99, &call_, nullptr, &error_),
            kDeviceRefused);
  EXPECT_THAT(error_.text, ::testing::HasSubstr("workspace: too small"));
  table_.close(device);
}

// The end is reported once, for every outcome.
TEST_F(CudaDevice, AGraphsEndIsReported) {
  void* device = Open();
  int reported = 0;
  const auto gone = [](void* argument) { ++*static_cast<int*>(argument); };
  const auto watch = [&] { return table_.watch_graph(device, nullptr, gone, &reported, &error_); };
  EXPECT_EQ(watch(), kDeviceRefused) << "nothing is captured";
  EXPECT_EQ(reported, 1);
  g_runtime.capture = cudaStreamCaptureStatusActive;
  EXPECT_EQ(watch(), kDeviceOk) << error_.text;
  EXPECT_EQ(reported, 1);
  g_runtime.gone();
  EXPECT_EQ(reported, 2);
  for (const char* name : {"cudaUserObjectCreate", "cudaGraphRetainUserObject"}) {
    g_runtime.fail = {{name, cudaErrorInvalidValue}};
    reported = 0;
    EXPECT_EQ(watch(), kDeviceFailed) << name;
    EXPECT_EQ(reported, 1) << name;
  }
  g_runtime.fail.clear();
  Driver().context_gone = true;
  reported = 0;
  EXPECT_EQ(watch(), kDeviceFailed);
  EXPECT_EQ(reported, 1);
  table_.close(device);
}

TEST_F(CudaDevice, StreamsOfAnotherDeviceAreRefused) {
  void* device = Open();
  uint64_t id = 0;
  void* foreign = reinterpret_cast<void*>(uintptr_t{3});
  EXPECT_EQ(table_.stream_id(device, foreign, &id, &error_), kDeviceRefused);
  EXPECT_STREQ(error_.text, "cuda_stream: expected a stream of device 0, as the tensors");
  table_.close(device);
}

// Not an error: the streams of a green context belong to the device too.
TEST_F(CudaDevice, StreamsOfAnotherContextAreDistinguished) {
  void* device = Open();
  uint64_t id = 0;
  void* green = reinterpret_cast<void*>(uintptr_t{4});
  EXPECT_EQ(table_.stream_id(device, green, &id, &error_), kDeviceOtherContext);
  EXPECT_EQ(Current(), nullptr);
  table_.close(device);
}

TEST_F(CudaDevice, ASmallWorkspaceIsRefused) {
  void* device = Open();
  RoutingPlan plan;
  plan.tokens = 1;
  plan.rule.experts = 8;
  EXPECT_EQ(table_.measure(device, &plan, &plan, 99, nullptr, nullptr, &error_), kDeviceRefused);
  EXPECT_EQ(g_runtime.calls["LaunchRouting"], 0);
  const BatchShape batch{0, 1, 1, 10, 20};
  const BatchMemory memory{&plan, &plan, &plan, BatchWorkspace(batch) - 1};
  for (const DeviceBatchCall call : {table_.measure_tensors, table_.check_updates}) {
    EXPECT_EQ(call(device, &batch, &memory, nullptr, nullptr, &error_), kDeviceRefused);
    EXPECT_THAT(error_.text, ::testing::HasSubstr("workspace: too small for 276 bytes"));
  }
  for (const char* launch : {"LaunchTensorStats", "LaunchUpdateChecks"}) {
    EXPECT_EQ(g_runtime.calls[launch], 0);
  }
  table_.close(device);
}

// If the device is already current on the trainer's thread, nothing is pushed.
TEST_F(CudaDevice, ACurrentContextIsUsedAsItIs) {
  void* device = Open();
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  const auto push =
      reinterpret_cast<CUresult (*)(CUcontext)>(dlsym(library, "cuCtxPushCurrent_v2"));
  const auto pop = reinterpret_cast<CUresult (*)(CUcontext*)>(dlsym(library, "cuCtxPopCurrent_v2"));
  push(OfDevice0());
  Driver().context_gone = true;  // a push would fail
  void* memory = nullptr;
  EXPECT_EQ(table_.allocate(device, 1, &memory, &error_), kDeviceOk) << error_.text;
  EXPECT_EQ(Current(), OfDevice0());
  CUcontext context = nullptr;
  pop(&context);
  table_.close(device);
}

// After a device reset, a call to the runtime without a context would create one on device 0.
TEST_F(CudaDevice, WithoutItsContextTheRuntimeIsNotCalled) {
  void* device = Open();
  Driver().context_gone = true;
  g_runtime.calls.clear();
  uint64_t id = 0;
  void* out = nullptr;
  EXPECT_EQ(table_.allocate(device, 1, &out, &error_), kDeviceFailed);
  EXPECT_STREQ(error_.text, "the device's context is gone");
  EXPECT_EQ(table_.stream_id(device, nullptr, &id, &error_), kDeviceFailed);
  EXPECT_EQ(table_.event_passed(device, nullptr, &error_), kDeviceFailed);
  table_.free_memory(device, nullptr);
  table_.unpin(device, nullptr);
  table_.destroy_event(device, nullptr);
  EXPECT_TRUE(g_runtime.calls.empty());
  table_.close(device);
}

}  // namespace
}  // namespace plumbline
