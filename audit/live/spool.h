// plumb spool: handles the spools that agents left on disk because no server had received them.
#pragma once

#include <string>

#include "audit/live/live.h"

namespace plumbline::audit {

struct SpoolCommandOptions {
  std::string dir;
  std::string server = DefaultServer();
  std::string run;             // empty: all
  double timeout_seconds = 0;  // for `send`; 0: no limit
};

// Prints one line per spool: its owner, its size, and whether its process is alive. Returns 0, or 2
// if `dir` cannot be read.
int RunSpoolList(const SpoolCommandOptions& options);

// Sends every spool whose process is dead, with the spool's stream id and sequence numbers, so that
// nothing arrives twice, then deletes it. Returns 0 if no spool is left. Otherwise returns 1 and
// prints the reason.
int RunSpoolSend(const SpoolCommandOptions& options);

// Declares `plumb spool list` and `plumb spool send`.
void RegisterSpool(CLI::App& app, int* status);

}  // namespace plumbline::audit
