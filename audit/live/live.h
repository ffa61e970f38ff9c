// The commands of plumb that use a running server. Each prints to standard output, prints errors to
// standard error, and returns the exit status.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plumbline/v1/finding.pb.h"
#include "plumbline/v1/journal_event.pb.h"
#include "plumbline/v1/query.pb.h"

namespace CLI {
class App;
}

namespace plumbline::audit {

// Returns $PLUMBLINE_SERVER; if it is not set, plumbd's default address.
std::string DefaultServer();

struct WatchOptions {
  std::string server = DefaultServer();
  std::string run;              // empty: all
  std::string rule;             // glob over rules; empty: all
  std::string format = "text";  // or "json": one event per line
  v1::Level min_level = v1::LEVEL_UNSPECIFIED;
  bool once = false;           // prints what exists, then ends
  bool verbose = false;        // prints each finding in full
  double timeout_seconds = 0;  // ends after this time; 0: never
  double status_seconds = 60;  // prints a status line after this time without an event; 0: never
};

// Prints incidents as they happen. If the connection breaks, reconnects and continues after the
// last event. SIGINT and SIGTERM end it with 0. Returns 2 if the server refused the request, or,
// with `once`, if the server could not be reached or does not know the run. Without `once`, waits
// for the server and for the run.
int RunWatch(const WatchOptions& options);

struct QueryOptions {
  std::string server = DefaultServer();
  std::string run;   // empty: all
  std::string rule;  // glob over rules; empty: all
  v1::Level min_level = v1::LEVEL_UNSPECIFIED;
  std::string finding;          // only the incident with this finding, which is shown; empty: all
  std::string format = "text";  // or "json"
  // Only for plumb runs: a state as it is printed, a part of the name, the order (empty: the
  // server's).
  std::string state, filter, sort, tag;
  bool all = false;  // also archived and deleted runs
  double timeout_seconds = 10;
};

// Each prints data of the server. Returns 0, or 2 if the server could not be reached or does not
// know the run.
int RunRuns(const QueryOptions& options);
// Retries (`retry`) or drops a run in quarantine. Returns 0, or 2 if the server refused.
int UpdateQuarantined(const QueryOptions& options, bool retry);
struct RunEditOptions {
  std::string server = DefaultServer();
  v1::RunEdit edit;             // without a name: that of the user
  std::string format = "text";  // or "json"
  double timeout_seconds = 10;
};
// Changes what people add to a run, and prints the result. Returns 0, or 2 if the server refused.
int EditRun(const RunEditOptions& options);
// Return the labels as lines of text, and as a JSON object.
std::string LabelsText(const v1::RunLabels& labels);
std::string LabelsJson(const v1::RunLabels& labels);
// Returns the name of the user that runs this program.
std::string UserName();

int QueryIncidents(const QueryOptions& options);
int QueryVerdicts(const QueryOptions& options);
int QueryInfo(const QueryOptions& options);

struct IncidentOptions {
  std::string server = DefaultServer();
  std::string fingerprint;  // or its first digits
  bool acknowledge = false;
  bool reopen = false;
  std::string silence_until;  // a step, a time, or a duration: see ParseUntil
  std::string who;            // empty: the name of the user
  std::string reason;
  std::string format = "text";  // or "json"
  double timeout_seconds = 10;
};

// QueryHistory prints the history of one incident. UpdateIncident changes its state first, if
// requested. Both return 2 if there is no such incident, no reason was given, or no server
// answered.
int QueryHistory(const IncidentOptions& options);
int UpdateIncident(const IncidentOptions& options);

// Parses "1200" (a step), "30m", "12h", "7d" (a duration from `now_unix_ns`), and "2026-11-30" or
// "2026-11-30T12:00" (a local time). Otherwise returns false.
bool ParseUntil(const std::string& text, int64_t now_unix_ns, v1::IncidentUpdate* update);

struct SeriesOptions {
  std::string server = DefaultServer();
  std::string run;
  std::string series;  // glob; if empty, the series are listed
  std::vector<uint32_t> ranks;
  std::string role;  // "trainer" or "rollout"; if empty: see QuerySeriesRequest
  std::optional<uint32_t> attempt;
  std::optional<int64_t> first, last;  // steps
  uint64_t last_steps = 0;
  uint64_t cells = 0;  // 0: the server chooses
  bool over_ranks = false;
  std::string format = "text";  // or "json" (one series per line), "csv" (one cell per line)
  double timeout_seconds = 30;
};

// Returns 2 if there is no such run, no such series, or no server.
int QuerySeries(const SeriesOptions& options);

struct CapsuleOptions {
  std::string server = DefaultServer();
  std::string finding;  // fingerprint, or its first digits
  std::string output;   // a directory that is empty or does not exist
  bool anew = false;    // capture again, even if the server holds a capsule
  bool judged = false;  // use the journal's evidence of the finding's steps instead
  bool quiet = false;
  double timeout_seconds = 60;  // time to wait for the ranks
};

// Fetches the evidence of a finding into a directory that plumb audit can judge again. Returns 0 if
// the evidence is complete. Returns 2 if nothing came, or if some ranks are missing: then writes
// the evidence that came, and prints the missing ranks.
int RunCapsule(const CapsuleOptions& options);

struct DoctorOptions {
  std::string server = DefaultServer();
  bool server_requested = false;  // the user named it, so its absence is a failure
  double timeout_seconds = 5;     // time to wait for the test finding
};

// Checks all that is needed to watch a trainer. Returns 0 if everything required works, otherwise
// 1.
int RunDoctor(const DoctorOptions& options);

// Prints the libraries that the package contains, with their versions. A build that was not made by
// tools/package contains none, and the output states that. Returns the exit status.
int PrintLibraries();

// Adds --token-file, --tls-ca, --tls-cert and --tls-key. They set the environment variables that
// clients read (transport/credentials.h), for this process and its children. They take files, not
// secrets, because every user of the host can read a command line.
void AddCredentials(CLI::App* command);

// Declares watch, runs, query, capsule and doctor. The parsed command stores its exit status in
// *status.
void RegisterLive(CLI::App& app, int* status);

}  // namespace plumbline::audit
