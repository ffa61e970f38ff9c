// Handles the HTTP sockets: one thread reads the heads of requests and writes answers, of all
// connections at once. Workers get only complete requests. So a slow sender or receiver delays no
// other connection.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "server/http/event_source.h"
#include "server/http/http_connection.h"
#include "server/http/listener.h"
#include "server/http/request_head.h"
#include "server/http/tls_context.h"
#include "server/process/counters.h"

namespace plumbline::server {

class HttpFront {
 public:
  // All bytes of the answer to a request. If `events` is set, events follow the answer, and the
  // connection is used for nothing else.
  struct Reply {
    std::string bytes;
    std::shared_ptr<EventSource> events;
  };
  // Called on several threads.
  using Answer = std::function<Reply(const RequestHead& request)>;

  static constexpr size_t kMostConnections = 512;
  static constexpr size_t kWorkers = 8;
  // limit of answers that wait to be read, of all connections
  static constexpr size_t kMostAnswerBytes = 64 << 20;
  static constexpr std::chrono::seconds kRequest{5};    // for a complete head, with TLS
  static constexpr std::chrono::seconds kKeepAlive{5};  // between two requests
  static constexpr std::chrono::seconds kTake{30};      // for an answer to be read
  // for a refused peer to read the reason
  static constexpr std::chrono::milliseconds kLinger{1000};
  static constexpr int kMostRequests = 100;                     // of one connection
  static constexpr size_t kMostEventPeers = 128;                // connections that receive events
  static constexpr std::chrono::milliseconds kEventPause{100};  // between two checks for events

  // `tls` null: plain. `counters` must outlive it.
  HttpFront(Listener listener, std::unique_ptr<TlsFiles> tls, Answer answer, Counters* counters);
  ~HttpFront();  // stops

 private:
  using Clock = std::chrono::steady_clock;
  enum class Phase { kHandshake, kHead, kWorking, kAnswer, kEvents, kEnding };
  struct Peer {
    std::unique_ptr<HttpConnection> connection;
    Phase phase = Phase::kHandshake;
    Clock::time_point since{}, deadline{};  // of the phase
    short polled = POLLIN;                  // events to wait for
    std::string in;
    size_t seen = 0;  // bytes of `in` that were searched for the end of the head
    std::string out;
    size_t written = 0;
    bool last = false;  // the connection closes after this answer
    int requests = 0;
    size_t dropped = 0;                   // bytes that arrived after the end
    std::shared_ptr<EventSource> events;  // null: it gets answers
  };
  using Peers = std::unordered_map<uint64_t, Peer>;
  struct Job {
    uint64_t peer;
    RequestHead request;
  };
  struct Done {
    uint64_t peer;
    Reply reply;
  };

  void Loop();
  void Wait(Clock::time_point now);
  void Accept(Clock::time_point now);
  void DropOldest();
  void TakeDone(Clock::time_point now);
  void TakeReply(Reply reply, Peer* peer, Clock::time_point now);
  void TakeEvents(Clock::time_point now);
  void EndOverdue(Clock::time_point now);
  // Returns false if the connection is over.
  bool Advance(uint64_t id, Peer* peer, Clock::time_point now);
  bool ReadHead(uint64_t id, Peer* peer, Clock::time_point now);
  bool WriteAnswer(Peer* peer, Clock::time_point now);
  static bool ReadNextToEvents(Peer* peer);
  bool ReadToTheEnd(Peer* peer);
  void Begin(Peer* peer, Phase phase, Clock::duration allowed, Clock::time_point now);
  void Refuse(Peer* peer, int status, Clock::time_point now);
  void Remove(Peers::iterator peer);
  void Work();
  void Wake() const;

  const Listener listener_;
  const std::unique_ptr<TlsFiles> tls_;
  const Answer answer_;
  Counters* const counters_;
  const int wake_;

  // Used only by the loop.
  Peers peers_;
  uint64_t next_id_ = 1;
  size_t answer_bytes_ = 0;
  size_t working_ = 0;      // peers whose request a worker handles
  size_t event_peers_ = 0;  // that have a source of events
  Clock::time_point next_events_{};
  Clock::time_point accept_after_{};
  std::vector<pollfd> polled_;
  std::vector<uint64_t> polled_ids_;

  Mutex mutex_;  // guards what follows
  CondVar wanted_;
  std::deque<Job> jobs_ PLUMB_GUARDED_BY(mutex_);
  std::vector<Done> done_ PLUMB_GUARDED_BY(mutex_);
  bool stopped_ PLUMB_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace plumbline::server
