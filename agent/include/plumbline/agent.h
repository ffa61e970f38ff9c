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
// Tensors, updates and collectives. A Tensor borrows the memory it is given:
//
//   plumbline::Site state = run.TensorSite("layers.3.w", "weight");
//   plumbline::Site update = run.UpdateSite("layers.3.w");
//   plumbline::Site product = run.MatmulSite("layers.3.up");
//   plumbline::Site gradients = run.ReductionSite("gradients");
//   ...
//   state.ObserveTensor(plumbline::Tensor(w, {rows, columns}), {.role = "weight"});
//   if (update.Due()) {                                 // the intended change costs something
//     update.ObserveUpdate({.before = old_w, .after = new_w, .intended = delta},
//                          {.optimizer = "sgd", .lr = 0.1});
//   }
//   product.ObserveMatmul({.a = plumbline::Tensor(x, {T, K}), .b = plumbline::Tensor(w, {N, K}),
//                          .d = plumbline::Tensor(y, {T, N}), .weight = true});
//   plumbline::SampledReduction sums(gradients, plumbline::Tensor(g, {n}));    // before: in place
//   AllReduce(g, n);
//   sums.Done({.group_size = 8, .group_rank = rank});                          // after
//
// Check a router without a run:
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
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "plumbline/check_router.h"
#include "plumbline/fingerprint.h"
#include "plumbline/plumbline.h"
#include "plumbline/tensors.h"

namespace plumbline {

// Options as in plumbline_open_options_t. Fields with their default values come from the
// environment.
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
  std::string spool = {};  // directory; "off": none
  uint64_t spool_bytes = 0;
  bool redact = false;  // token and sequence ids are sent as keyed hashes
};

// A line of the trainer's source. As a default argument, Here() is the line of the caller: reports
// of findings name the line that first used a site or a series.
struct SourceLine {
  const char* file = nullptr;  // not known
  uint32_t line = 0;
#if defined(__GNUC__)
  static constexpr SourceLine Here(const char* file = __builtin_FILE(),
                                   uint32_t line = __builtin_LINE()) {
    return {file, line};
  }
#else
  static constexpr SourceLine Here() { return {}; }
#endif
};

// A place in the model where observations are made. Copyable. Belongs to its run, and is safe to
// use after the run's end.
class Site {
 public:
  Site() = default;
  explicit Site(plumbline_site_t* handle) : handle_(handle) {}

  bool Due() const { return handle_ != nullptr && plumbline_due(handle_) != 0; }

  Status ObserveRouting(const plumbline_routing_t& call) const {
    return Due() ? plumbline_observe_routing(handle_, &call) : Status{PLUMBLINE_NOT_DUE};
  }

  Status ObserveTensor(const Tensor& values, const TensorFacts& facts = {}) const {
    if (!Due()) return PLUMBLINE_NOT_DUE;
    plumbline_tensor_t call = PLUMBLINE_TENSOR_INIT;
    call.values = values.get();
    call.role = facts.role;
    call.replicas = facts.replicas;
    call.target_format = facts.target_format;
    return plumbline_observe_tensor(handle_, &call);
  }

  Status ObserveUpdate(const UpdateTensors& tensors, const UpdateFacts& facts = {}) const {
    if (!Due()) return PLUMBLINE_NOT_DUE;
    plumbline_update_t call = PLUMBLINE_UPDATE_INIT;
    call.before = tensors.before.get();
    call.after = tensors.after.get();
    call.intended = tensors.intended.get();
    call.gradient = tensors.gradient.get();
    call.moment_before = tensors.moment_before.get();
    call.moment_after = tensors.moment_after.get();
    call.offsets = tensors.offsets.get();
    call.count = tensors.count;
    call.optimizer = facts.optimizer;
    call.lr = facts.lr;
    call.beta2 = facts.beta2;
    call.eps = facts.eps;
    call.decay = facts.decay;
    call.eps_dtype = facts.eps_dtype;
    return plumbline_observe_update(handle_, &call);
  }

  Status ObserveMatmul(const MatmulTensors& tensors, const MatmulFacts& facts = {}) const {
    if (!Due()) return PLUMBLINE_NOT_DUE;
    plumbline_matmul_t call = PLUMBLINE_MATMUL_INIT;
    call.a = tensors.a.get();
    call.b = tensors.b.get();
    call.d = tensors.d.get();
    call.c = tensors.c.get();
    call.declared_accumulator = facts.declared_accumulator;
    call.input_format = facts.input_format;
    call.library = facts.library;
    call.scale = facts.scale;
    call.a_scale = tensors.a_scale.get();
    call.b_scale = tensors.b_scale.get();
    call.scale_format = facts.scale_format;
    call.output_rounding = facts.output_rounding;
    call.block = facts.block;
    call.a_tile = facts.a_tile;
    call.b_tile = facts.b_tile;
    if (!tensors.weight || call.b == nullptr || call.b->ndim != 2)
      return plumbline_observe_matmul(handle_, &call);
    int64_t shape[2] = {call.b->shape[1], call.b->shape[0]}, strides[2] = {1, call.b->shape[1]};
    DLTensor transposed = *call.b;
    transposed.shape = shape;
    transposed.strides = strides;
    call.b = &transposed;
    return plumbline_observe_matmul(handle_, &call);
  }

  Status ObserveLogits(const LogitsTensors& tensors, const LogitsFacts& facts = {}) const {
    if (!Due()) return PLUMBLINE_NOT_DUE;
    plumbline_logits_t call = PLUMBLINE_LOGITS_INIT;
    call.mode = facts.mode;
    call.train = tensors.train.get();
    call.rollout = tensors.rollout.get();
    call.tokens = tensors.tokens.get();
    call.allowed = tensors.allowed.get();
    call.temperature = facts.temperature;
    return plumbline_observe_logits(handle_, &call);
  }

  Status ObserveLogprobs(const LogprobsColumns& columns, const LogprobsFacts& facts = {}) const {
    if (!Due()) return PLUMBLINE_NOT_DUE;
    plumbline_logprobs_t call = PLUMBLINE_LOGPROBS_INIT;
    call.mode = facts.mode;
    call.tokens = columns.tokens.get();
    call.sequence_id = columns.sequence_id.get();
    call.position = columns.position.get();
    call.mask = columns.mask.get();
    call.rollout = columns.rollout.get();
    call.train = columns.train.get();
    call.rollout_entropy = columns.rollout_entropy.get();
    call.rollout_varentropy = columns.rollout_varentropy.get();
    call.train_entropy = columns.train_entropy.get();
    call.train_varentropy = columns.train_varentropy.get();
    call.versions = columns.versions.get();
    call.advantages = columns.advantages.get();
    call.turns = columns.turns.get();
    call.cached_tokens = columns.cached_tokens.get();
    call.t_start = columns.t_start.get();
    call.t_end = columns.t_end.get();
    call.behaviour = columns.behaviour.get();
    call.train_version = facts.train_version;
    call.top_k = facts.top_k;
    call.temperature = facts.temperature;
    call.top_p = facts.top_p;
    call.kept_share = facts.kept_share;
    call.rescore_k2 = facts.rescore_k2;
    call.selection = facts.selection;
    call.source = facts.source;
    call.worker = facts.worker;
    return plumbline_observe_logprobs(handle_, &call);
  }

  // Records the whole buffers of an operation that does not overwrite its input. For other
  // operations see SampledReduction.
  Status ObserveReduction(const Tensor& input, const Tensor& output,
                          const ReductionFacts& facts = {}) const {
    return Due() ? ObserveReduction(input, output, {}, 0, facts) : Status{PLUMBLINE_NOT_DUE};
  }
  // Records elements [m] at offsets [m] (u64) of a buffer of `count` elements.
  Status ObserveReduction(const Tensor& input, const Tensor& output, const Tensor& offsets,
                          uint64_t count, const ReductionFacts& facts) const {
    if (!Due()) return PLUMBLINE_NOT_DUE;
    plumbline_reduction_t call = PLUMBLINE_REDUCTION_INIT;
    call.op = facts.op;
    call.input = input.get();
    call.output = output.get();
    call.offsets = offsets.get();
    call.count = count;
    call.group = facts.group;
    call.algorithm = facts.algorithm;
    call.transport = facts.transport;
    call.group_size = facts.group_size;
    call.group_rank = facts.group_rank;
    call.sequence = facts.sequence < 0 ? 0 : static_cast<uint64_t>(facts.sequence);
    call.sequence_known = facts.sequence >= 0;
    call.wire_dtype = facts.wire_dtype;
    call.prescale = facts.prescale;
    call.postscale = facts.postscale;
    return plumbline_observe_reduction(handle_, &call);
  }

  plumbline_site_t* handle() const { return handle_; }

 private:
  plumbline_site_t* handle_ = nullptr;
};

// Observes a collective that works in place. Construct it before the operation, call Done after it.
// Gathers only the step's sampled elements, both times; does nothing if the site is not due. Host
// memory. `buffer` must exist until Done. Throws nothing except std::bad_alloc.
class SampledReduction {
 public:
  SampledReduction(const Site& site, const Tensor& buffer) : site_(site), buffer_(buffer) {
    if (!site_.Due() || buffer_.elements() <= 0) return;
    uint64_t at[PLUMBLINE_MAX_SAMPLES];
    uint32_t n = 0;
    plumbline_sample_indices(site_.handle(), static_cast<uint64_t>(buffer_.elements()), at,
                             PLUMBLINE_MAX_SAMPLES, &n);
    offsets_.assign(at, at + n);
    Gather(&input_);
  }

  Status Done(const ReductionFacts& facts = {}) {
    if (!site_.Due()) return PLUMBLINE_NOT_DUE;
    if (buffer_.elements() < 0) return site_.ObserveReduction(buffer_, buffer_, facts);  // refused
    const auto count = static_cast<uint64_t>(buffer_.elements());
    if (offsets_.empty()) return site_.ObserveReduction({}, {}, {}, count, facts);
    std::vector<unsigned char> output;
    Gather(&output);
    const auto m = static_cast<int64_t>(offsets_.size());
    return site_.ObserveReduction(Tensor(input_.data(), buffer_.type(), {m}),
                                  Tensor(output.data(), buffer_.type(), {m}),
                                  Tensor(offsets_.data(), {m}), count, facts);
  }

 private:
  void Gather(std::vector<unsigned char>* out) const {
    const size_t size = buffer_.type().bits / 8;
    out->resize(offsets_.size() * size);
    const auto* from = static_cast<const unsigned char*>(buffer_.data());
    for (size_t i = 0; i < offsets_.size(); ++i) {
      std::memcpy(out->data() + i * size, from + offsets_[i] * size, size);
    }
  }

  Site site_;
  Tensor buffer_;
  std::vector<uint64_t> offsets_;
  std::vector<unsigned char> input_;
};

// One process's part in a training run. The destructor closes it.
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
    plain.spool = text(options.spool);
    plain.spool_bytes = options.spool_bytes;
    plain.redact = options.redact ? 1 : 0;
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

  // Returns the status of opening the run.
  Status status() const { return status_; }
  plumbline_run_t* handle() const { return handle_; }

  // Returns the site of a router, or an empty one (never due) if it cannot be created. The same
  // layer returns the same site.
  Site RoutingSite(std::string_view layer, std::string_view op = {},
                   SourceLine at = SourceLine::Here()) {
    return SiteOf(PLUMBLINE_KIND_ROUTING, layer, op, at);
  }
  // Return the sites of the other kinds. `op` of a tensor: its role; of a reduction: "sum", "avg".
  Site TensorSite(std::string_view layer, std::string_view op = {},
                  SourceLine at = SourceLine::Here()) {
    return SiteOf(PLUMBLINE_KIND_TENSOR, layer, op, at);
  }
  Site ReductionSite(std::string_view name, std::string_view op = {},
                     SourceLine at = SourceLine::Here()) {
    return SiteOf(PLUMBLINE_KIND_REDUCTION, name, op, at);
  }
  Site MatmulSite(std::string_view layer, std::string_view op = {},
                  SourceLine at = SourceLine::Here()) {
    return SiteOf(PLUMBLINE_KIND_MATMUL, layer, op, at);
  }
  Site LogitsSite(std::string_view layer, std::string_view op = {},
                  SourceLine at = SourceLine::Here()) {
    return SiteOf(PLUMBLINE_KIND_LOGITS, layer, op, at);
  }
  Site LogprobsSite(std::string_view layer, std::string_view op = {},
                    SourceLine at = SourceLine::Here()) {
    return SiteOf(PLUMBLINE_KIND_LOGPROBS, layer, op, at);
  }
  Site UpdateSite(std::string_view layer, std::string_view op = {},
                  SourceLine at = SourceLine::Here()) {
    return SiteOf(PLUMBLINE_KIND_UPDATE, layer, op, at);
  }

  Status StepBegin(int64_t step) {
    return handle_ != nullptr ? plumbline_step_begin(handle_, step) : Status{PLUMBLINE_DISABLED};
  }
  Status StepEnd() {
    return handle_ != nullptr ? plumbline_step_end(handle_) : Status{PLUMBLINE_DISABLED};
  }
  // Begin and end the capture of a CUDA graph that will be replayed on `stream`:
  // plumbline_capture_begin.
  Status CaptureBegin(void* stream) {
    return handle_ != nullptr ? plumbline_capture_begin(handle_, stream)
                              : Status{PLUMBLINE_DISABLED};
  }
  Status CaptureEnd() {
    return handle_ != nullptr ? plumbline_capture_end(handle_) : Status{PLUMBLINE_DISABLED};
  }
  Status Scalar(const char* name, double value, SourceLine at = SourceLine::Here()) {
    return handle_ != nullptr ? plumbline_scalar_at(handle_, name, value, at.file, at.line)
                              : Status{PLUMBLINE_DISABLED};
  }
  // Reports how the process is about to end: plumbline_note_ending.
  Status NoteEnding(const plumbline_ending_t& ending) {
    return handle_ != nullptr ? plumbline_note_ending(handle_, &ending)
                              : Status{PLUMBLINE_DISABLED};
  }
  Status Flush(uint32_t timeout_ms) {
    return handle_ != nullptr ? plumbline_flush(handle_, timeout_ms) : Status{PLUMBLINE_DISABLED};
  }
  Status Close(uint32_t timeout_ms = kCloseTimeoutMs) {
    plumbline_run_t* handle = std::exchange(handle_, nullptr);
    return handle != nullptr ? plumbline_close(handle, timeout_ms) : Status{PLUMBLINE_DISABLED};
  }

 private:
  Site SiteOf(int32_t kind, std::string_view layer, std::string_view op, const SourceLine& at) {
    plumbline_site_t* site = nullptr;
    if (handle_ != nullptr) {
      plumbline_site_at(handle_, kind, std::string(layer).c_str(), std::string(op).c_str(), at.file,
                        at.line, &site);
    }
    return Site(site);
  }

  plumbline_run_t* handle_ = nullptr;
  Status status_ = PLUMBLINE_DISABLED;
};

// A step, from construction to destruction. The run must outlive it.
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

// A stage of the training loop ("forward", "checkpoint", ...), from construction to destruction.
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
