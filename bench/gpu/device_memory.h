// Functions shared by the GPU programs: device memory with values, and the time of a launch
// measured with events of its own stream.
#pragma once

#include <benchmark/benchmark.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "base/dtype.h"

namespace plumbline::gpu {

// If a call failed, prints the error and ends the program: a figure after a failed call would be
// wrong.
inline void Must(cudaError_t code, const char* what) {
  if (code == cudaSuccess) return;
  std::fprintf(stderr, "failed: %s: %s\n", what, cudaGetErrorString(code));
  std::exit(1);
}

// Memory of device 0, freed with the object.
class DeviceMemory {
 public:
  explicit DeviceMemory(size_t bytes) : bytes_(bytes) {
    Must(cudaMalloc(&data_, bytes), "device memory");
  }
  ~DeviceMemory() { cudaFree(data_); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  void* data() const { return data_; }
  std::byte* at(size_t byte) const { return static_cast<std::byte*>(data_) + byte; }
  size_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  size_t bytes_;
};

// Pinned memory of the host.
class PinnedMemory {
 public:
  explicit PinnedMemory(size_t bytes) { Must(cudaMallocHost(&data_, bytes), "pinned memory"); }
  ~PinnedMemory() { cudaFreeHost(data_); }
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;
  void* data() const { return data_; }

 private:
  void* data_ = nullptr;
};

// Fills with independent normal values of mean 0, the same for the same seed, and waits for them.
// `t` is f32, f16, bf16, e4m3 or e5m2.
void FillNormal(void* data, DType t, int64_t elements, float deviation, uint64_t seed);

int Processors();  // returns the number of multiprocessors of device 0

// Keeps the stream busy for about 100 us, so that work enqueued meanwhile runs without a gap.
void Spin(cudaStream_t stream);

// Times launch(cudaStream_t) -> int, 0 or a cudaError_t. The state must use manual time. `bytes`
// are what one launch must move. Only the device's time counts, not the host's time to enqueue.
template <typename Launch>
void TimeLaunches(benchmark::State& state, int64_t bytes, Launch launch) {
  cudaStream_t stream = nullptr;
  cudaEvent_t begin = nullptr, end = nullptr;
  Must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
  Must(cudaEventCreate(&begin), "event");
  Must(cudaEventCreate(&end), "event");
  for (int i = 0; i < 3; ++i) {
    Must(static_cast<cudaError_t>(launch(stream)), "launch");
    Must(cudaStreamSynchronize(stream), "warming up");
  }
  for (auto _ : state) {
    float milliseconds = 0;
    Spin(stream);
    Must(cudaEventRecord(begin, stream), "event");
    Must(static_cast<cudaError_t>(launch(stream)), "launch");
    Must(cudaEventRecord(end, stream), "event");
    Must(cudaEventSynchronize(end), "measured work");
    Must(cudaEventElapsedTime(&milliseconds, begin, end), "time");
    state.SetIterationTime(static_cast<double>(milliseconds) * 1e-3);
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * bytes);
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  cudaStreamDestroy(stream);
}

}  // namespace plumbline::gpu
