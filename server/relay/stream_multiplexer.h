// Many agents' streams over one call to the server above: who gets which answer.
//
// It keeps no batch: an agent holds what the server above has not acknowledged, and sends it again
// when the call breaks. So what is acknowledged to an agent was acknowledged above, and (stream id,
// sequence) pass unchanged: exactly once from end to end.
#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "plumbline/v1/ingest.pb.h"
#include "transport/connection.h"

namespace plumbline::server {

// One agent's end. Called from any thread, never while the multiplexer holds a lock.
class Line {
 public:
  virtual ~Line() = default;
  virtual void Write(const grpc::ByteBuffer& message) = 0;  // a v1::ServerMessage
  virtual void End(const grpc::Status& status) = 0;
  virtual void Resume() = 0;  // there is room again
};

// Thread-safe.
class StreamMultiplexer : public std::enable_shared_from_this<StreamMultiplexer> {
 public:
  // `credentials`: who we are for the server above.
  StreamMultiplexer(const std::string& target, transport::Credentials credentials);
  ~StreamMultiplexer();

  // A stream begins: its hello goes up, and what comes down for it goes to `line`. An older line of
  // that stream is ended. Calls the server above when nobody has.
  void Open(uint64_t stream_id, const std::shared_ptr<Line>& line, v1::Hello hello);
  // False: much is waiting to go up; Resume will be called.
  bool Send(uint64_t stream_id, const std::shared_ptr<Line>& line, const grpc::ByteBuffer& message);
  // The line is gone: says goodbye for its stream.
  void Close(uint64_t stream_id, const Line* line);

  // Ends every line and the call above.
  void Shutdown();

  struct Counters {
    std::atomic<uint64_t> calls{0};      // made upwards
    std::atomic<uint64_t> forwarded{0};  // messages of agents
    std::atomic<uint64_t> unrouted{0};   // messages from above that no line waits for
  };
  const Counters& counters() const { return counters_; }

 private:
  class Upstream;
  std::shared_ptr<Upstream> CallLocked(grpc::Status* why) PLUMB_REQUIRES(mutex_);
  void OnMessage(const Upstream* from, const grpc::ByteBuffer& buffer);
  void OnRoom(const Upstream* from);
  void OnEnded(const Upstream* from, const grpc::Status& status);
  std::shared_ptr<Line> Find(uint64_t stream_id);
  void KeepDialling();

  const std::string target_;
  transport::StreamConfig config_;
  Counters counters_;
  Mutex mutex_;
  std::shared_ptr<grpc::Channel> channel_ PLUMB_GUARDED_BY(mutex_);  // null: to be made
  bool shut_ PLUMB_GUARDED_BY(mutex_) = false;
  std::shared_ptr<Upstream> upstream_ PLUMB_GUARDED_BY(mutex_);  // the call; null: none
  std::unordered_map<uint64_t, std::shared_ptr<Line>> lines_ PLUMB_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<Line>> waiting_ PLUMB_GUARDED_BY(mutex_);  // for room
  std::atomic<bool> dialling_{true};
  std::thread dialler_;  // last: it uses the others
};

}  // namespace plumbline::server
