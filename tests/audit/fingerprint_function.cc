// A library for the tests of plumb fingerprint: a plain sum, one that crashes, one with wrong
// results.
#include <cmath>
#include <cstddef>
#include <cstdlib>

extern "C" {

__attribute__((visibility("default"))) float plain_sum(const float* a, size_t n) {
  float sum = 0;
  for (size_t i = 0; i < n; ++i) sum += a[i];
  return sum;
}

__attribute__((visibility("default"))) double fused_dot(const double* a, const double* b,
                                                        size_t n) {
  double sum = 0;
  for (size_t i = 0; i < n; ++i) sum = std::fma(a[i], b[i], sum);
  return sum;
}

__attribute__((visibility("default"))) float crashes(const float*, size_t) { abort(); }

__attribute__((visibility("default"))) float nothing(const float*, size_t) { return NAN; }
}
