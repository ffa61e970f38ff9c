// The writing half of a call from an agent or a relay: one operation at a time, acknowledgements
// gathered until their turn, the end of the call when nothing is owed any more.
#pragma once

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>

#include "plumbline/v1/ingest.pb.h"
#include "server/ingest/call_stream.h"

namespace plumbline::server {

// Not thread-safe: its owner's lock guards it, also where gRPC calls back.
class CallWriter {
 public:
  using Call = grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>;

  // `call` must outlive it.
  explicit CallWriter(Call* call) : call_(call) {}

  void Say(v1::ServerMessage message);
  // What the stream is owed: now, with the word that its stream has ended or without; or in
  // its turn.
  void SayAck(CallStream* call_stream, const grpc::Status* ended = nullptr);
  void Owe(const std::shared_ptr<CallStream>& call_stream);
  // Counts batches whose refusal is on its way to the journal, or takes back refusals that will not
  // be written.
  void ExpectRefusals(size_t count) { refusals_ += static_cast<int64_t>(count); }
  void DropRefusals(size_t count) { refusals_ -= static_cast<int64_t>(count); }
  // Ends the call once all of the above is written. The first reason wins; false: it was not this
  // one.
  bool End(const grpc::Status& status);
  // Of a write that was started.
  void Written(bool ok);

  bool ending() const { return ending_; }
  // Answers that are not written yet: messages, and refusals of batches.
  size_t unwritten() const {
    return queue_.size() + static_cast<size_t>(std::max<int64_t>(refusals_, 0));
  }

 private:
  void Pump();

  Call* const call_;
  std::deque<std::shared_ptr<CallStream>> owed_;
  std::deque<v1::ServerMessage> queue_;
  grpc::ByteBuffer outgoing_;
  size_t outgoing_refusals_ = 0;
  int64_t refusals_ = 0;  // a refusal may be held before it is expected
  bool writing_ = false;
  bool broken_ = false;  // a write failed: nobody listens
  bool ending_ = false;
  bool finished_ = false;
  grpc::Status status_;
};

}  // namespace plumbline::server
