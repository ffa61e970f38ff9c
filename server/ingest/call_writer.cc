#include "server/ingest/call_writer.h"

#include <utility>

#include "plumbline/v1/ingest.grpc.pb.h"

namespace plumbline::server {
namespace {

v1::ServerMessage AckOf(CallStream* call_stream) {
  v1::ServerMessage message;
  *message.mutable_ack() = call_stream->acks.Take();
  message.mutable_ack()->set_stream_id(call_stream->stream_id);
  message.mutable_ack()->set_line(call_stream->line);
  return message;
}

}  // namespace

void CallWriter::Report(v1::ServerMessage message) {
  queue_.push_back(std::move(message));
  Pump();
}

void CallWriter::SendAck(CallStream* call_stream, const grpc::Status* ended) {
  v1::ServerMessage message = AckOf(call_stream);
  v1::Ack& ack = *message.mutable_ack();
  if (ended != nullptr) {
    ack.set_ended(ended->error_message());
    ack.set_ended_code(ended->error_code());
  }
  Report(std::move(message));
}

void CallWriter::Owe(const std::shared_ptr<CallStream>& call_stream) {
  if (!std::exchange(call_stream->owed, true)) owed_.push_back(call_stream);
  Pump();
}

bool CallWriter::End(const grpc::Status& status) {
  if (std::exchange(ending_, true)) return false;
  status_ = status;
  Pump();
  return true;
}

void CallWriter::Written(bool ok) {
  writing_ = false;
  broken_ |= !ok;
  DropRefusals(std::exchange(outgoing_refusals_, 0));
  Pump();
}

void CallWriter::Pump() {
  if (writing_ || finished_) return;
  while (!broken_ && queue_.empty() && !owed_.empty()) {
    const std::shared_ptr<CallStream> call_stream = std::move(owed_.front());
    owed_.pop_front();
    call_stream->owed = false;
    if (call_stream->over || !call_stream->acks.anything()) continue;
    queue_.push_back(AckOf(call_stream.get()));
  }
  if (!broken_ && !queue_.empty()) {
    outgoing_.Clear();
    bool own_buffer = false;
    grpc::SerializationTraits<v1::ServerMessage>::Serialize(queue_.front(), &outgoing_,
                                                            &own_buffer);
    outgoing_refusals_ = static_cast<size_t>(queue_.front().ack().rejected_size());
    queue_.pop_front();
    writing_ = true;
    call_->StartWrite(&outgoing_);
    return;
  }
  if (!ending_) return;
  finished_ = true;
  call_->Finish(status_);
}

}  // namespace plumbline::server
