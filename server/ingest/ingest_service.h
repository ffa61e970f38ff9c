// v1::Ingest: one bidirectional stream per agent process. Numbered batches come up, cumulative
// acknowledgements go down. The callback API: no thread per stream.
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
  uint64_t name_bytes = 0;     // that names of all runs take; 0: no bound
  uint64_t waiting_bytes = 0;  // batches of all streams that arrived ahead of a gap; 0: no bound
  std::chrono::nanoseconds hello_within = std::chrono::seconds(30);
  uint64_t ack_batches = 8;
  std::chrono::nanoseconds ack_delay = std::chrono::seconds(1);
  // Null: ids are kept as they come.
  std::shared_ptr<const transport::Redactor> redactor;
};

// Who asks agents for something. Null: nobody does.
struct Askers {
  CapsuleKeeper* capsules = nullptr;
  StopSender* stops = nullptr;
};

class IngestService {
 public:
  virtual ~IngestService() = default;

  // `known` are the streams of a former process. All pointers must outlive the service; the journal
  // must be stopped before it goes.
  static std::unique_ptr<IngestService> Create(const IngestOptions& options,
                                               const StreamPositions& known, Journal* journal,
                                               Judge* judge, Gate* gate, Counters* counters,
                                               Askers askers = {});

  virtual grpc::Service* service() = 0;
  // Acknowledges what is held and ends every stream with UNAVAILABLE: agents keep the rest and
  // come back.
  virtual void Shutdown() = 0;
  virtual size_t connected() const = 0;
};

}  // namespace plumbline::server
