// Checks a router without a run. Included by plumbline/agent.h.
#ifndef PLUMBLINE_CHECK_ROUTER_H_
#define PLUMBLINE_CHECK_ROUTER_H_

#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <string>
#include <vector>

#include "plumbline/tensors.h"

namespace plumbline {

// ---- a router without a run ------------------------------------------------------------------

// Runs the router on [T,E] logits in C order and fills fates [T,E]: 0 = the token did not choose
// the expert, 1 = chosen and kept, 2 = chosen and refused. `seed` is the same in every call: seed
// all random numbers with it. An exception ends the check.
using Router = std::function<void(const float* logits, uint64_t seed, uint8_t* fates)>;

// An ordinary batch for the check. Sizes that do not match tokens and experts are refused.
struct RouterInputs {
  int64_t tokens = 0;                      // T
  int64_t experts = 0;                     // E
  std::vector<float> logits = {};          // [T,E] without NaN; -infinity masks an expert
  std::vector<int64_t> sequence_id = {};   // [T]; empty: all rows are one sequence
  std::vector<int64_t> position = {};      // [T]; empty: rows are in time order
  std::vector<uint8_t> padding_mask = {};  // [T]; empty: none
  std::vector<int64_t> rank = {};          // [T]; empty: one rank
  uint64_t seed = 1;
  uint32_t max_calls = 0;  // of the router; 0: 1000
};

// The verdict of plumbline_check_router, valid if `status` is PLUMBLINE_OK; otherwise `error` gives
// the reason.
struct RouterVerdict : plumbline_router_verdict_t {
  Status status = PLUMBLINE_DISABLED;
  std::string error = {};
};

namespace internal {

struct RouterCall {
  const Router* router;
  std::string thrown;
};

inline int32_t CallRouter(void* context, const DLTensor* logits, uint64_t seed,
                          uint8_t* fates) noexcept {
  auto* call = static_cast<RouterCall*>(context);
  try {
    (*call->router)(static_cast<const float*>(logits->data), seed, fates);
    return 0;
  } catch (const std::exception& e) {
    call->thrown = e.what();
  } catch (...) {
    call->thrown = "unknown exception";
  }
  return 1;
}

// A borrowed column of integers as a DLTensor.
class Column {
 public:
  template <typename T>
  Column(const std::vector<T>& values, uint8_t code)
      : extent_(static_cast<int64_t>(values.size())) {
    tensor_.data = const_cast<T*>(values.data());
    tensor_.device = {static_cast<decltype(tensor_.device.device_type)>(PLUMBLINE_DL_CPU), 0};
    tensor_.ndim = 1;
    tensor_.dtype = {code, static_cast<uint8_t>(8 * sizeof(T)), 1};
    tensor_.shape = &extent_;
  }
  Column(const Column&) = delete;
  Column& operator=(const Column&) = delete;
  const DLTensor* get() const { return extent_ > 0 ? &tensor_ : nullptr; }
  DLTensor* tensor() { return &tensor_; }

 private:
  int64_t extent_;
  DLTensor tensor_ = {};
};

}  // namespace internal

// Calls plumbline_check_router for float logits. Throws nothing except std::bad_alloc.
inline RouterVerdict CheckRouter(const Router& router, const RouterInputs& inputs) {
  RouterVerdict verdict;
  std::memset(static_cast<plumbline_router_verdict_t*>(&verdict), 0,
              sizeof(plumbline_router_verdict_t));
  verdict.size = sizeof(plumbline_router_verdict_t);
  const bool sized = inputs.tokens > 0 && inputs.experts > 0 &&
                     inputs.logits.size() / static_cast<size_t>(inputs.experts) ==
                         static_cast<size_t>(inputs.tokens) &&
                     inputs.logits.size() % static_cast<size_t>(inputs.experts) == 0;
  if (!router || !sized) {
    verdict.status = PLUMBLINE_INVALID_ARGUMENT;
    verdict.error = router ? "logits: expected tokens x experts numbers" : "the router is empty";
    return verdict;
  }
  internal::Column logits(inputs.logits, PLUMBLINE_DL_FLOAT);
  int64_t shape[2] = {inputs.tokens, inputs.experts};
  logits.tensor()->ndim = 2;
  logits.tensor()->shape = shape;
  const internal::Column sequence_id(inputs.sequence_id, PLUMBLINE_DL_INT);
  const internal::Column position(inputs.position, PLUMBLINE_DL_INT);
  const internal::Column padding_mask(inputs.padding_mask, PLUMBLINE_DL_UINT);
  const internal::Column rank(inputs.rank, PLUMBLINE_DL_INT);
  internal::RouterCall call{&router, {}};
  plumbline_router_check_t check = PLUMBLINE_ROUTER_CHECK_INIT;
  check.max_calls = inputs.max_calls;
  check.seed = inputs.seed;
  check.route = internal::CallRouter;
  check.context = &call;
  check.logits = logits.get();
  check.sequence_id = sequence_id.get();
  check.position = position.get();
  check.padding_mask = padding_mask.get();
  check.rank = rank.get();
  verdict.status = plumbline_check_router(&check, &verdict);
  if (verdict.status < 0) {
    verdict.error = plumbline_last_error();
    if (!call.thrown.empty()) verdict.error += ": " + call.thrown;
  }
  return verdict;
}

}  // namespace plumbline

#endif  // PLUMBLINE_CHECK_ROUTER_H_
