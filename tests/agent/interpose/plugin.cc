// A plugin that multiplies with the BLAS it is linked with: returns 2 x 3 times the weight.
#include "vendor.h"

extern "C" __attribute__((visibility("default"))) float Multiply() {
  const int one = 1;
  const float two = 2, three = 3, alpha = 1, beta = 0;
  float result = 0;
  sgemm_("N", "N", &one, &one, &one, &alpha, &two, &one, &three, &one, &beta, &result, &one);
  return result;
}
