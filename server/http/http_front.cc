#include "server/http/http_front.h"

#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace plumbline::server {
namespace {

constexpr int kAcceptsAtOnce = 64;
constexpr size_t kReadAfterEnd = 256 << 10;
constexpr std::chrono::milliseconds kNoFiles{100}, kBusy{10};
constexpr std::chrono::hours kEventsLast{24};  // their source ends them long before

}  // namespace

HttpFront::HttpFront(Listener listener, std::unique_ptr<TlsFiles> tls, Answer answer,
                     Counters* counters)
    : listener_(std::move(listener)),
      tls_(std::move(tls)),
      answer_(std::move(answer)),
      counters_(counters),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  threads_.emplace_back([this] { Loop(); });
  for (size_t i = 0; i < kWorkers; ++i) threads_.emplace_back([this] { Work(); });
}

HttpFront::~HttpFront() {
  {
    const MutexLock lock(mutex_);
    stopped_ = true;
  }
  wanted_.NotifyAll();
  Wake();
  for (std::thread& thread : threads_) thread.join();
  close(wake_);
}

void HttpFront::Wake() const {
  const uint64_t one = 1;
  (void)!write(wake_, &one, sizeof one);
}

// ---- the loop ------------------------------------------------------------------------------

void HttpFront::Loop() {
  for (;;) {
    Wait(Clock::now());
    {
      const MutexLock lock(mutex_);
      if (stopped_) return;
    }
    const auto now = Clock::now();
    TakeDone(now);
    TakeEvents(now);
    for (size_t i = 0; i < polled_ids_.size(); ++i) {
      if (polled_[i + 2].revents == 0) continue;
      const auto peer = peers_.find(polled_ids_[i]);
      if (peer == peers_.end() || peer->second.phase == Phase::kWorking) continue;
      if (!Advance(peer->first, &peer->second, now)) Remove(peer);
    }
    EndOverdue(now);
    if ((polled_[1].revents & POLLIN) != 0) Accept(now);
  }
}

void HttpFront::Wait(Clock::time_point now) {
  auto until = now + std::chrono::seconds(1);
  polled_.assign({{wake_, POLLIN, 0}, {now < accept_after_ ? -1 : listener_.socket(), POLLIN, 0}});
  polled_ids_.clear();
  for (const auto& [id, peer] : peers_) {
    if (peer.phase == Phase::kWorking) continue;
    polled_.push_back({peer.connection->socket(), peer.polled, 0});
    polled_ids_.push_back(id);
    until = std::min(until, peer.deadline);
  }
  if (now < accept_after_) until = std::min(until, accept_after_);
  if (event_peers_ > 0) until = std::min(until, next_events_);
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(until - now).count();
  if (poll(polled_.data(), polled_.size(), static_cast<int>(std::max<int64_t>(ms, 0))) < 0) {
    for (pollfd& one : polled_) one.revents = 0;  // interrupted by a signal
  }
  uint64_t unused;
  if ((polled_[0].revents & POLLIN) != 0) (void)!read(wake_, &unused, sizeof unused);
}

void HttpFront::Accept(Clock::time_point now) {
  for (int i = 0; i < kAcceptsAtOnce; ++i) {
    if (working_ >= kMostConnections) {  // further connections wait in the kernel
      accept_after_ = now + kBusy;
      return;
    }
    const int socket = listener_.Accept();
    if (socket < 0) {
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        accept_after_ = now + kNoFiles;
      }
      return;
    }
    SSL_CTX* const context = tls_ == nullptr ? nullptr : tls_->Context();
    if (tls_ != nullptr && context == nullptr) {  // never unencrypted
      close(socket);
      continue;
    }
    if (peers_.size() >= kMostConnections) DropOldest();
    const uint64_t id = next_id_++;
    Peer& peer = peers_[id];
    peer.connection = std::make_unique<HttpConnection>(socket, context);
    Begin(&peer, Phase::kHandshake, kRequest, now);
    if (!Advance(id, &peer, now)) Remove(peers_.find(id));
  }
}

// Drops the oldest connection. Requests are answered within milliseconds, so the oldest one is a
// slow sender or idle.
void HttpFront::DropOldest() {
  auto oldest = peers_.end();
  for (auto it = peers_.begin(); it != peers_.end(); ++it) {
    if (it->second.phase == Phase::kWorking || it->second.events != nullptr) continue;
    if (oldest == peers_.end() || it->second.since < oldest->second.since) oldest = it;
  }
  if (oldest == peers_.end()) return;  // all are being answered at present
  ++counters_->http_dropped;
  Remove(oldest);
}

void HttpFront::EndOverdue(Clock::time_point now) {
  for (auto it = peers_.begin(); it != peers_.end();) {
    const auto at = it++;
    Peer& peer = at->second;
    if (peer.phase == Phase::kWorking || now < peer.deadline) continue;
    const bool idle = peer.phase == Phase::kHead && peer.in.empty() && peer.requests > 0;
    if (!idle && peer.phase != Phase::kEnding) ++counters_->http_slow;
    if (peer.phase == Phase::kHead && !peer.in.empty()) {
      Refuse(&peer, 408, now);
      peer.deadline = now + kLinger;
      if (Advance(at->first, &peer, now)) continue;
    }
    Remove(at);
  }
}

void HttpFront::TakeDone(Clock::time_point now) {
  std::vector<Done> done;
  {
    const MutexLock lock(mutex_);
    done.swap(done_);
  }
  for (Done& one : done) {
    const auto found = peers_.find(one.peer);
    --working_;
    TakeReply(std::move(one.reply), &found->second, now);
    if (!Advance(found->first, &found->second, now)) Remove(found);
  }
}

void HttpFront::TakeReply(Reply reply, Peer* peer, Clock::time_point now) {
  const bool full = answer_bytes_ > 0 && answer_bytes_ + reply.bytes.size() > kMostAnswerBytes;
  if (full || (reply.events != nullptr && event_peers_ >= kMostEventPeers)) {
    Refuse(peer, 503, now);
    return;
  }
  peer->out = std::move(reply.bytes);
  peer->written = 0;
  answer_bytes_ += peer->out.size();
  if (reply.events != nullptr) {
    peer->events = std::move(reply.events);
    ++event_peers_;
  }
  Begin(peer, Phase::kAnswer, kTake, now);
}

// Sends events to peers that have taken the earlier ones.
void HttpFront::TakeEvents(Clock::time_point now) {
  if (event_peers_ == 0 || now < next_events_) return;
  next_events_ = now + kEventPause;
  for (auto it = peers_.begin(); it != peers_.end();) {
    const auto at = it++;
    Peer& peer = at->second;
    if (peer.phase != Phase::kEvents) continue;
    bool over = false;
    peer.out = peer.events->Take(&over);
    peer.written = 0;
    if (over) {
      peer.events.reset();
      --event_peers_;
      peer.last = true;
    }
    if (peer.out.empty() && !over) continue;
    answer_bytes_ += peer.out.size();
    Begin(&peer, Phase::kAnswer, kTake, now);
    if (!Advance(at->first, &peer, now)) Remove(at);
  }
}

// ---- one connection ------------------------------------------------------------------------

void HttpFront::Begin(Peer* peer, Phase phase, Clock::duration allowed, Clock::time_point now) {
  peer->phase = phase;
  peer->since = now;
  peer->deadline = now + allowed;
}

void HttpFront::Remove(Peers::iterator peer) {
  answer_bytes_ -= peer->second.out.size();
  if (peer->second.events != nullptr) --event_peers_;
  peers_.erase(peer);
}

void HttpFront::Refuse(Peer* peer, int status, Clock::time_point now) {
  ++counters_->http_refused;
  peer->out = RefusalOf(status);
  peer->written = 0;
  peer->last = true;
  answer_bytes_ += peer->out.size();
  Begin(peer, Phase::kAnswer, kTake, now);
}

bool HttpFront::Advance(uint64_t id, Peer* peer, Clock::time_point now) {
  if (peer->phase == Phase::kHandshake) {
    const auto outcome = peer->connection->Handshake();
    peer->polled = HttpConnection::EventsOf(outcome);
    if (outcome == HttpConnection::Outcome::kOver) return false;
    if (outcome != HttpConnection::Outcome::kDone) return true;
    peer->phase = Phase::kHead;  // within the remaining time
  }
  for (;;) {
    if (peer->phase == Phase::kHead && !ReadHead(id, peer, now)) return false;
    if (peer->phase != Phase::kAnswer) break;
    if (!WriteAnswer(peer, now)) return false;
    // The next request may have arrived together with the last one.
    if (peer->phase != Phase::kHead) break;
  }
  if (peer->phase == Phase::kEvents) return ReadNextToEvents(peer);
  return peer->phase != Phase::kEnding || ReadToTheEnd(peer);
}

bool HttpFront::ReadHead(uint64_t id, Peer* peer, Clock::time_point now) {
  for (;;) {
    const size_t end = EndOfHead(peer->in, peer->seen);
    if (end != std::string::npos) {
      RequestHead request;
      const int status = ReadRequestHead(std::string_view(peer->in).substr(0, end), &request);
      if (status != 0) return Refuse(peer, status, now), true;
      peer->in.erase(0, end);
      peer->seen = 0;
      if (++peer->requests >= kMostRequests) request.close = true;
      peer->last = request.close;
      Begin(peer, Phase::kWorking, {}, now);
      ++working_;
      {
        const MutexLock lock(mutex_);
        jobs_.push_back({id, std::move(request)});
      }
      wanted_.NotifyOne();
      return true;
    }
    if (peer->in.size() > kMostHeadBytes) return Refuse(peer, 431, now), true;
    peer->seen = peer->in.size();
    const auto outcome = peer->connection->Read(&peer->in);
    if (outcome == HttpConnection::Outcome::kOver) return false;
    if (outcome != HttpConnection::Outcome::kDone) {
      peer->polled = HttpConnection::EventsOf(outcome);
      return true;
    }
    if (peer->seen == 0 && peer->requests > 0) peer->deadline = now + kRequest;
  }
}

bool HttpFront::WriteAnswer(Peer* peer, Clock::time_point now) {
  while (peer->written < peer->out.size()) {
    size_t taken = 0;
    const auto outcome =
        peer->connection->Write(std::string_view(peer->out).substr(peer->written), &taken);
    if (outcome == HttpConnection::Outcome::kOver) return false;
    peer->written += taken;
    if (outcome != HttpConnection::Outcome::kDone) {
      peer->polled = HttpConnection::EventsOf(outcome);
      return true;
    }
  }
  answer_bytes_ -= peer->out.size();
  std::string().swap(peer->out);
  peer->polled = POLLIN;
  if (peer->events != nullptr) return Begin(peer, Phase::kEvents, kEventsLast, now), true;
  if (!peer->last) return Begin(peer, Phase::kHead, kKeepAlive, now), true;
  peer->connection->DescribeEnd();
  Begin(peer, Phase::kEnding, kLinger, now);
  return true;
}

// Reads and ignores data until the peer closes the connection.
bool HttpFront::ReadNextToEvents(Peer* peer) {
  for (;;) {
    const auto outcome = peer->connection->Read(&peer->in);
    peer->in.clear();
    if (outcome == HttpConnection::Outcome::kOver) return false;
    if (outcome != HttpConnection::Outcome::kDone) return true;
  }
}

// Reads the remaining bytes, because if a socket is closed with unread bytes, the peer may lose the
// answer.
bool HttpFront::ReadToTheEnd(Peer* peer) {
  char unread[4096];
  for (;;) {
    const ssize_t n = recv(peer->connection->socket(), unread, sizeof unread, 0);
    if (n < 0) return errno == EAGAIN || errno == EINTR;
    peer->dropped += static_cast<size_t>(n);
    if (n == 0 || peer->dropped > kReadAfterEnd) return false;
  }
}

// ---- workers -------------------------------------------------------------------------------

void HttpFront::Work() {
  MutexLock lock(mutex_);
  for (;;) {
    wanted_.Wait(lock, [this]() PLUMB_REQUIRES(mutex_) { return stopped_ || !jobs_.empty(); });
    if (stopped_) return;
    const Job job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.Unlock();
    Reply reply = answer_(job.request);
    lock.Lock();
    done_.push_back({job.peer, std::move(reply)});
    Wake();
  }
}

}  // namespace plumbline::server
