// What plumbd can be told, on the command line and in a TOML file. The command line wins.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/settings/alert_config.h"
#include "server/settings/config_mistakes.h"

namespace plumbline::server {

// One [[access]]: who shows all that it names may do what `scopes` says, to runs that match.
struct AccessEntry {
  std::string name;  // in messages and in the history of incidents
  std::string san;   // glob over names of one kind in a client's certificate ("dns:", which may be
                     // left out, "uri:", "email:"); empty: none is asked for
  std::string token_file;                 // tokens that are accepted; empty: none is asked for
  std::vector<std::string> scopes;        // read, write, admin
  std::vector<std::string> runs = {"*"};  // globs
  // Of streams, runs, ranks and open steps, that this entry may use; 0: one half where there are
  // several entries that may write, else all.
  double share = 0;

  bool operator==(const AccessEntry&) const = default;
};

struct Config {
  // [listen]
  std::string grpc = "127.0.0.1:7433";  // port 0: any free one
  std::string http = "127.0.0.1:7434";  // "off": no HTTP
  bool insecure = false;    // allows addresses off loopback although nothing is encrypted
  bool reflection = false;  // gRPC reflection

  // [tls]: of both addresses. Paths of PEM files
  std::string tls_cert, tls_key;  // empty: nothing is encrypted
  std::string tls_client_ca;      // gRPC clients must show a certificate of these authorities
  std::string tls_revoked;        // certificates of clients that are accepted no more; empty: none

  // [[access]]; empty: whoever reaches an address may do everything
  std::vector<AccessEntry> access;

  // [data]
  std::string data_directory;  // must exist or be creatable; empty: none

  // [relay]
  std::string relay_upstream;  // HOST:PORT of the server above; empty: this one judges itself
  std::string relay_tls_ca, relay_tls_cert, relay_tls_key, relay_token_file;  // who we are there

  // [redact]
  bool redact_ids = false;      // token and sequence ids are kept as keyed hashes
  std::string redact_key_file;  // of mode 0600: the key, at least 16 bytes

  // [ingest]
  double grace_seconds = 30;         // a broken stream may come back for this long
  double ack_seconds = 1;            // an acknowledgement waits at most this long
  int64_t ack_batches = 8;           // ... or for this many batches
  int64_t queue_bytes = 256 << 20;   // batches that wait for the rules; above it reading stops
  int64_t message_bytes = 64 << 20;  // one message
  int64_t waiting_batches = 64;      // of one stream, that arrived ahead of a gap
  int64_t waiting_bytes = 16 << 20;
  int64_t max_streams = 20000;   // remembered, connected or not
  int64_t max_name_bytes = 512;  // run, layer, op, host, ...
  int64_t max_series = 100'000;  // names of series and sites of one run; more are refused
  int64_t max_ranks = 200'000;   // that connected streams speak for
  int64_t max_runs = 10'000;     // that go on, and as many that are over (run_shares.h)
  double hello_seconds = 30;     // a connection shakes hands and a call says hello in time, or ends

  // [limits]: of all together
  int64_t open_bytes = 0;     // open steps, as the rules count them; 0: a quarter of the memory
  int64_t name_bytes = 0;     // names of series and sites, and lists of them; 0: a sixteenth
  int64_t receive_bytes = 0;  // messages that have come in part; 0: an eighth of the memory

  // [journal]: what --data keeps
  std::string journal_sync = "commit";     // commit, interval or never: docs/decisions/0010
  double journal_sync_seconds = 1;         // of "interval"
  double journal_commit_ms = 5;            // a batch waits at most so long for company
  int64_t journal_commit_bytes = 4 << 20;  // ... or for so many bytes
  int64_t journal_segment_bytes = 128 << 20;
  bool journal_compress = false;
  bool journal_pack = true;      // what is no more written to: docs/decisions/0028
  double journal_keep_days = 0;  // older segments go; 0: no limit
  // Raw rows and token lists go after so long, but for those that a finding was judged from; series
  // and summaries stay. 0: no limit.
  double journal_keep_sample_days = 14;
  // Of all segments; 0: no limit; -1: the smaller of 50 GiB and half of what is free at the start.
  int64_t journal_keep_bytes = -1;

  // [checkpoint]: a restart judges again what came after the newest one
  int64_t checkpoint_bytes = 256 << 20;  // written after so much evidence was judged
  double checkpoint_seconds = 60;        // ... or after so long

  // [store]: scalars, kept for queries
  int64_t store_bytes = int64_t{64} << 30;  // of its file; the oldest go first. 0: no limit
  double store_days = 0;                    // that it keeps them; 0: no limit

  // [incidents]
  int64_t quiet_steps = 1000;  // an incident that is not found again for so long is resolved

  // [capsules]: what a finding was judged from, from every rank; kept under --data
  std::string capsule_take = "error";  // of findings of this level, unasked; "off": none
  int64_t capsule_rank_bytes = 8 << 20;
  int64_t capsule_bytes = int64_t{1} << 30;  // of all; the oldest go
  int64_t capsule_ranks = 64;                // of one capsule
  int64_t capsule_per_run = 16;              // taken unasked
  int64_t capsule_dense_steps = 8;           // sampled densely at the site of such a finding

  // [liveness]
  double hang_seconds = 10;  // ranks that stand still for so long, and 5 median steps, hang
  double between_steps_seconds = 60;  // a run without a step for so long, and 20 median steps

  // [suppressions]
  std::string suppressions_file;  // empty: none; read again when it changes, and on SIGHUP
  // [alerts] and [[alerts.route]]: who is told of incidents
  AlertConfig alerts;

  // [rules]
  std::vector<std::string> rules;     // globs; empty: all
  std::vector<std::string> settings;  // "RULE.OPTION=VALUE"
  int64_t window_steps = 64;          // W: a rank this far behind is closed over

  // [log]
  std::string log_level = "info";  // trace debug info warning error off

  bool operator==(const Config&) const = default;
};

// Reads `path` over `config`; what is wrong with its keys goes to `mistakes`. Errors: it cannot be
// read, or is no TOML.
absl::Status LoadConfigFile(const std::string& path, Config* config, ConfigMistakes* mistakes);

// All keys that a file may have, "table.key", in order.
std::vector<std::string> ConfigKeys();

// Ranges, addresses, words, and what must or must not stand together.
void ValidateConfig(const Config& config, ConfigMistakes* mistakes);
absl::Status ValidateConfig(const Config& config);

// The files that it names, and its rules and their settings: what a start would refuse besides.
void CheckConfigFiles(const Config& config, ConfigMistakes* mistakes);

// "127.0.0.1:7433", "[::1]:0", "localhost:7433", "unix:/run/plumbd.sock".
bool IsLoopback(const std::string& address);

}  // namespace plumbline::server
