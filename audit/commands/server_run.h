// plumb audit --server ADDR --run RUN: judges again a run that a server holds.
#pragma once

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "audit/session/audit.h"

namespace plumbline::audit {

struct ServerRunOptions {
  std::string server;
  std::string run;
  // If rules and settings are empty, the server's are used, and the findings are the server's.
  rules::EngineConfig engine;
  bool collect_series = false;  // for a format that plots series
};

// Judges the run's batches and events in the order in which the server judged them. Data that the
// server does not hold (gaps), or has not judged yet, are problems of the single input. Returns an
// error if the server cannot be reached, keeps no journal or has nothing of the run, or if rules or
// settings are wrong.
absl::StatusOr<AuditResult> AuditServerRun(
    const ServerRunOptions& options, const std::function<void(const AuditProgress&)>& on_progress);

// Keeps the part of a batch that belongs to `run`. One process may report several runs.
void KeepRun(const std::string& run, v1::Batch* batch);

}  // namespace plumbline::audit
