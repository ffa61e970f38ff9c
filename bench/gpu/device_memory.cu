#include "base/half.h"
#include "bench/gpu/device_memory.h"

namespace plumbline::gpu {
namespace {

__device__ uint64_t Mix(uint64_t x) {  // splitmix64 (Steele, Lea, Flood 2014)
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

// Returns a normal value by Box-Muller, using only the cosine.
__device__ float Normal(uint64_t seed, int64_t i) {
  const uint64_t bits = Mix(seed * 0x9e3779b97f4a7c15ull + static_cast<uint64_t>(i));
  const float u = (static_cast<float>(bits >> 40) + 0.5f) * 0x1p-24f;
  const float v = static_cast<float>(bits & 0xffffff) * 0x1p-24f;
  return sqrtf(-2 * logf(u)) * cospif(2 * v);
}

__device__ void Store(float x, DType t, void* data, int64_t i) {
  switch (t) {
    case DType::kF32:
      static_cast<float*>(data)[i] = x;
      break;
    case DType::kF16:
      static_cast<uint16_t*>(data)[i] = FloatToF16(x);
      break;
    case DType::kBF16:
      static_cast<uint16_t*>(data)[i] = FloatToBF16(x);
      break;
    case DType::kE4M3:
      static_cast<uint8_t*>(data)[i] = FloatToE4M3(x);
      break;
    default:
      static_cast<uint8_t*>(data)[i] = FloatToE5M2(x);
  }
}

__global__ void FillKernel(void* data, DType t, int64_t n, float deviation, uint64_t seed) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x; i < n; i += step) {
    Store(deviation * Normal(seed, i), t, data, i);
  }
}

__global__ void SpinKernel(int64_t cycles) {
  const int64_t begin = clock64();
  while (clock64() - begin < cycles) {
  }
}

}  // namespace

void Spin(cudaStream_t stream) {
  SpinKernel<<<1, 1, 0, stream>>>(200000);
  Must(cudaGetLastError(), "spin");
}

void FillNormal(void* data, DType t, int64_t elements, float deviation, uint64_t seed) {
  if (elements == 0) return;
  FillKernel<<<8 * Processors(), 256>>>(data, t, elements, deviation, seed);
  Must(cudaGetLastError(), "fill");
  Must(cudaDeviceSynchronize(), "fill");
}

int Processors() {
  static const int processors = [] {
    int count = 0;
    Must(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, 0), "device");
    return count;
  }();
  return processors;
}

}  // namespace plumbline::gpu
