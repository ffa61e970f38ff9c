// Shared parts of the agent's tests: directories, router calls, records read back, counts of
// produced, received and lost items, and a real gRPC server that records batches.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "agent/core/run/run.h"
#include "plumbline/plumbline.h"
#include "plumbline/v1/batch.pb.h"
#include "plumbline/v1/ingest.pb.h"
#include "tests/support/files.h"

namespace plumbline::agent::testing {

using test::TempFolder;

// A router call in host memory, as C callers pass it.
class RouterCall {
 public:
  RouterCall(int64_t tokens, int64_t experts, int64_t k, uint32_t seed = 1);
  plumbline_routing_t& get() { return routing_; }
  std::vector<float>& scores() { return scores_; }
  std::vector<int64_t>& topk() { return topk_; }
  DLTensor& scores_tensor() { return scores_tensor_; }
  uint64_t sample_bytes() const { return scores_.size() * 4 + topk_.size() * 8; }

 private:
  std::vector<float> scores_;
  std::vector<int64_t> topk_;
  int64_t scores_shape_[2], topk_shape_[2];
  DLTensor scores_tensor_{}, topk_tensor_{};
  plumbline_routing_t routing_ = PLUMBLINE_ROUTING_INIT;
};

// A run of the core with one call for each operation; every failure is a test failure.
class TestRun {
 public:
  explicit TestRun(AgentOptions options);
  Run& run() { return *run_; }
  Site* RoutingSite(const std::string& layer);
  bool Due(const std::string& layer, int64_t step) const;
  plumbline_status_t Observe(const std::string& layer, int64_t step, RouterCall& call);
  const char* error() const { return error_.text; }
  plumbline_status_t Close(uint32_t timeout_ms = 10000);

 private:
  std::unique_ptr<Run> run_;
  struct Declared {
    Site* site = nullptr;
    uint64_t next_due = 0;
  };
  std::map<std::string, std::unique_ptr<Declared>> sites_;
  plumbline_error_t error_{};
};

// The share of one core that this idle process uses over some seconds: the smallest of up to five
// measurements, until one is below `enough`. On a busy machine waking costs more.
double IdleCpuShare(double enough);

AgentOptions RecordOptions(const std::string& dir);
AgentOptions ServerOptions(const std::string& target);

// Replaces each scalar that was sent in columns with an evidence item. `batches` are all batches of
// their streams: a set may be declared after its rows if a batch was refused.
void RowsToEvidence(std::vector<v1::Batch>* batches);

// The path of the record that a run with RecordOptions writes.
std::string FirstRecord(const std::string& dir);

// The batches of a record, after its header is checked, with rows as evidence. A truncated end is
// allowed, damage is a failure.
std::vector<v1::Batch> ReadRecord(const std::string& path);

using SiteKey = std::pair<std::string, std::string>;

// The items that batches hold, and those that they report as missing. "sample-…" causes count
// samples, not items.
struct Account {
  uint64_t items = 0;
  uint64_t samples = 0;
  uint64_t lost = 0;
  uint64_t samples_lost = 0;
  std::map<SiteKey, uint64_t> items_by_site;
  std::map<SiteKey, uint64_t> lost_by_site;
  std::map<std::string, uint64_t> lost_by_cause;
  std::map<SiteKey, std::string> declared;  // kind
  int64_t complete_through = -1;
  bool finished = false;

  void Add(const v1::Batch& batch);
};
Account AccountOf(const std::vector<v1::Batch>& batches);

struct ServerBehaviour {
  uint64_t ack_every = 1;                        // batches
  bool ack = true;                               // false: accepts everything, acknowledges nothing
  std::function<bool(const v1::Batch&)> refuse;  // answered by Ack.rejected
  v1::Directive directive;                       // sent with each welcome, if set
};

// A v1::Ingest server on a free loopback port, which it keeps for its whole life. It stores
// received batches by stream and sequence, as a server with a journal does.
class RecordingServer {
 public:
  explicit RecordingServer(ServerBehaviour behaviour = {});
  ~RecordingServer();

  std::string target() const;  // "127.0.0.1:PORT"
  void Start();
  // Breaks every stream at once, like a killed process. With keep_unacknowledged false, received
  // batches without acknowledgement are forgotten, as after a crash before the commit.
  void Kill(bool keep_unacknowledged);
  void ForgetEverything();

  // Stored batches in sequence order. Fails the test if there is a gap or a second stream.
  std::vector<v1::Batch> Batches() const;
  // The same for each stream.
  std::map<uint64_t, std::vector<v1::Batch>> Streams() const;
  uint64_t duplicates() const;  // batches that were received again
  uint64_t heartbeats() const;
  v1::Heartbeat heartbeat() const;  // the last
  uint64_t hellos() const;
  std::string capsule() const;  // the data of the received capsule parts, concatenated
  // Returns true if the condition on the stored batches becomes true in time.
  bool WaitFor(const std::function<bool(const Account&)>& condition) const;

 private:
  class Service;
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace plumbline::agent::testing
