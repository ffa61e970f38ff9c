// The exports of libplumbline_agent.so: the table of agent/agent_table.h over agent/core/run/run.h.
#include "agent/agent_table.h"

#include <exception>
#include <memory>
#include <new>
#include <string>

#include "agent/core/calls/check_router.h"
#include "agent/core/calls/fingerprint.h"
#include "agent/core/calls/text.h"
#include "agent/core/run/run.h"
#include "agent/core/shared/error.h"
#include "agent/core/shared/options.h"
#include "base/version/build_version.h"

namespace plumbline::agent {
namespace {

using agent::Fail;

plumbline_status_t Fail(plumbline_error_t* error, const absl::Status& status) {
  const std::string text(status.message());
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
      return Fail(error, PLUMBLINE_INVALID_ARGUMENT, text);
    case absl::StatusCode::kFailedPrecondition:
      return Fail(error, PLUMBLINE_FAILED_PRECONDITION, text);
    case absl::StatusCode::kResourceExhausted:
      return Fail(error, PLUMBLINE_RESOURCE_EXHAUSTED, text);
    default:
      return Fail(error, PLUMBLINE_UNAVAILABLE, text);
  }
}

// Catches all exceptions, so that none leaves the library.
template <typename Body>
plumbline_status_t Guarded(plumbline_error_t* error, Body body) noexcept {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return Fail(error, PLUMBLINE_RESOURCE_EXHAUSTED, "out of memory");
  } catch (const std::exception& e) {
    return Fail(error, PLUMBLINE_INTERNAL, e.what());
  } catch (...) {
    return Fail(error, PLUMBLINE_INTERNAL, "unknown exception");
  }
}

// Converts the façade's opaque pointer to the run: Open created it, Close destroys it.
Run& AsRun(void* run) { return *static_cast<Run*>(run); }

// Returns false for an older façade's struct, which ends before the spool's fields.
bool KnowsSpool(const plumbline_agent_open_t& o) {
  return o.size >= offsetof(plumbline_agent_open_t, spool_bytes) + sizeof(o.spool_bytes);
}

bool KnowsCaller(const plumbline_agent_open_t& o) {
  return o.size >= offsetof(plumbline_agent_open_t, caller) + sizeof(o.caller);
}

bool Redacts(const plumbline_agent_open_t& o) {
  return o.size >= offsetof(plumbline_agent_open_t, redact) + sizeof(o.redact) && o.redact != 0;
}

int32_t StopOn(const plumbline_agent_open_t& o) {
  return o.size >= offsetof(plumbline_agent_open_t, stop_on) + sizeof(o.stop_on) ? o.stop_on : 0;
}

uint64_t SpoolBytes(const plumbline_agent_open_t& o) { return KnowsSpool(o) ? o.spool_bytes : 0; }

AgentOptions OptionsOf(const plumbline_agent_open_t& o) {
  AgentOptions options;
  options.run = o.run;
  options.server = o.server;
  options.record_dir = o.record;
  options.role = static_cast<Role>(o.role);
  options.attempt = o.attempt;
  options.rank = o.rank;
  options.world_size = o.world_size;
  options.every = o.every;
  options.budget = o.budget;
  options.redact = Redacts(o);
  options.stop_on = StopOn(o);
  if (KnowsCaller(o) && o.caller != nullptr) options.caller = o.caller;
  if (KnowsSpool(o) && o.spool != nullptr) {
    options.spool_dir = o.spool;
  } else if (!options.record_dir.empty() && !options.server.empty()) {
    options.spool_dir = options.record_dir + "/spool";
  }
  return options;
}

// Sizes come from the environment, except a spool's size that the trainer gave.
plumbline_status_t Open(const plumbline_agent_open_t* given, void** agent_run,
                        plumbline_error_t* error) {
  return Guarded(error, [&] {
    AgentOptions options = OptionsOf(*given);
    if (absl::Status s = ApplyEnvironment(&options); !s.ok()) return Fail(error, s);
    if (const uint64_t bytes = SpoolBytes(*given); bytes != 0) options.spool_bytes = bytes;
    auto run = Run::Open(std::move(options));
    if (!run.ok()) return Fail(error, run.status());
    *agent_run = run->release();
    return plumbline_status_t{PLUMBLINE_OK};
  });
}

plumbline_status_t DeclareSite(void* run, const plumbline_agent_site_t* site, void** agent_site,
                               plumbline_error_t* error) {
  return Guarded(error, [&] { return AsRun(run).DeclareSite(*site, agent_site, error); });
}

plumbline_status_t StepBegin(void* run, int64_t step, plumbline_error_t* error) {
  return Guarded(error, [&] { return AsRun(run).StepBegin(step); });
}

plumbline_status_t StepEnd(void* run, int64_t step, plumbline_error_t* error) {
  return Guarded(error, [&] { return AsRun(run).StepEnd(step); });
}

// ObserveRouting, ObserveTensor, ...: one entry of the same form for each kind of evidence.
#define PLUMB_KIND(Name, NAME, name, number, op)                                                  \
  plumbline_status_t Observe##Name(void* run, void* site, int64_t step,                           \
                                   const plumbline_##name##_t* given, plumbline_error_t* error) { \
    return Guarded(error, [&] {                                                                   \
      return AsRun(run).Observe##Name(static_cast<Site*>(site), step, *given, error);             \
    });                                                                                           \
  }
#include "proto/evidence_kinds.inc"

plumbline_status_t NoteEnding(void* run, const plumbline_ending_t* ending,
                              plumbline_error_t* error) {
  return Guarded(error, [&] {
    AsRun(run).NoteEnding(ending);
    return plumbline_status_t{PLUMBLINE_OK};
  });
}

plumbline_status_t Look(void* run, int64_t step, uint32_t steps, plumbline_error_t* error) {
  return Guarded(error, [&] { return AsRun(run).Look(step, steps); });
}

plumbline_status_t CaptureBegin(void* run, void* replays_on, plumbline_error_t* error) {
  return Guarded(error, [&] { return AsRun(run).CaptureBegin(replays_on); });
}

plumbline_status_t TogetherBegin(void* run, plumbline_error_t* error) {
  return Guarded(error, [&] { return AsRun(run).TogetherBegin(); });
}

plumbline_status_t TogetherEnd(void* run, plumbline_error_t* error) {
  return Guarded(error, [&] { return AsRun(run).TogetherEnd(); });
}

plumbline_status_t Marks(void* run, plumbline_marks_t* marks, plumbline_error_t* error) {
  return Guarded(error, [&] { return AsRun(run).Marks(marks); });
}

plumbline_status_t StopOrdered(void* run, char* text, uint32_t bytes, int32_t* ordered,
                               plumbline_error_t* error) {
  return Guarded(error, [&] {
    *ordered = AsRun(run).StopOrdered({text, bytes}) ? 1 : 0;
    return plumbline_status_t{PLUMBLINE_OK};
  });
}

plumbline_status_t Steps(void* run, const char* const* series, uint32_t count,
                         plumbline_steps_t* steps, plumbline_error_t* error) {
  return Guarded(error, [&] { return AsRun(run).Steps({series, count}, steps); });
}

void Charge(void* run, uint64_t ns) { AsRun(run).Charge(ns); }

plumbline_status_t Scalar(void* run, int64_t step, const char* name, double value,
                          plumbline_error_t* error) {
  return Guarded(error, [&] { return AsRun(run).Scalar(step, name, value); });
}

plumbline_status_t ScalarAt(void* run, int64_t step, const char* name, double value,
                            const char* file, uint32_t line, plumbline_error_t* error) {
  return Guarded(error, [&] { return AsRun(run).Scalar(step, name, value, {TextOf(file), line}); });
}

plumbline_status_t NextLook(void* run, int64_t step, plumbline_error_t* error) {
  return Guarded(error, [&] { return AsRun(run).NextLook(step); });
}

plumbline_status_t SpanBegin(void* run, int64_t step, const char* kind, const char* name,
                             uint64_t* span, plumbline_error_t* error) {
  return Guarded(error, [&] { return AsRun(run).SpanBegin(step, kind, name, span, error); });
}

plumbline_status_t SpanEnd(void* run, uint64_t span, plumbline_error_t* error) {
  return Guarded(error, [&] { return AsRun(run).SpanEnd(span, error); });
}

plumbline_status_t Flush(void* run, uint32_t timeout_ms, plumbline_error_t* error) {
  return Guarded(error, [&] { return AsRun(run).Flush(timeout_ms, error); });
}

// Destroys the run for any status.
plumbline_status_t Close(void* run, uint32_t timeout_ms, plumbline_error_t* error) {
  return Guarded(error, [&] {
    const std::unique_ptr<Run> owned(static_cast<Run*>(run));
    return owned->Close(timeout_ms, error);
  });
}

plumbline_status_t CheckRouterCall(const plumbline_router_check_t* check,
                                   plumbline_router_verdict_t* verdict, plumbline_error_t* error) {
  return Guarded(error, [&] {
    if (absl::Status s = CheckRouter(*check, verdict); !s.ok()) return Fail(error, s);
    return plumbline_status_t{PLUMBLINE_OK};
  });
}

plumbline_status_t FingerprintCall(const plumbline_sum_t* sum,
                                   plumbline_fingerprint_result_t* result,
                                   plumbline_error_t* error) {
  return Guarded(error, [&] {
    if (absl::Status s = TakeFingerprint(*sum, result); !s.ok()) return Fail(error, s);
    return plumbline_status_t{PLUMBLINE_OK};
  });
}

plumbline_status_t SampleIndices(void* run, void* site, int64_t step, uint64_t count, uint64_t* out,
                                 uint32_t capacity, uint32_t* n, plumbline_error_t* error) {
  return Guarded(error, [&] {
    return AsRun(run).SampleIndices(*static_cast<Site*>(site), step, count, out, capacity, n,
                                    error);
  });
}

// Built at compile time, so that loading the library runs no code for it.
constexpr plumbline_agent_table_t Table() {
  plumbline_agent_table_t table = {};
  table.size = sizeof(table);
  table.version = PLUMBLINE_AGENT_TABLE_VERSION;
  table.tool_version = BuildVersion();
  table.open = Open;
  table.declare_site = DeclareSite;
  table.step_begin = StepBegin;
  table.step_end = StepEnd;
#define PLUMB_KIND(Name, NAME, name, number, op) table.observe_##name = Observe##Name;
#include "proto/evidence_kinds.inc"
  table.scalar = Scalar;
  table.span_begin = SpanBegin;
  table.span_end = SpanEnd;
  table.flush = Flush;
  table.close = Close;
  table.check_router = CheckRouterCall;
  table.sample_indices = SampleIndices;
  table.fingerprint = FingerprintCall;
  table.charge = Charge;
  table.capture_begin = CaptureBegin;
  table.note_ending = NoteEnding;
  table.look = Look;
  table.together_begin = TogetherBegin;
  table.together_end = TogetherEnd;
  table.marks = Marks;
  table.stop_order = StopOrdered;
  table.steps = Steps;
  table.scalar_at = ScalarAt;
  table.next_look = NextLook;
  return table;
}

}  // namespace
}  // namespace plumbline::agent

extern "C" {

// Constant data: the façade reads it as soon as the library is open.
constinit const plumbline_agent_table_t plumbline_agent_table = plumbline::agent::Table();

}  // extern "C"
