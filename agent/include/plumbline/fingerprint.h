// Finds the order and arithmetic of a sum. Included by plumbline/agent.h.
#ifndef PLUMBLINE_FINGERPRINT_H_
#define PLUMBLINE_FINGERPRINT_H_

#include <cstring>
#include <exception>
#include <functional>
#include <string>

#include "plumbline/tensors.h"

namespace plumbline {

// Adds a[0..n) (times b) with the function under test and returns the result. Values are exact in
// the input dtype. An exception ends the fingerprint.
using Sum = std::function<double(const double* a, const double* b, uint64_t n)>;

struct SumDescription {
  int32_t kind = PLUMBLINE_SUM_SUM;
  uint64_t n = 0;
  DLDataType input = {PLUMBLINE_DL_FLOAT, 32, 1};
  DLDataType output = {PLUMBLINE_DL_FLOAT, 32, 1};
  std::string name = "sum";
  uint64_t seed = 1;
  uint32_t samples = 0;  // 0: 250
};

// The result of plumbline_fingerprint, valid if `status` is PLUMBLINE_OK; otherwise `error` gives
// the reason.
struct FingerprintResult : plumbline_fingerprint_result_t {
  Status status = PLUMBLINE_DISABLED;
  std::string error = {};
  bool verified() const {
    return status == PLUMBLINE_OK && verdict == PLUMBLINE_FINGERPRINT_VERIFIED;
  }
};

namespace internal {

struct SumCall {
  const Sum* sum;
  std::string thrown;
};

inline int32_t CallSum(void* context, const double* a, const double* b, uint64_t n, uint32_t,
                       double* y) noexcept {
  auto* call = static_cast<SumCall*>(context);
  try {
    *y = (*call->sum)(a, b, n);
    return 0;
  } catch (const std::exception& e) {
    call->thrown = e.what();
  } catch (...) {
    call->thrown = "unknown exception";
  }
  return 1;
}

}  // namespace internal

// Calls plumbline_fingerprint. Throws nothing except std::bad_alloc.
inline FingerprintResult Fingerprint(const Sum& sum, const SumDescription& description) {
  FingerprintResult result;
  std::memset(static_cast<plumbline_fingerprint_result_t*>(&result), 0,
              sizeof(plumbline_fingerprint_result_t));
  result.size = sizeof(plumbline_fingerprint_result_t);
  internal::SumCall call{&sum, {}};
  plumbline_sum_t given = PLUMBLINE_SUM_INIT;
  given.kind = description.kind;
  given.n = description.n;
  given.input = description.input;
  given.output = description.output;
  given.sum = sum ? internal::CallSum : nullptr;
  given.context = &call;
  given.name = description.name.c_str();
  given.seed = description.seed;
  given.samples = description.samples;
  result.status = plumbline_fingerprint(&given, &result);
  if (result.status < 0) {
    result.error = plumbline_last_error();
    if (!call.thrown.empty()) result.error += ": " + call.thrown;
  }
  return result;
}

}  // namespace plumbline

#endif  // PLUMBLINE_FINGERPRINT_H_
