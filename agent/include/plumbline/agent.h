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
// No call throws or aborts; each returns a status (plumbline_last_error() has the text). A run that
// could not be opened is empty: its calls do nothing. Threads: as in plumbline.h.
#ifndef PLUMBLINE_AGENT_H_
#define PLUMBLINE_AGENT_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

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

}  // namespace plumbline

#endif  // PLUMBLINE_AGENT_H_
