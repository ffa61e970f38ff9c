// A small agent library for the façade's tests: writes every call as one line to the file in
// PLUMBLINE_TEST_LOG. PLUMBLINE_TEST_AGENT selects a fault. The library allocates in a static
// initialiser and frees memory that libc allocated, like the real agent's libraries.
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "agent/agent_table.h"

#if !defined(PLUMBLINE_SANITIZED)
extern "C" const char* test_dependency_owner();  // test_dependency.cc
#endif

namespace {

bool Mode(const char* mode) {
  const char* chosen = getenv("PLUMBLINE_TEST_AGENT");
  return chosen != nullptr && strcmp(chosen, mode) == 0;
}

void Sleep(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

// A file next to the log, through which this library and the test exchange their progress.
std::string Adjacent(const char* suffix) {
  const char* log = getenv("PLUMBLINE_TEST_LOG");
  return log == nullptr ? "" : std::string(log) + suffix;
}

void DescribeBusy() { close(creat(Adjacent(".busy").c_str(), 0600)); }

// Frees memory that libc's own code allocated with this library's `free`, and the reverse.
struct MixHeaps {
  MixHeaps() {
    for (int i = 0; i < 1000; ++i) {
      char* copy = strdup("allocated inside libc, freed by the agent");
      free(copy);
      char* line = static_cast<char*>(malloc(8));
      size_t bytes = 8;
      FILE* file = fmemopen(const_cast<char*>("a line longer than eight bytes\n"), 31, "r");
      if (getline(&line, &bytes, file) < 0) abort();  // libc reallocates the agent's memory
      fclose(file);
      free(line);
    }
    if (Mode("slow-load")) {
      DescribeBusy();
      Sleep(400);
    }
    setenv("PLUMBLINE_TEST_LOADED", "1", 1);
  }
} mix_heaps;

std::mutex log_mutex;
void Log(const std::string& line) {
  const char* path = getenv("PLUMBLINE_TEST_LOG");
  if (path == nullptr) return;
  std::lock_guard<std::mutex> lock(log_mutex);
  FILE* file = fopen(path, "a");
  if (file == nullptr) return;
  fprintf(file, "%s\n", line.c_str());
  fclose(file);
}

// Stages that the trainer has marked since the last call, each written before the next call.
plumbline_marks_t* marks_of_loop = nullptr;
size_t next_mark = 0;
void LogMarks() {
  if (marks_of_loop == nullptr) return;
  while (const uint64_t mark = __atomic_load_n(&marks_of_loop->mark[next_mark], __ATOMIC_ACQUIRE)) {
    __atomic_store_n(&marks_of_loop->mark[next_mark], 0, __ATOMIC_RELEASE);
    next_mark = (next_mark + 1) % PLUMBLINE_MARKS;
    Log("mark " + std::to_string(mark & 15));
  }
}

plumbline_status_t Logged(const std::string& text) {
  LogMarks();
  Log(text);
  return PLUMBLINE_OK;
}

struct TestSite {
  std::string name;
  uint64_t* next_due;
};
struct TestRun {
  uint32_t every = 1;
  std::mutex mutex;
  std::vector<TestSite*> sites;
  std::atomic<uint64_t> spans{0};
};

TestRun* Cast(void* run) { return static_cast<TestRun*>(run); }

plumbline_status_t Fail(plumbline_error_t* error, plumbline_status_t status, const char* text) {
  snprintf(error->text, sizeof(error->text), "%s", text);
  return status;
}

plumbline_status_t Open(const plumbline_agent_open_t* o, void** run, plumbline_error_t* error) {
  Log(std::string("open run=") + o->run + " server=" + o->server + " record=" + o->record +
      " attempt=" + std::to_string(o->attempt) + " role=" + std::to_string(o->role) +
      " rank=" + std::to_string(o->rank) + "/" + std::to_string(o->world_size) +
      " every=" + std::to_string(o->every) + " budget=" + std::to_string(o->budget) +
      (o->spool == nullptr ? "" : std::string(" spool=") + o->spool) +
      (o->spool_bytes == 0 ? "" : " spool_bytes=" + std::to_string(o->spool_bytes)) +
      (o->redact == 0 ? "" : " redact=1") +
      (o->stop_on == 0 ? "" : " stop_on=" + std::to_string(o->stop_on)));
  if (Mode("open-fails")) {
    return Fail(error, PLUMBLINE_INVALID_ARGUMENT, "the record directory cannot be written to");
  }
#if !defined(PLUMBLINE_SANITIZED)
  if (strcmp(test_dependency_owner(), "agent") != 0) {
    return Fail(error, PLUMBLINE_INTERNAL,
                "the agent's libraries are bound to the trainer's symbols");
  }
#endif
  auto* r = new TestRun;
  if (o->every > 0) r->every = o->every;
  *run = r;
  return PLUMBLINE_OK;
}

plumbline_status_t DeclareSite(void* run, const plumbline_agent_site_t* s, void** site,
                               plumbline_error_t*) {
  auto* t = new TestSite{std::string(s->layer) + "/" + s->op, s->next_due};
  Log("site " + t->name + " kind=" + std::to_string(s->kind) + " step=" + std::to_string(s->step));
  std::lock_guard<std::mutex> lock(Cast(run)->mutex);
  Cast(run)->sites.push_back(t);
  *site = t;
  return PLUMBLINE_OK;
}

std::atomic<int64_t> newest_step{-1};

plumbline_status_t StepBegin(void*, int64_t step, plumbline_error_t*) {
  newest_step = step;
  return Logged("step_begin " + std::to_string(step));
}

plumbline_status_t CaptureBegin(void*, void* replays_on, plumbline_error_t*) {
  return Logged("capture_begin " + std::to_string(reinterpret_cast<uintptr_t>(replays_on)));
}

plumbline_status_t StepEnd(void* run, int64_t step, plumbline_error_t*) {
  LogMarks();
  Log("step_end " + std::to_string(step));
  TestRun* r = Cast(run);
  const auto every = static_cast<int64_t>(r->every);
  const auto next = static_cast<uint64_t>((step / every + 1) * every);
  std::lock_guard<std::mutex> lock(r->mutex);
  for (TestSite* site : r->sites) __atomic_store_n(site->next_due, next, __ATOMIC_RELAXED);
  return PLUMBLINE_OK;
}

double Element(const DLTensor& t, const char* p) {
  const int bits = t.dtype.bits;
  if (t.dtype.code == PLUMBLINE_DL_FLOAT && bits == 64) return *reinterpret_cast<const double*>(p);
  if (t.dtype.code == PLUMBLINE_DL_FLOAT && bits == 32) return *reinterpret_cast<const float*>(p);
  if (t.dtype.code == PLUMBLINE_DL_BFLOAT) {
    const uint32_t wide = static_cast<uint32_t>(*reinterpret_cast<const uint16_t*>(p)) << 16;
    float value;
    memcpy(&value, &wide, sizeof(value));
    return value;
  }
  if (t.dtype.code <= PLUMBLINE_DL_UINT && bits == 64) {
    return static_cast<double>(*reinterpret_cast<const int64_t*>(p));
  }
  if (t.dtype.code == PLUMBLINE_DL_INT && bits == 32) return *reinterpret_cast<const int32_t*>(p);
  if (bits == 8) return *reinterpret_cast<const uint8_t*>(p);
  return NAN;
}

// Weights each element by its position, so that a wrong stride changes the sum.
void Sum(const DLTensor& t, int axis, int64_t offset, int64_t* index, double* sum) {
  if (axis == t.ndim) {
    const char* base = static_cast<const char*>(t.data) + t.byte_offset;
    *sum += static_cast<double>(++*index) * Element(t, base + offset * (t.dtype.bits / 8));
    return;
  }
  int64_t stride = 1;  // without strides: C order
  for (int a = axis + 1; t.strides == nullptr && a < t.ndim; ++a) stride *= t.shape[a];
  if (t.strides != nullptr) stride = t.strides[axis];
  for (int64_t i = 0; i < t.shape[axis]; ++i) Sum(t, axis + 1, offset + i * stride, index, sum);
}

std::string Show(const char* name, const DLTensor* t) {
  if (t == nullptr) return "";
  std::string text = std::string(" ") + name + "=" + std::to_string(t->dtype.code) + ":" +
                     std::to_string(t->dtype.bits) + "[";
  for (int i = 0; i < t->ndim; ++i) text += (i > 0 ? "," : "") + std::to_string(t->shape[i]);
  int64_t index = 0;
  double sum = 0;
  if (t->device.device_type == PLUMBLINE_DL_CPU && t->ndim >= 0) Sum(*t, 0, 0, &index, &sum);
  char number[64];
  snprintf(number, sizeof(number), "]%.6g", sum);
  return text + number;
}

plumbline_status_t ObserveRouting(void*, void* site, int64_t step, const plumbline_routing_t* r,
                                  plumbline_error_t* error) {
  if (Mode("slow-observe")) {
    DescribeBusy();
    for (int i = 0; i < 3000 && access(Adjacent(".go").c_str(), F_OK) != 0; ++i) Sleep(10);
  }
  if (r->top_k == 0)
    return Fail(error, PLUMBLINE_INVALID_ARGUMENT, "top_k is 0; expected 1 or more");
  const struct {
    const char* name;
    const DLTensor* tensor;
  } tensors[] = {{"scores", r->scores},
                 {"expert_bias", r->expert_bias},
                 {"topk_indices", r->topk_indices},
                 {"keep_mask", r->keep_mask},
                 {"routing_map", r->routing_map},
                 {"probs", r->probs},
                 {"sequence_id", r->sequence_id},
                 {"position", r->position},
                 {"padding_mask", r->padding_mask},
                 {"pool_id", r->pool_id},
                 {"region", r->region}};
  std::string line =
      "routing " + static_cast<TestSite*>(site)->name + " step=" + std::to_string(step) +
      " top_k=" + std::to_string(r->top_k) + " logits=" + std::to_string(r->scores_are_logits) +
      " function=" + std::to_string(r->score_function) +
      " capacity=" + std::to_string(r->capacity_kind) + ":" + std::to_string(r->capacity) +
      " groups=" + std::to_string(r->groups) + ":" + std::to_string(r->top_groups) + ":" +
      std::to_string(r->group_score) + " pool=" + std::to_string(r->pool) +
      " flatten=" + std::to_string(r->flatten) + " bias=" + std::to_string(r->bias_captured);
  if (r->randomness != nullptr) line += std::string(" randomness=") + r->randomness;
  if (r->mode != nullptr) line += std::string(" mode=") + r->mode;
  if (r->capacity_source != 0) line += " source=" + std::to_string(r->capacity_source);
  if (r->policy != nullptr) line += std::string(" policy=") + r->policy;
  if (r->scores != nullptr && r->scores->device.device_type != PLUMBLINE_DL_CPU) {
    char place[64];
    snprintf(place, sizeof(place), " device=%d:%d stream=%p",
             static_cast<int>(r->scores->device.device_type), r->scores->device.device_id,
             r->cuda_stream);
    line += place;
  }
  for (const auto& t : tensors) line += Show(t.name, t.tensor);
  return Logged(line);
}

plumbline_status_t Scalar(void*, int64_t step, const char* name, double value, plumbline_error_t*) {
  char number[64];
  snprintf(number, sizeof(number), "=%g", value);
  return Logged("scalar step=" + std::to_string(step) + " " + name + number);
}

plumbline_status_t SpanBegin(void* run, int64_t step, const char* kind, const char* name,
                             uint64_t* span, plumbline_error_t* error) {
  if (strcmp(kind, "lunch") == 0) {
    return Fail(error, PLUMBLINE_INVALID_ARGUMENT, "span kind \"lunch\" is not known");
  }
  *span = ++Cast(run)->spans;
  return Logged("span_begin step=" + std::to_string(step) + " " + kind + " " + name + " #" +
                std::to_string(*span));
}

plumbline_status_t SpanEnd(void*, uint64_t span, plumbline_error_t*) {
  return Logged("span_end #" + std::to_string(span));
}

plumbline_status_t Flush(void*, uint32_t timeout_ms, plumbline_error_t* error) {
  Log("flush " + std::to_string(timeout_ms));
  if (Mode("flush-late")) return Fail(error, PLUMBLINE_DEADLINE_EXCEEDED, "flush: too late");
  return PLUMBLINE_OK;
}

plumbline_status_t Close(void* run, uint32_t, plumbline_error_t*) {
  LogMarks();
  Log("close");
  for (TestSite* site : Cast(run)->sites) delete site;
  delete Cast(run);
  return PLUMBLINE_OK;
}

plumbline_status_t CheckRouter(const plumbline_router_check_t* check,
                               plumbline_router_verdict_t* verdict, plumbline_error_t*) {
  Log("check_router max_calls=" + std::to_string(check->max_calls));
  verdict->verdict = PLUMBLINE_VERDICT_PASS;
  return PLUMBLINE_OK;
}

std::string Number(const char* name, double value) {
  char text[64];
  snprintf(text, sizeof(text), " %s=%g", name, value);
  return text;
}

std::string Text(const char* name, const char* value) {
  return value == nullptr ? "" : std::string(" ") + name + "=" + value;
}

std::string Where(const char* call, void* site, int64_t step) {
  return std::string(call) + " " + static_cast<TestSite*>(site)->name +
         " step=" + std::to_string(step);
}

plumbline_status_t ObserveTensor(void*, void* site, int64_t step, const plumbline_tensor_t* t,
                                 plumbline_error_t* error) {
  if (t->values == nullptr) return Fail(error, PLUMBLINE_INVALID_ARGUMENT, "values: absent");
  return Logged(Where("tensor", site, step) + " target=" + std::to_string(t->target_format) +
                Text("role", t->role) + Text("replicas", t->replicas) + Show("values", t->values));
}

plumbline_status_t ObserveReduction(void*, void* site, int64_t step, const plumbline_reduction_t* r,
                                    plumbline_error_t*) {
  std::string line =
      Where("reduction", site, step) + " op=" + std::to_string(r->op) +
      " wire=" + std::to_string(r->wire_dtype) + " count=" + std::to_string(r->count) +
      " rank=" + std::to_string(r->group_rank) + "/" + std::to_string(r->group_size) +
      " sequence=" + std::to_string(r->sequence) + ":" + std::to_string(r->sequence_known) +
      Number("prescale", r->prescale) + Number("postscale", r->postscale) +
      " channels=" + std::to_string(r->channels) + " chunk=" + std::to_string(r->chunk) +
      " variable=" + std::to_string(r->variable_count) + " ring=";
  for (uint32_t i = 0; i < r->ring_size; ++i) line += std::to_string(r->ring_order[i]);
  return Logged(line + Text("group", r->group) + Text("algorithm", r->algorithm) +
                Text("transport", r->transport) + Show("input", r->input) +
                Show("output", r->output) + Show("offsets", r->offsets));
}

plumbline_status_t ObserveUpdate(void*, void* site, int64_t step, const plumbline_update_t* u,
                                 plumbline_error_t*) {
  return Logged(Where("update", site, step) + Text("optimizer", u->optimizer) +
                Number("lr", u->lr) + Number("beta2", u->beta2) + Number("eps", u->eps) +
                Number("decay", u->decay) + " eps_dtype=" + std::to_string(u->eps_dtype) +
                " count=" + std::to_string(u->count) + Show("before", u->before) +
                Show("after", u->after) + Show("intended", u->intended) +
                Show("gradient", u->gradient) + Show("moment_before", u->moment_before) +
                Show("moment_after", u->moment_after) + Show("offsets", u->offsets));
}

// The scales of the product, if there are any.
std::string Scales(const plumbline_matmul_t& m) {
  std::string text = m.scale == 0 ? "" : Number("scale", m.scale);
  text += Show("a_scale", m.a_scale) + Show("b_scale", m.b_scale);
  if (m.block != 0)
    text += " block=" + std::to_string(m.block) + " tiles=" + std::to_string(m.a_tile) + "," +
            std::to_string(m.b_tile);
  return text + Text("scale_format", m.scale_format) + Text("output_rounding", m.output_rounding);
}

plumbline_status_t ObserveMatmul(void*, void* site, int64_t step, const plumbline_matmul_t* m,
                                 plumbline_error_t*) {
  return Logged(Where("matmul", site, step) +
                " declared=" + std::to_string(m->declared_accumulator) +
                Text("input_format", m->input_format) + Text("library", m->library) +
                Show("a", m->a) + Show("b", m->b) + Show("d", m->d) + Show("c", m->c) + Scales(*m));
}

plumbline_status_t ObserveLogprobs(void*, void* site, int64_t step, const plumbline_logprobs_t* l,
                                   plumbline_error_t*) {
  return Logged(
      Where("logprobs", site, step) + " mode=" + std::to_string(l->mode) +
      " selection=" + std::to_string(l->selection) + " source=" + std::to_string(l->source) +
      " train_version=" + std::to_string(l->train_version) + " top_k=" + std::to_string(l->top_k) +
      Number("temperature", l->temperature) + Number("top_p", l->top_p) +
      Number("kept_share", l->kept_share) + Number("rescore_k2", l->rescore_k2) +
      Text("worker", l->worker) + Show("tokens", l->tokens) + Show("sequence_id", l->sequence_id) +
      Show("position", l->position) + Show("mask", l->mask) + Show("rollout", l->rollout) +
      Show("train", l->train) + Show("rollout_entropy", l->rollout_entropy) +
      Show("rollout_varentropy", l->rollout_varentropy) + Show("train_entropy", l->train_entropy) +
      Show("train_varentropy", l->train_varentropy) + Show("versions", l->versions) +
      Show("advantages", l->advantages) + Show("turns", l->turns) +
      Show("cached_tokens", l->cached_tokens) + Show("t_start", l->t_start) +
      Show("t_end", l->t_end) + Show("behaviour", l->behaviour));
}

plumbline_status_t ObserveLogits(void*, void* site, int64_t step, const plumbline_logits_t* l,
                                 plumbline_error_t*) {
  return Logged(Where("logits", site, step) + " mode=" + std::to_string(l->mode) +
                Number("temperature", l->temperature) + Show("train", l->train) +
                Show("rollout", l->rollout) + Show("tokens", l->tokens) +
                Show("allowed", l->allowed));
}

plumbline_status_t TogetherBegin(void*, plumbline_error_t*) { return Logged("together_begin"); }
plumbline_status_t TogetherEnd(void*, plumbline_error_t*) { return Logged("together_end"); }

plumbline_status_t Marks(void*, plumbline_marks_t* marks, plumbline_error_t*) {
  marks_of_loop = marks;
  return Logged("marks");
}

// From the step in PLUMBLINE_TEST_STOP_AT on.
plumbline_status_t StopOrder(void*, char* text, uint32_t bytes, int32_t* ordered,
                             plumbline_error_t*) {
  const char* at = getenv("PLUMBLINE_TEST_STOP_AT");
  *ordered = at != nullptr && newest_step >= atoll(at) ? 1 : 0;
  if (*ordered != 0 && bytes > 0) snprintf(text, bytes, "error rule: title (step %s)", at);
  return PLUMBLINE_OK;
}

plumbline_status_t Look(void*, int64_t step, uint32_t steps, plumbline_error_t*) {
  return Logged("look step=" + std::to_string(step) + " steps=" + std::to_string(steps));
}

// Every second element from the step's number on; none in steps that are multiples of 5.
plumbline_status_t SampleIndices(void*, void*, int64_t step, uint64_t count, uint64_t* out,
                                 uint32_t capacity, uint32_t* n, plumbline_error_t*) {
  *n = 0;
  if (step % 5 == 0) return PLUMBLINE_OK;
  for (auto i = static_cast<uint64_t>(step); i < count && *n < capacity; i += 2) out[(*n)++] = i;
  return PLUMBLINE_OK;
}

}  // namespace

extern "C" const plumbline_agent_table_t plumbline_agent_table = {
#ifdef TEST_AGENT_OLDER
    PLUMBLINE_AGENT_TABLE_LEAST,
#else
    sizeof(plumbline_agent_table_t),
#endif
#ifdef TEST_AGENT_OTHER_VERSION
    PLUMBLINE_AGENT_TABLE_VERSION + 1,
#else
    PLUMBLINE_AGENT_TABLE_VERSION,
#endif
    "test",
    Open,
    DeclareSite,
    StepBegin,
    StepEnd,
    ObserveRouting,
    Scalar,
    SpanBegin,
    SpanEnd,
    Flush,
    Close,
    CheckRouter,
    ObserveTensor,
    ObserveReduction,
    ObserveUpdate,
    SampleIndices,
    nullptr,  // fingerprint
    ObserveMatmul,
    ObserveLogprobs,
    ObserveLogits,
    nullptr,  // charge
    CaptureBegin,
    nullptr,  // note_ending
    Look,
    TogetherBegin,
    TogetherEnd,
    Marks,
    StopOrder,
};
