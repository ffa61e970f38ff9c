// Compares rows of logits on a device with the CPU reference. Needs a GPU.
#include "tests/kernels/device/gpu.h"

#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <vector>

#if defined(PLUMBLINE_HAVE_CUDA)
#include "kernels/logits/pair_device.h"
#include "tests/kernels/logits/rows.h"
#endif

namespace plumbline {
namespace {

#if defined(PLUMBLINE_HAVE_CUDA)

// Device memory with a copy of host memory.
class DeviceMemory {
 public:
  DeviceMemory(const void* from, size_t bytes) {
    EXPECT_EQ(cudaMalloc(&memory_, bytes + 64), cudaSuccess);
    if (from == nullptr) return;
    EXPECT_EQ(cudaMemcpy(memory_, from, bytes, cudaMemcpyHostToDevice), cudaSuccess);
  }
  ~DeviceMemory() { cudaFree(memory_); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  void* get() const { return memory_; }

 private:
  void* memory_ = nullptr;
};

// The errors of f32 lanes and their exponentials.
constexpr RowBounds kOnDevice = {.lse = {2e-6, 2e-6},
                                 .entropy = {1e-5, 1e-5},
                                 .varentropy = {1e-4, 1e-5},
                                 .logprob = {1e-5, 1e-5},
                                 .kl = {2e-3, 1e-9},
                                 .max_abs_delta = {1e-3, 4e-6},
                                 .slope = {1e-4, 0},
                                 .fit_r2 = {1e-4, 0},
                                 .js = {2e-3, 1e-9},
                                 .total_variation = {1e-3, 1e-7},
                                 .downward = {1e-5, 0},
                                 .log_moments = {1e-3, 2e-6}};

struct Shape {
  int64_t rows, vocabulary;
  DType dtype;
  bool masked;
  int64_t offset;  // elements before the first row, for unaligned addresses
};

void Compare(const Shape& shape) {
  SCOPED_TRACE(std::to_string(shape.rows) + " rows of " + std::to_string(shape.vocabulary));
  std::mt19937_64 random(static_cast<uint64_t>(shape.vocabulary));
  std::normal_distribution<float> normal;
  const int64_t n = shape.rows * shape.vocabulary + shape.offset;
  std::vector<float> z[2];
  for (int64_t i = 0; i < n; ++i) {
    z[1].push_back(3 * normal(random) + 10);
    z[0].push_back(z[1].back() + 0.05f * normal(random));
    if (shape.masked && i % 5 == 0) z[0].back() = z[1].back() = -INFINITY;
  }
  if (shape.rows > 2) z[0][static_cast<size_t>(shape.offset + shape.vocabulary + 1)] = NAN;
  const DType dtype[2] = {shape.dtype, DType::kF32};
  std::vector<int64_t> tokens;
  for (int64_t i = 0; i < shape.rows; ++i) tokens.push_back(i * 31 % shape.vocabulary);
  LogitInput host, device;
  std::vector<std::byte> packed[2];
  std::vector<std::unique_ptr<DeviceMemory>> memory;
  for (int s = 0; s < 2; ++s) {
    packed[s] = Packed(z[s], dtype[s]);
    memory.push_back(std::make_unique<DeviceMemory>(packed[s].data(), packed[s].size()));
    TensorView& view = s == 0 ? host.train : host.rollout;
    const auto skipped = static_cast<size_t>(shape.offset) * DTypeSize(dtype[s]);
    view = TensorView::Dense(packed[s].data() + skipped, dtype[s], shape.rows, shape.vocabulary);
    TensorView& there = s == 0 ? device.train : device.rollout;
    there = view;
    there.data = static_cast<std::byte*>(memory.back()->get()) + skipped;
    there.device = 0;
  }
  host.tokens = TensorView::Dense(tokens.data(), DType::kI64, shape.rows);
  memory.push_back(std::make_unique<DeviceMemory>(tokens.data(), tokens.size() * 8));
  device.tokens = host.tokens;
  device.tokens.data = memory.back()->get();
  device.tokens.device = 0;
  ASSERT_TRUE(CheckLogits(device).ok());
  const DeviceMemory out(nullptr, tokens.size() * sizeof(LogitRow));
  LogitLaunch launch;
  launch.count = shape.rows;
  launch.detailed = shape.rows / 2;
  ASSERT_EQ(LaunchLogits(PlanLogits(device), launch, 7, static_cast<LogitRow*>(out.get()), nullptr),
            0);
  std::vector<LogitRow> found(tokens.size());
  ASSERT_EQ(
      cudaMemcpy(found.data(), out.get(), found.size() * sizeof(LogitRow), cudaMemcpyDeviceToHost),
      cudaSuccess);
  for (int64_t i = 0; i < shape.rows; ++i) {
    SCOPED_TRACE(i);
    const bool detailed = i < launch.detailed;
    const LogitRow& row = found[static_cast<size_t>(i)];
    const LogitRow expected = MeasureLogitRow(PlanLogits(host), i, detailed);
    ExpectCounts(row, expected);
    ExpectFigures(row, expected, kOnDevice);
    if (detailed) ExpectDetails(row, expected, kOnDevice);
  }
}

TEST(LogitGpu, AgreesWithTheCpuReference) {
  for (const int64_t vocabulary : {1, 2, 7, 100, 1000, 4096, 4097, 32000, 151936}) {
    if (vocabulary > Cases(151936)) continue;
    for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
      Compare({5, vocabulary, dtype, vocabulary > 50, vocabulary % 3});
    }
  }
  Compare({300, 500, DType::kBF16, false, 0});
}

#else

TEST(LogitGpu, NeedsAGpu) {
  GTEST_SKIP() << "needs an NVIDIA GPU, and a build with device kernels";
}

#endif

}  // namespace
}  // namespace plumbline

int main(int argc, char** argv) { return plumbline::RunOnGpu(argc, argv); }
