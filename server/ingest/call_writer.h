// The writing half of a call from an agent or a relay: one operation at a time, acknowledgements
// gathered until their turn, the end of the call when nothing is owed any more.
#pragma once

#include <grpcpp/grpcpp.h>

#include <cstddef>
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
  // Ends the call once all of the above is written. The first reason wins; false: it was not this
  // one.
  bool End(const grpc::Status& status);
  // Of a write that was started.
  void Written(bool ok);

  bool ending() const { return ending_; }
  size_t waiting() const { return queue_.size(); }

 private:
  void Pump();

  Call* const call_;
  std::deque<std::shared_ptr<CallStream>> owed_;
  std::deque<v1::ServerMessage> queue_;
  grpc::ByteBuffer outgoing_;
  bool writing_ = false;
  bool broken_ = false;  // a write failed: nobody listens
  bool ending_ = false;
  bool finished_ = false;
  grpc::Status status_;
};

}  // namespace plumbline::server
