// plumb audit --server ADDR --run RUN: judges again what a server holds of a run.
#pragma once

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "audit/session/audit.h"

namespace plumbline::audit {

struct ServerRunOptions {
  std::string server;
  std::string run;
  // Where rules and settings are empty, the server's own: then the findings are the server's.
  rules::EngineConfig engine;
  bool collect_series = false;  // for a format that plots them
};

// The run's batches and events in the order in which the server judged them. What the server does
// not hold (gaps) and what it has not judged itself yet are problems of the one input. Errors: the
// server cannot be reached, keeps no journal, has nothing of the run, or rules or settings are
// wrong.
absl::StatusOr<AuditResult> AuditServerRun(
    const ServerRunOptions& options, const std::function<void(const AuditProgress&)>& on_progress);

// The part of a batch that belongs to `run`: a process may speak for several.
void KeepRun(const std::string& run, v1::Batch* batch);

}  // namespace plumbline::audit
