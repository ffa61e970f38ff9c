// plumbd's options, on the command line and in a TOML file. The command line has precedence.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/settings/alert_config.h"
#include "server/settings/config_mistakes.h"

namespace plumbline::server {

// One [[access]]: a caller with all of its credentials has its `scopes` for matching runs.
struct AccessEntry {
  std::string name;  // in messages and in the history of incidents
  // glob over names of one kind in a client's certificate ("dns:", which may be left out, "uri:",
  // "email:"); empty: not required
  std::string san;
  std::string token_file;                 // accepted tokens; empty: not required
  std::vector<std::string> scopes;        // read, write, admin
  std::vector<std::string> runs = {"*"};  // globs
  // The share of streams, runs, ranks and open steps that this entry may use; 0: one half if
  // several entries may write, else all.
  double share = 0;

  bool operator==(const AccessEntry&) const = default;
};

struct Config {
  // [listen]
  std::string grpc = "127.0.0.1:7433";  // port 0: any free one
  std::string http = "127.0.0.1:7434";  // "off": no HTTP
  bool insecure = false;    // allows addresses off loopback although nothing is encrypted
  bool reflection = false;  // gRPC reflection

  // [tls]: for both addresses. Paths of PEM files
  std::string tls_cert, tls_key;  // empty: no encryption
  std::string tls_client_ca;      // gRPC clients must have a certificate of these authorities
  std::string tls_revoked;        // revoked certificates of clients; empty: none

  // [[access]]; empty: any caller may do everything
  std::vector<AccessEntry> access;

  // [data]
  std::string data_directory;  // must exist or be creatable; empty: none

  // [relay]
  std::string relay_upstream;  // HOST:PORT of the next server; empty: this one judges itself
  // our credentials there
  std::string relay_tls_ca, relay_tls_cert, relay_tls_key, relay_token_file;

  // [redact]
  bool redact_ids = false;      // token and sequence ids are stored as keyed hashes
  std::string redact_key_file;  // of mode 0600: the key, at least 16 bytes

  // [ingest]
  double grace_seconds = 30;         // a broken stream may return for this long
  double ack_seconds = 1;            // an acknowledgement waits at most this long
  int64_t ack_batches = 8;           // an acknowledgement waits for at most this many batches
  int64_t queue_bytes = 256 << 20;   // batches that wait for the rules; beyond it reading stops
  int64_t message_bytes = 64 << 20;  // one message
  int64_t waiting_batches = 64;      // batches of one stream that arrived before a gap was filled
  int64_t waiting_bytes = 16 << 20;
  int64_t max_streams = 20000;   // remembered, connected or not
  int64_t max_name_bytes = 512;  // run, layer, op, host, ...
  int64_t max_series = 100'000;  // names of series and sites of one run; more are refused
  int64_t max_ranks = 200'000;   // number of ranks of all connected streams
  int64_t max_runs = 10'000;     // in progress, and as many that are over (run_shares.h)
  double hello_seconds = 30;     // time limit of a connection's handshake and of a call's hello

  // [limits]: for everything together
  int64_t open_bytes = 0;     // open steps, as the rules count them; 0: a quarter of the memory
  int64_t name_bytes = 0;     // names of series and sites, and lists of them; 0: a sixteenth
  int64_t receive_bytes = 0;  // incomplete messages; 0: an eighth of the memory

  // [journal]: files under --data
  std::string journal_sync = "commit";  // commit, interval or never: docs/decisions/0010
  double journal_sync_seconds = 1;      // of "interval"
  double journal_commit_ms = 5;  // a batch waits at most this long to be committed with others
  int64_t journal_commit_bytes = 4 << 20;  // ... or for this many bytes
  int64_t journal_segment_bytes = 128 << 20;
  bool journal_compress = false;
  bool journal_pack = true;      // segments that are no longer written: docs/decisions/0028
  double journal_keep_days = 0;  // older segments are removed; 0: no limit
  // Raw rows and token lists are removed after this time, except those of a finding; series and
  // summaries stay. 0: no limit.
  double journal_keep_sample_days = 14;
  // Limit of all segments; 0: no limit; -1: the smaller of 50 GiB and half of the free space at the
  // start.
  int64_t journal_keep_bytes = -1;

  // [checkpoint]: a restart judges the entries after the newest checkpoint again
  int64_t checkpoint_bytes = 256 << 20;  // written after this much evidence was judged
  double checkpoint_seconds = 60;        // ... or after this time

  // [store]: limits of the stored scalars; the oldest are removed first. 0: no limit
  int64_t store_bytes = int64_t{64} << 30;
  double store_days = 0;  // age limit; 0: no limit

  // [incidents]
  int64_t quiet_steps = 1000;  // an incident that is not found again for this long is resolved

  // [capsules]: the inputs of a finding, from every rank; stored under --data
  std::string capsule_take = "error";  // automatically for findings of this level; "off": never
  int64_t capsule_rank_bytes = 8 << 20;
  int64_t capsule_bytes = int64_t{1} << 30;  // of all; the oldest are removed
  int64_t capsule_ranks = 64;                // of one capsule
  int64_t capsule_per_run = 16;              // taken automatically
  int64_t capsule_dense_steps = 8;           // number of steps that are sampled densely at the site
                                             // of such a finding

  // [liveness]
  double hang_seconds = 10;  // a rank hangs if it has no progress for this long and for 5 median
                             // steps
  // a run has stopped if it begins no step for this long and for 20 median steps
  double between_steps_seconds = 60;

  // [suppressions]
  std::string suppressions_file;  // empty: none; read again if it changes, and on SIGHUP
  // [alerts] and [[alerts.route]]: receivers of alerts
  AlertConfig alerts;

  // [rules]
  std::vector<std::string> rules;     // globs; empty: all
  std::vector<std::string> settings;  // "RULE.OPTION=VALUE"
  int64_t window_steps = 64;          // W: a rank that is this many steps late is closed over

  // [log]
  std::string log_level = "info";  // trace debug info warning error off

  bool operator==(const Config&) const = default;
};

// Reads `path` over `config` and adds mistakes in its keys to `mistakes`. Returns an error if it
// cannot be read, or is not TOML.
absl::Status LoadConfigFile(const std::string& path, Config* config, ConfigMistakes* mistakes);

// Returns all keys that a file may have, "table.key", in order.
std::vector<std::string> ConfigKeys();

// Checks ranges, addresses and words, and options that require or exclude each other.
void ValidateConfig(const Config& config, ConfigMistakes* mistakes);
absl::Status ValidateConfig(const Config& config);

// Checks the files that it names, and its rules and their settings: everything else that a start
// would refuse.
void CheckConfigFiles(const Config& config, ConfigMistakes* mistakes);

// Returns true for "127.0.0.1:7433", "[::1]:0", "localhost:7433", "unix:/run/plumbd.sock".
bool IsLoopback(const std::string& address);

}  // namespace plumbline::server
