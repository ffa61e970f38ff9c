// Measures a call of a library that does nothing: prints one line "NAME NANOSECONDS" per function.
// interpose_bench.py compiles it twice, as the library (-DLIBRARY) and as the caller, and runs it
// bare and with libplumb_interpose.so.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

extern "C" {
void sgemm_(const char*, const char*, const int*, const int*, const int*, const float*,
            const float*, const int*, const float*, const int*, const float*, float*, const int*);
int ncclAllReduce(const void*, void*, size_t, int, int, void*, void*);
int cublasGemmEx(void*, int, int, int, int, int, const void*, const void*, int, int, const void*,
                 int, int, const void*, void*, int, int, int, int);
}

#ifdef LIBRARY
extern "C" {
void sgemm_(const char*, const char*, const int*, const int*, const int*, const float*,
            const float*, const int*, const float*, const int*, const float*, float*, const int*) {}
int ncclAllReduce(const void*, void*, size_t, int, int, void*, void*) { return 0; }
int cublasGemmEx(void*, int, int, int, int, int, const void*, const void*, int, int, const void*,
                 int, int, const void*, void*, int, int, int, int) {
  return 0;
}
}
#else
namespace {

constexpr int kCalls = 1'000'000, kRounds = 11;

// Returns the median nanoseconds of a call over the rounds.
template <typename Function>
double Median(Function call) {
  std::vector<double> times;
  for (int round = 0; round < kRounds; ++round) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < kCalls; ++i) call();
    times.push_back(
        std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count() /
        kCalls);
  }
  std::nth_element(times.begin(), times.begin() + kRounds / 2, times.end());
  return times[kRounds / 2];
}

}  // namespace

int main() {
  const int n = 8;
  const float one = 1;
  float data[64] = {};
  int handle = 0;
  std::printf("sgemm_ %.3f\n", Median([&] {
                sgemm_("N", "N", &n, &n, &n, &one, data, &n, data, &n, &one, data, &n);
              }));
  std::printf("ncclAllReduce %.3f\n",
              Median([&] { ncclAllReduce(data, data, 64, 7, 0, &handle, nullptr); }));
  std::printf("cublasGemmEx %.3f\n", Median([&] {
                cublasGemmEx(&handle, 0, 0, n, n, n, &one, data, 0, n, data, 0, n, &one, data, 0, n,
                             68, 0);
              }));
}
#endif
