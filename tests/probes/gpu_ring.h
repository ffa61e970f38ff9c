// The ring with the real library, for the tests that need a GPU. The library is opened as the agent
// opens it, so that its CUDA runtime is separate from that of the program, which is the trainer's.
#pragma once

#include <gtest/gtest.h>

#if defined(PLUMBLINE_HAVE_CUDA)
#include <cuda_runtime.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>

#include "probes/device/ring.h"
#include "tests/kernels/device/device_library.h"

namespace plumbline::probes {

inline const DeviceTable* g_table = nullptr;

// The library that the agent would open.
inline void LoadTable() {
  std::string why;
  g_table = OpenDeviceLibrary(&why);
  if (g_table != nullptr) return;
  std::printf("failed: %s\n", why.c_str());
  std::exit(1);
}

// Does the work of the drain thread until the oldest call is available.
inline bool WaitFront(DeviceRing* ring, DeviceItem* item) {
  for (int tries = 0; tries < 20000; ++tries) {
    if (ring->Front(item)) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

// Blocks a stream until Release, without blocking other streams.
class Blocker {
 public:
  explicit Blocker(cudaStream_t stream) {
    auto* held = new std::shared_ptr<std::atomic<bool>>(go_);  // owned by the stream, which may
                                                               // outlive this object
    EXPECT_EQ(cudaLaunchHostFunc(stream, Wait, held), cudaSuccess);
  }
  void Release() { *go_ = true; }
  ~Blocker() { Release(); }
  Blocker(const Blocker&) = delete;
  Blocker& operator=(const Blocker&) = delete;

 private:
  static void Wait(void* held) {
    const std::unique_ptr<std::shared_ptr<std::atomic<bool>>> go(
        static_cast<std::shared_ptr<std::atomic<bool>>*>(held));
    while (!**go) std::this_thread::yield();
  }
  std::shared_ptr<std::atomic<bool>> go_ = std::make_shared<std::atomic<bool>>(false);
};

class GpuRing : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(cudaFree(nullptr), cudaSuccess);  // the trainer uses device 0
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
    DeviceError error{};
    ring_ = DeviceRing::Open(g_table, 0, {}, &error);
    ASSERT_NE(ring_, nullptr) << error.text;
  }
  void TearDown() override {
    cudaStreamSynchronize(stream_);
    DeviceItem item;
    while (ring_->Front(&item)) ring_->Pop();
    ring_.reset();
    cudaStreamDestroy(stream_);
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  }
  DeviceOutcome Observe(const RoutingCall& call, void* stream, bool sampled = true) {
    bool prepared = false;
    return ring_->Observe(call, stream, {nullptr, 0, 0, sampled}, &prepared, &error_);
  }
  // A tensor or an update.
  template <typename Call>
  DeviceOutcome Observe(const Call& call, const MeasureOptions& options, void* stream) {
    bool prepared = false;
    return ring_->Observe(call, options, stream, {nullptr, 0, 0, options.sampled}, &prepared,
                          &error_);
  }
  void Take() {
    DeviceItem item;
    ASSERT_TRUE(WaitFront(ring_.get(), &item));
    EXPECT_TRUE(item.measured) << item.why.text;
    ring_->Pop();
  }

  cudaStream_t stream_ = nullptr;
  std::unique_ptr<DeviceRing> ring_;
  DeviceError error_{};
};

}  // namespace plumbline::probes
#endif
