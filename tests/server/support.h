// The test's own plumbd, an agent's side of the protocol, and batches to send.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "plumbline/v1/ingest.grpc.pb.h"
#include "plumbline/v1/query.grpc.pb.h"
#include "tests/support/batches.h"
#include "tests/support/eventually.h"
#include "tests/support/files.h"
#include "tests/support/process.h"

namespace plumbline::test {

// plumbd on a free loopback port. If address() is empty, it did not start; see errors().
class Plumbd {
 public:
  explicit Plumbd(std::vector<std::string> options = {}, std::vector<std::string> environment = {},
                  const std::string& program = "");  // another build's program
  // Starts plumbd on the port of an earlier one.
  static std::unique_ptr<Plumbd> At(const std::string& address);

  const std::string& address() const { return address_; }
  Process& process() { return *process_; }
  std::shared_ptr<grpc::Channel> Channel() const;
  int Stop();  // SIGTERM

  std::optional<v1::RunInfo> Run(const std::string& run) const;
  // Returns the finding with this fingerprint; empty if no incident has it.
  v1::Finding Finding(const std::string& fingerprint) const;
  // Returns the status of each of the Incidents.
  std::vector<v1::IncidentStatus> Statuses(const std::string& run = "",
                                           const std::string& rule = "") const;
  std::vector<v1::Incident> Incidents(const std::string& run = "",
                                      const std::string& rule = "") const;
  v1::ListVerdictsResponse Verdicts(const std::string& run) const;
  v1::ServerInfo Info() const;

 private:
  TempFolder folder_;
  std::unique_ptr<Process> process_;
  std::string address_;
};

// One agent: sends a hello at once; the caller numbers its batches.
class AgentStream {
 public:
  AgentStream(const Plumbd& server, uint64_t stream_id, std::vector<v1::Source> sources,
              uint64_t next_sequence = 1, bool directives = false);
  AgentStream(std::shared_ptr<grpc::Channel> channel, uint64_t stream_id,
              std::vector<v1::Source> sources, uint64_t next_sequence = 1, bool directives = false);
  ~AgentStream();

  bool Send(v1::Batch batch, uint64_t sequence);  // fills in stream_id and sequence
  bool SendRaw(const v1::AgentMessage& message);
  // Closes the sending side, and waits for the end. Returns its status.
  grpc::Status Finish();
  // Drops the connection like a killed process.
  void Break();

  // Wait for an answer of the server, up to kPatience.
  bool Welcomed(uint64_t* acknowledged = nullptr);
  bool Acknowledged(uint64_t sequence);
  std::string RejectedReason(uint64_t sequence);  // empty: was not rejected in time
  grpc::Status Ended();                           // waits for the server to end the stream
  uint64_t acks() const;
  uint64_t acknowledged() const;  // so far
  bool over() const;              // the call has ended
  // Waits for and returns the first directive not returned before for which `wanted` is true.
  std::optional<v1::Directive> NextDirective(
      const std::function<bool(const v1::Directive&)>& wanted);
  size_t directives() const;  // so far

 private:
  void ReadLoop();
  bool WaitFor(const std::function<bool()>& condition);

  grpc::ClientContext context_;
  std::unique_ptr<v1::Ingest::Stub> stub_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::AgentMessage, v1::ServerMessage>> stream_;
  uint64_t stream_id_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<uint64_t> welcome_;
  uint64_t acknowledged_ = 0;
  uint64_t acks_ = 0;
  std::map<uint64_t, std::string> rejected_;
  std::vector<v1::Directive> directives_;
  size_t directives_given_ = 0;
  bool ended_ = false;
  grpc::Status status_;
  std::thread reader_;
};

// Returns a step of one rank whose router leaks; the step is complete with it.
v1::Batch LeakingStep(const v1::Source& source, int64_t step,
                      const std::string& layer = "layers.0");
// Returns a step with one value of a series.
v1::Batch ScalarStep(const v1::Source& source, int64_t step, double value = 1.0);
v1::Batch Goodbye(const v1::Source& source, int64_t last_step);

}  // namespace plumbline::test
