// Carries the streams of many agents over one call to the upstream server, and passes each answer
// to the agent of its stream.
//
// It stores no batch: an agent keeps the batches that the upstream server has not acknowledged, and
// sends them again when the call breaks. So a batch that is acknowledged to an agent was
// acknowledged upstream. (stream id, sequence) pass unchanged: delivery is exactly once from end to
// end.
#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "plumbline/v1/ingest.pb.h"
#include "transport/connection.h"

namespace plumbline::server {

// The relay's side of one agent. Called from any thread, never while the multiplexer holds a lock.
class Line {
 public:
  virtual ~Line() = default;
  virtual void Write(const grpc::ByteBuffer& message) = 0;  // a v1::ServerMessage
  virtual void End(const grpc::Status& status) = 0;
  virtual void Resume() = 0;  // its stream is welcomed, or there is space again
};

// Thread-safe.
class StreamMultiplexer : public std::enable_shared_from_this<StreamMultiplexer> {
 public:
  // `credentials`: those of the relay for the upstream server.
  StreamMultiplexer(const std::string& target, transport::Credentials credentials);
  ~StreamMultiplexer();

  // Begins a stream: sends its hello to the upstream server, and opens the call if there is none.
  // When the server welcomes it, `line` is resumed and may send; only then is an older line of that
  // stream ended. Returns the number of the line.
  uint64_t Open(uint64_t stream_id, const std::shared_ptr<Line>& line, v1::Hello hello);
  // Returns false if too many bytes wait to be sent; then Resume will be called.
  bool Send(uint64_t stream_id, const std::shared_ptr<Line>& line, const grpc::ByteBuffer& message);
  // Sends a goodbye for the stream of the line `number`, which is gone.
  void Close(uint64_t stream_id, uint64_t number);

  // Ends every line and the upstream call.
  void Shutdown();

  struct Counters {
    std::atomic<uint64_t> calls{0};      // to the upstream server
    std::atomic<uint64_t> forwarded{0};  // messages of agents
    std::atomic<uint64_t> unrouted{0};   // messages from upstream for which there is no line
    std::atomic<uint64_t> unread{0};     // lines ended because their processes read no answers
  };
  Counters& counters() { return counters_; }

 private:
  class Upstream;
  std::shared_ptr<Upstream> CallLocked(grpc::Status* why) PLUMB_REQUIRES(mutex_);
  void OnMessage(const Upstream* from, const grpc::ByteBuffer& buffer);
  void OnRoom(const Upstream* from);
  void OnEnded(const Upstream* from, const grpc::Status& status);
  // A process's connection, welcomed or not.
  struct Carried {
    uint64_t number = 0;
    uint64_t stream_id = 0;
    std::shared_ptr<Line> line;  // null: it ended before the answer to its hello
  };
  Carried TakePendingLocked(uint64_t stream_id, uint64_t number) PLUMB_REQUIRES(mutex_);
  std::vector<std::shared_ptr<Line>> TakeAllLocked() PLUMB_REQUIRES(mutex_);
  void OnWelcome(const v1::Welcome& welcome, const grpc::ByteBuffer& buffer);
  void OnStreamEnded(const v1::Ack& ack);
  void HandDown(uint64_t stream_id, uint64_t number, const grpc::ByteBuffer& buffer);
  grpc::Status ReasonFor(const grpc::Status& status);
  void FindFault(const grpc::Status& status);
  void KeepDialling();

  const std::string target_;
  transport::StreamConfig config_;
  Counters counters_;
  Mutex mutex_;
  std::shared_ptr<grpc::Channel> channel_ PLUMB_GUARDED_BY(mutex_);  // null: to be made
  bool shut_ PLUMB_GUARDED_BY(mutex_) = false;
  // The reason why the upstream server is not reached, if waiting does not help; empty: not known.
  std::string fault_ PLUMB_GUARDED_BY(mutex_);
  std::chrono::steady_clock::time_point next_probe_ PLUMB_GUARDED_BY(mutex_);
  std::string logged_ PLUMB_GUARDED_BY(mutex_);  // the last reason of an ended call in the log
  std::shared_ptr<Upstream> upstream_ PLUMB_GUARDED_BY(mutex_);  // the call; null: none
  uint64_t last_number_ PLUMB_GUARDED_BY(mutex_) = 0;
  std::unordered_map<uint64_t, Carried> lines_ PLUMB_GUARDED_BY(mutex_);  // welcomed, by stream
  std::map<uint64_t, Carried> pending_ PLUMB_GUARDED_BY(mutex_);          // the others, by number
  std::vector<std::shared_ptr<Line>> waiting_ PLUMB_GUARDED_BY(mutex_);   // for space
  std::atomic<bool> dialling_{true};
  std::thread dialler_;  // last member, because it uses the others
};

}  // namespace plumbline::server
