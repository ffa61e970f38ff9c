// The commands of plumb that talk to a running server. Each prints to standard output, says what
// went wrong on standard error, and returns the exit status.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plumbline/v1/finding.pb.h"
#include "plumbline/v1/journal_event.pb.h"

namespace CLI {
class App;
}

namespace plumbline::audit {

// Where plumbd listens unless it was told otherwise; $PLUMBLINE_SERVER wins.
std::string DefaultServer();

struct WatchOptions {
  std::string server = DefaultServer();
  std::string run;              // empty: all
  std::string rule;             // glob over rules; empty: all
  std::string format = "text";  // or "json": one event a line
  v1::Level min_level = v1::LEVEL_UNSPECIFIED;
  bool once = false;           // what exists, then end
  double timeout_seconds = 0;  // end after this long; 0: never
};

// Incidents as they happen. Reconnects when the server goes away, and goes on where it was; SIGINT
// and SIGTERM end it with 0.
// 2: with `once`, the server could not be reached or does not know the run, which is waited for
// otherwise; or the server refused the request.
int RunWatch(const WatchOptions& options);

struct QueryOptions {
  std::string server = DefaultServer();
  std::string run;   // empty: all
  std::string rule;  // glob over rules, of incidents; empty: all
  v1::Level min_level = v1::LEVEL_UNSPECIFIED;
  std::string finding;          // of incidents: the one that holds it, which shows it; empty: all
  std::string format = "text";  // or "json"
  double timeout_seconds = 10;
};

// What the server holds. 0, or 2 when the server could not be reached or does not know the run.
int RunRuns(const QueryOptions& options);
// Somebody decides about a run in quarantine: `retry` or not, which drops it. 0, or 2 when the
// server says why not.
int UpdateQuarantined(const QueryOptions& options, bool retry);
int QueryIncidents(const QueryOptions& options);
int QueryVerdicts(const QueryOptions& options);
int QueryInfo(const QueryOptions& options);

struct IncidentOptions {
  std::string server = DefaultServer();
  std::string fingerprint;  // or the first digits of it
  bool acknowledge = false;
  bool reopen = false;
  std::string silence_until;  // a step, a time, or a time from now: see ParseUntil
  std::string who;            // empty: the user's name
  std::string reason;
  std::string format = "text";  // or "json"
  double timeout_seconds = 10;
};

// The history of one incident; before it, what is to become of the incident, if anything. 2: no
// such incident, no reason given, or no server.
int QueryHistory(const IncidentOptions& options);
int UpdateIncident(const IncidentOptions& options);

// "1200": that step. "30m", "12h", "7d": so long from `now_unix_ns`. "2026-11-30" or
// "2026-11-30T12:00": that time, local. False: none of these.
bool ParseUntil(const std::string& text, int64_t now_unix_ns, v1::IncidentUpdate* update);

struct SeriesOptions {
  std::string server = DefaultServer();
  std::string run;
  std::string series;  // glob; empty: the series are listed
  std::vector<uint32_t> ranks;
  std::string role;  // "trainer", "rollout"; empty: see QuerySeriesRequest
  std::optional<uint32_t> attempt;
  std::optional<int64_t> first, last;  // steps
  uint64_t last_steps = 0;
  uint64_t cells = 0;  // 0: the server's choice
  bool over_ranks = false;
  std::string format = "text";  // or "json" (one series a line), "csv" (one cell a line)
  double timeout_seconds = 30;
};

// 2: no such run, no such series, or no server.
int QuerySeries(const SeriesOptions& options);

struct CapsuleOptions {
  std::string server = DefaultServer();
  std::string finding;  // fingerprint, or the first digits of it
  std::string output;   // a directory that is empty or not there
  bool anew = false;    // although one is held
  bool judged = false;  // what the journal holds of the finding's own steps instead
  bool quiet = false;
  double timeout_seconds = 60;  // for the ranks
};

// Fetches what a finding is judged from into a directory that plumb audit judges again. 0: whole.
// 2: nothing, or not of every rank: what there is is written, and what is missing is said.
int RunCapsule(const CapsuleOptions& options);

struct DoctorOptions {
  std::string server = DefaultServer();
  bool server_asked = false;   // somebody named it: that none is there is a failure then
  double timeout_seconds = 5;  // for the test finding
};

// Is everything here that watching a trainer needs? 0 when all that is required works, 1 otherwise.
int RunDoctor(const DoctorOptions& options);

// Prints the list of the libraries that the package carries, with the version of each. A build that
// was not made by tools/package carries none, and the output is that. Returns the exit status.
int PrintLibraries();

// --token-file, --tls-ca, --tls-cert, --tls-key: other words for the environment variables that
// clients read (transport/credentials.h), of this process and of those it starts. Files, never
// secrets: everybody on the host can read a command line.
void AddCredentials(CLI::App* command);

// Declares watch, runs, query, capsule and doctor; the one that is parsed leaves its exit status
// in *status.
void RegisterLive(CLI::App& app, int* status);

}  // namespace plumbline::audit
