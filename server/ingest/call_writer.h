// The writing half of a call from an agent or a relay. Performs one operation at a time, queues
// acknowledgements, and ends the call once everything is written.
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

// Not thread-safe: the owner's lock guards it, also in gRPC's callbacks.
class CallWriter {
 public:
  using Call = grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>;

  // `call` must outlive it.
  explicit CallWriter(Call* call) : call_(call) {}

  void Report(v1::ServerMessage message);
  // SendAck writes the stream's acknowledgement now, with its end if `ended` is given. Owe queues
  // it.
  void SendAck(CallStream* call_stream, const grpc::Status* ended = nullptr);
  void Owe(const std::shared_ptr<CallStream>& call_stream);
  // Count batches whose refusal is on its way to the journal, or subtract refusals that will not be
  // written.
  void ExpectRefusals(size_t count) { refusals_ += static_cast<int64_t>(count); }
  void DropRefusals(size_t count) { refusals_ -= static_cast<int64_t>(count); }
  // Ends the call once all of the above is written. The first reason counts; returns false if there
  // was an earlier one.
  bool End(const grpc::Status& status);
  // Must be called when a write has ended.
  void Written(bool ok);

  bool ending() const { return ending_; }
  // Returns the number of answers that are not written yet: messages, and refusals of batches.
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
  bool broken_ = false;  // a write failed: the peer is gone
  bool ending_ = false;
  bool finished_ = false;
  grpc::Status status_;
};

}  // namespace plumbline::server
