// Plumbline for C++ trainers: the C ABI (plumbline.h) with ownership. Header only.
//
//   plumbline::Run run({.run = "exp1", .server = "127.0.0.1:7433"});
//   plumbline::Site gate = run.RoutingSite("layers.3");
//   for (int64_t i = 0; i < steps; ++i) {
//     plumbline::Step step(run, i);
//     plumbline_routing_t call = PLUMBLINE_ROUTING_INIT;
//     ...
//     gate.ObserveRouting(call);      // one compare when not due
//     run.Scalar("loss", loss);
//   }
//
// A router in hand is checked without a run:
//
//   plumbline::RouterVerdict verdict = plumbline::CheckRouter(
//       [&](const float* logits, uint64_t seed, uint8_t* fates) { ... },   // [T,E] in, [T,E] out
//       {.tokens = T, .experts = E, .logits = logits, .sequence_id = ids, .position = positions});
//   if (verdict.verdict == PLUMBLINE_VERDICT_FINDING) puts(verdict.witness);
//
// No call throws or aborts; each returns a status (plumbline_last_error() has the text). A run that
// could not be opened is empty: its calls do nothing. Threads: as in plumbline.h.
#ifndef PLUMBLINE_AGENT_H_
#define PLUMBLINE_AGENT_H_

#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "plumbline/plumbline.h"

namespace plumbline {

using Status = plumbline_status_t;

// As plumbline_open_options_t; what is left at its default comes from the environment.
struct RunOptions {
  std::string run = {};
  std::string server = {};  // "host:port"
  std::string record = {};  // directory
  int32_t role = PLUMBLINE_ROLE_TRAINER;
  int32_t attempt = -1;
  int32_t rank = -1;
  int32_t world_size = -1;
  uint32_t every = 0;
  double budget = 0.0;
};

// A place that observations come from. Copyable; belongs to its run, stays safe to use after it.
class Site {
 public:
  Site() = default;
  explicit Site(plumbline_site_t* handle) : handle_(handle) {}

  bool Due() const { return handle_ != nullptr && plumbline_due(handle_) != 0; }

  Status ObserveRouting(const plumbline_routing_t& call) const {
    return Due() ? plumbline_observe_routing(handle_, &call) : Status{PLUMBLINE_NOT_DUE};
  }

  plumbline_site_t* handle() const { return handle_; }

 private:
  plumbline_site_t* handle_ = nullptr;
};

// One process's part in a training run; closes it at the end of its life.
class Run {
 public:
  static constexpr uint32_t kCloseTimeoutMs = 2000;

  Run() = default;
  explicit Run(const RunOptions& options) {
    auto text = [](const std::string& s) { return s.empty() ? nullptr : s.c_str(); };
    plumbline_open_options_t plain = PLUMBLINE_OPEN_OPTIONS_INIT;
    plain.role = options.role;
    plain.run = text(options.run);
    plain.server = text(options.server);
    plain.record = text(options.record);
    plain.attempt = options.attempt;
    plain.rank = options.rank;
    plain.world_size = options.world_size;
    plain.every = options.every;
    plain.budget = options.budget;
    status_ = plumbline_open(&plain, &handle_);
  }
  ~Run() { Close(); }
  Run(Run&& other) noexcept { *this = std::move(other); }
  Run& operator=(Run&& other) noexcept {
    if (this != &other) {
      Close();
      handle_ = std::exchange(other.handle_, nullptr);
      status_ = std::exchange(other.status_, Status{PLUMBLINE_DISABLED});
    }
    return *this;
  }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  // How opening went.
  Status status() const { return status_; }
  plumbline_run_t* handle() const { return handle_; }

  // The site for a router; an empty one (never due) when it cannot be had. Same layer, same site.
  Site RoutingSite(std::string_view layer, std::string_view op = {}) {
    plumbline_site_t* site = nullptr;
    if (handle_ != nullptr) {
      plumbline_site(handle_, PLUMBLINE_KIND_ROUTING, std::string(layer).c_str(),
                     std::string(op).c_str(), &site);
    }
    return Site(site);
  }

  Status StepBegin(int64_t step) {
    return handle_ != nullptr ? plumbline_step_begin(handle_, step) : Status{PLUMBLINE_DISABLED};
  }
  Status StepEnd() {
    return handle_ != nullptr ? plumbline_step_end(handle_) : Status{PLUMBLINE_DISABLED};
  }
  Status Scalar(const char* name, double value) {
    return handle_ != nullptr ? plumbline_scalar(handle_, name, value) : Status{PLUMBLINE_DISABLED};
  }
  Status Flush(uint32_t timeout_ms) {
    return handle_ != nullptr ? plumbline_flush(handle_, timeout_ms) : Status{PLUMBLINE_DISABLED};
  }
  Status Close(uint32_t timeout_ms = kCloseTimeoutMs) {
    plumbline_run_t* handle = std::exchange(handle_, nullptr);
    return handle != nullptr ? plumbline_close(handle, timeout_ms) : Status{PLUMBLINE_DISABLED};
  }

 private:
  plumbline_run_t* handle_ = nullptr;
  Status status_ = PLUMBLINE_DISABLED;
};

// A step from construction to destruction. The run must outlive it.
class Step {
 public:
  Step(Run& run, int64_t number) : run_(run), status_(run.StepBegin(number)) {}
  ~Step() {
    if (status_ == PLUMBLINE_OK) run_.StepEnd();
  }
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;

  Status status() const { return status_; }

 private:
  Run& run_;
  Status status_;
};

// A stage of the training loop ("forward", "checkpoint", ...) from construction to destruction.
class Span {
 public:
  explicit Span(Run& run, const char* kind, const char* name = nullptr) : run_(run.handle()) {
    status_ =
        run_ != nullptr ? plumbline_span_begin(run_, kind, name, &id_) : Status{PLUMBLINE_DISABLED};
  }
  ~Span() {
    if (id_ != 0) plumbline_span_end(run_, id_);
  }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

  Status status() const { return status_; }

 private:
  plumbline_run_t* run_;
  uint64_t id_ = 0;
  Status status_;
};

// ---- a router in hand --------------------------------------------------------------------------

// Runs the router on [T,E] logits in C order and fills fates [T,E]: 0 = the token did not choose
// the expert, 1 = chosen and kept, 2 = chosen and refused. `seed` is the same in every call: seed
// with it whatever is random. An exception ends the check.
using Router = std::function<void(const float* logits, uint64_t seed, uint8_t* fates)>;

// An ordinary batch to try it on. Sizes that do not fit tokens and experts are refused.
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

// plumbline_router_verdict_t, valid when `status` is PLUMBLINE_OK; `error` says why it is not.
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

// plumbline_check_router for float logits. Does not throw but for std::bad_alloc.
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

#endif  // PLUMBLINE_AGENT_H_
