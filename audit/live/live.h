// The commands of plumb that talk to a running server. Each prints to standard output, says what
// went wrong on standard error, and returns the exit status.
#pragma once

#include <string>

#include "plumbline/v1/finding.pb.h"

namespace CLI {
class App;
}

namespace plumbline::audit {

// Where plumbd listens unless it was told otherwise; $PLUMBLINE_SERVER wins.
std::string DefaultServer();

struct WatchOptions {
  std::string server = DefaultServer();
  std::string run;              // empty: all
  std::string format = "text";  // or "json": one event a line
  v1::Level min_level = v1::LEVEL_UNSPECIFIED;
  bool once = false;           // what exists, then end
  double timeout_seconds = 0;  // end after this long; 0: never
};

// Incidents as they happen. Reconnects when the server goes away; SIGINT and SIGTERM end it with 0.
// 2: with `once`, the server could not be reached; or the server refused the request.
int RunWatch(const WatchOptions& options);

struct QueryOptions {
  std::string server = DefaultServer();
  std::string what = "incidents";  // or "verdicts", "info"
  std::string run;                 // empty: all
  std::string rule;                // glob over rules, of incidents; empty: all
  v1::Level min_level = v1::LEVEL_UNSPECIFIED;
  std::string format = "text";  // or "json"
  double timeout_seconds = 10;
};

// 0, or 2 when the server could not be reached.
int RunRuns(const QueryOptions& options);
int RunQuery(const QueryOptions& options);

struct DoctorOptions {
  std::string server = DefaultServer();
  double timeout_seconds = 5;  // for the test finding
};

// Is everything here that watching a trainer needs? 0 when all that is required works, 1 otherwise.
int RunDoctor(const DoctorOptions& options);

// Declares watch, runs, query and doctor; the one that is parsed leaves its exit status in *status.
void RegisterLive(CLI::App& app, int* status);

}  // namespace plumbline::audit
