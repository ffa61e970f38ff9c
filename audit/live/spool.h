// plumb spool: what agents left on disk because no server had it.
#pragma once

#include <string>

#include "audit/live/live.h"

namespace plumbline::audit {

struct SpoolCommandOptions {
  std::string dir;
  std::string server = DefaultServer();
  std::string run;             // empty: all
  double timeout_seconds = 0;  // of send; 0: until it is done
};

// One line a spool: whose, how much, and whether its process lives. 0, or 2 when `dir` cannot be
// read.
int RunSpoolList(const SpoolCommandOptions& options);

// Delivers every spool whose process is dead, each as its own stream under its own numbers, so that
// nothing arrives twice, and deletes it. 0: nothing is left; 1: something is, and why is said.
int RunSpoolSend(const SpoolCommandOptions& options);

// Declares `plumb spool list` and `plumb spool send`.
void RegisterSpool(CLI::App& app, int* status);

}  // namespace plumbline::audit
