// One stream of a call. A call from an agent has one, a call from a relay has many.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "server/ingest/ack_policy.h"
#include "server/ingest/intake.h"

namespace plumbline::server {

class CallStream;

// The interface of the call for its streams. Thread-safe.
class CallStreamOwner {
 public:
  virtual ~CallStreamOwner() = default;
  virtual void OnHeld(const std::shared_ptr<CallStream>& call_stream, uint64_t sequence,
                      bool at_once) = 0;
  virtual void OnRefused(const std::shared_ptr<CallStream>& call_stream, uint64_t sequence,
                         const std::string& reason) = 0;
  virtual void OnSuperseded(const std::shared_ptr<CallStream>& call_stream) = 0;
  virtual void Resume() = 0;
  virtual void OnDirective(const std::shared_ptr<CallStream>& call_stream,
                           const v1::Directive& directive) = 0;
};

// The owner uses the public members and guards them by the owner's lock.
class CallStream : public Connection, public std::enable_shared_from_this<CallStream> {
 public:
  CallStream(std::weak_ptr<CallStreamOwner> owner, const v1::Hello& hello, bool is_shared,
             uint64_t ack_batches)
      : stream_id(hello.stream_id()),
        line(hello.line()),
        shared(is_shared),
        acks(ack_batches),
        owner_(std::move(owner)) {}

  void OnHeld(uint64_t sequence, bool at_once) override {
    if (auto owner = owner_.lock()) owner->OnHeld(shared_from_this(), sequence, at_once);
  }
  void OnRefused(uint64_t sequence, const std::string& reason) override {
    if (auto owner = owner_.lock()) owner->OnRefused(shared_from_this(), sequence, reason);
  }
  void OnSuperseded() override {
    if (auto owner = owner_.lock()) owner->OnSuperseded(shared_from_this());
  }
  void Resume() override {
    if (auto owner = owner_.lock()) owner->Resume();
  }
  void OnDirective(const v1::Directive& directive) override {
    if (auto owner = owner_.lock()) owner->OnDirective(shared_from_this(), directive);
  }

  const void* call() const override { return owner_.lock().get(); }

  const uint64_t stream_id;
  const uint64_t line;  // the relay's number of the connection; 0: none
  const bool shared;    // true if the call continues after this stream ends
  Intake::Joined joined;
  AckPolicy acks;
  bool welcomed = false;
  bool over = false;    // nothing more is sent to it
  bool yields = false;  // a newer hello of the same call is being checked
  // set while it yields: another connection took its stream over, possibly the newer one
  bool superseded = false;
  bool scheduled = false;  // a timer will check `acks`
  bool owed = false;       // an acknowledgement of it is queued

 private:
  const std::weak_ptr<CallStreamOwner> owner_;
};

}  // namespace plumbline::server
