// What libplumbline_agent.so exports: the table of agent/agent_table.h over agent/core/run/run.h.
#include "agent/agent_table.h"

#include <exception>
#include <memory>
#include <new>
#include <string>

#include "agent/core/calls/check_router.h"
#include "agent/core/calls/fingerprint.h"
#include "agent/core/run/run.h"
#include "agent/core/shared/error.h"
#include "agent/core/shared/options.h"

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

// Nothing thrown leaves the library.
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

Run& AsRun(void* run) { return *static_cast<Run*>(run); }

// An older façade's struct ends before what concerns the spool.
bool KnowsSpool(const plumbline_agent_open_t& o) {
  return o.size >= offsetof(plumbline_agent_open_t, spool_bytes) + sizeof(o.spool_bytes);
}

bool KnowsCaller(const plumbline_agent_open_t& o) {
  return o.size >= offsetof(plumbline_agent_open_t, caller) + sizeof(o.caller);
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
  if (KnowsCaller(o) && o.caller != nullptr) options.caller = o.caller;
  if (KnowsSpool(o) && o.spool != nullptr) {
    options.spool_dir = o.spool;
  } else if (!options.record_dir.empty() && !options.server.empty()) {
    options.spool_dir = options.record_dir + "/spool";
  }
  return options;
}

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

plumbline_status_t ObserveRouting(void* run, void* site, int64_t step,
                                  const plumbline_routing_t* routing, plumbline_error_t* error) {
  return Guarded(error, [&] {
    return AsRun(run).ObserveRouting(static_cast<Site*>(site), step, *routing, error);
  });
}

plumbline_status_t NoteEnding(void* run, const plumbline_ending_t* ending,
                              plumbline_error_t* error) {
  return Guarded(error, [&] {
    AsRun(run).NoteEnding(ending);
    return plumbline_status_t{PLUMBLINE_OK};
  });
}

plumbline_status_t CaptureBegin(void* run, void* replays_on, plumbline_error_t* error) {
  return Guarded(error, [&] { return AsRun(run).CaptureBegin(replays_on); });
}

void Charge(void* run, uint64_t ns) { AsRun(run).Charge(ns); }

plumbline_status_t Scalar(void* run, int64_t step, const char* name, double value,
                          plumbline_error_t* error) {
  return Guarded(error, [&] { return AsRun(run).Scalar(step, name, value); });
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

plumbline_status_t ObserveTensor(void* run, void* site, int64_t step,
                                 const plumbline_tensor_t* tensor, plumbline_error_t* error) {
  return Guarded(error, [&] {
    return AsRun(run).ObserveTensor(static_cast<Site*>(site), step, *tensor, error);
  });
}

plumbline_status_t ObserveReduction(void* run, void* site, int64_t step,
                                    const plumbline_reduction_t* reduction,
                                    plumbline_error_t* error) {
  return Guarded(error, [&] {
    return AsRun(run).ObserveReduction(static_cast<Site*>(site), step, *reduction, error);
  });
}

plumbline_status_t ObserveUpdate(void* run, void* site, int64_t step,
                                 const plumbline_update_t* update, plumbline_error_t* error) {
  return Guarded(error, [&] {
    return AsRun(run).ObserveUpdate(static_cast<Site*>(site), step, *update, error);
  });
}

plumbline_status_t ObserveMatmul(void* run, void* site, int64_t step,
                                 const plumbline_matmul_t* matmul, plumbline_error_t* error) {
  return Guarded(error, [&] {
    return AsRun(run).ObserveMatmul(static_cast<Site*>(site), step, *matmul, error);
  });
}

plumbline_status_t ObserveLogprobs(void* run, void* site, int64_t step,
                                   const plumbline_logprobs_t* logprobs, plumbline_error_t* error) {
  return Guarded(error, [&] {
    return AsRun(run).ObserveLogprobs(static_cast<Site*>(site), step, *logprobs, error);
  });
}

plumbline_status_t ObserveLogits(void* run, void* site, int64_t step,
                                 const plumbline_logits_t* logits, plumbline_error_t* error) {
  return Guarded(error, [&] {
    return AsRun(run).ObserveLogits(static_cast<Site*>(site), step, *logits, error);
  });
}

plumbline_status_t SampleIndices(void* run, void* site, int64_t step, uint64_t count, uint64_t* out,
                                 uint32_t capacity, uint32_t* n, plumbline_error_t* error) {
  return Guarded(error, [&] {
    return AsRun(run).SampleIndices(*static_cast<Site*>(site), step, count, out, capacity, n,
                                    error);
  });
}

}  // namespace
}  // namespace plumbline::agent

extern "C" {

const plumbline_agent_table_t plumbline_agent_table = {
    sizeof(plumbline_agent_table_t),   PLUMBLINE_AGENT_TABLE_VERSION,
    plumbline::agent::kToolVersion,    plumbline::agent::Open,
    plumbline::agent::DeclareSite,     plumbline::agent::StepBegin,
    plumbline::agent::StepEnd,         plumbline::agent::ObserveRouting,
    plumbline::agent::Scalar,          plumbline::agent::SpanBegin,
    plumbline::agent::SpanEnd,         plumbline::agent::Flush,
    plumbline::agent::Close,           plumbline::agent::CheckRouterCall,
    plumbline::agent::ObserveTensor,   plumbline::agent::ObserveReduction,
    plumbline::agent::ObserveUpdate,   plumbline::agent::SampleIndices,
    plumbline::agent::FingerprintCall, plumbline::agent::ObserveMatmul,
    plumbline::agent::ObserveLogprobs, plumbline::agent::ObserveLogits,
    plumbline::agent::Charge,          plumbline::agent::CaptureBegin,
    plumbline::agent::NoteEnding,
};

}  // extern "C"
