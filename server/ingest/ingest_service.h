// v1::Ingest: one bidirectional stream per agent process. The agent sends numbered batches, the
// server cumulative acknowledgements. Uses the callback API, so that a stream needs no thread.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "server/access/gate.h"
#include "server/capsules/capsule_keeper.h"
#include "server/journal/journal.h"
#include "server/journal/stream_positions.h"
#include "server/judge/judge.h"
#include "server/process/counters.h"
#include "server/stopping/stop_sender.h"
#include "server/stream/batch_checks.h"
#include "server/stream/sequencer.h"
#include "server/stream/shares.h"
#include "transport/redact.h"

namespace grpc {
class Service;
}

namespace plumbline::server {

struct IngestOptions {
  std::string server_version;
  BatchLimits limits;
  Sequencer::Limits waiting;
  size_t max_streams = 20000;
  size_t max_ranks = 200'000;
  Shares shares;
  int64_t window_steps = 64;                                     // of the engine
  std::chrono::nanoseconds patience = std::chrono::seconds(30);  // the judge's grace; see pacer.h
  size_t max_runs = 10000;
  size_t max_series = 100000;  // names of one run
  uint64_t name_bytes = 0;     // memory for the names of all runs; 0: no limit
  // batches of all streams that arrived before a gap was filled; 0: no limit
  uint64_t waiting_bytes = 0;
  std::chrono::nanoseconds hello_within = std::chrono::seconds(30);
  uint64_t ack_batches = 8;
  std::chrono::nanoseconds ack_delay = std::chrono::seconds(1);
  // Null: ids are kept unchanged.
  std::shared_ptr<const transport::Redactor> redactor;
};

// The components that send requests to agents. Null: there is none.
struct Askers {
  CapsuleKeeper* capsules = nullptr;
  StopSender* stops = nullptr;
};

class IngestService {
 public:
  virtual ~IngestService() = default;

  // Creates the service. `known` are the streams of an earlier process. All pointers must outlive
  // the service; the journal must be stopped before the service is destroyed.
  static std::unique_ptr<IngestService> Create(const IngestOptions& options,
                                               const StreamPositions& known, Journal* journal,
                                               Judge* judge, Gate* gate, Counters* counters,
                                               Askers askers = {});

  virtual grpc::Service* service() = 0;
  // Acknowledges held batches and ends every stream with UNAVAILABLE. Agents keep the other batches
  // and reconnect.
  virtual void Shutdown() = 0;
  virtual size_t connected() const = 0;
};

}  // namespace plumbline::server
