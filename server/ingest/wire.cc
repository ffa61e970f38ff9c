#include "server/ingest/wire.h"

#include <google/protobuf/io/coded_stream.h>
#include <grpcpp/support/proto_buffer_reader.h>

namespace plumbline::server {

bool ParseAgentMessage(grpc::ByteBuffer& buffer, v1::AgentMessage* message) {
  grpc::ProtoBufferReader reader(&buffer);
  return reader.status().ok() && message->ParseFromZeroCopyStream(&reader);
}

WireBytes BatchBytes(grpc::ByteBuffer& buffer, const v1::AgentMessage& message) {
  constexpr uint32_t kBatchTag = (v1::AgentMessage::kBatchFieldNumber << 3) | 2;
  constexpr uint32_t kBacklogTag = (v1::AgentMessage::kBacklogFieldNumber << 3) | 2;
  const size_t total = buffer.Length();
  grpc::ProtoBufferReader reader(&buffer);
  google::protobuf::io::CodedInputStream in(&reader);
  uint32_t size = 0, tag = in.ReadTag();
  if (tag == kBacklogTag && in.ReadVarint32(&size) && in.Skip(static_cast<int>(size))) {
    tag = in.ReadTag();
  }
  if (tag == kBatchTag && in.ReadVarint32(&size)) {
    const auto head = static_cast<size_t>(in.CurrentPosition());
    if (head + size == total) return WireBytes(buffer, head);
  }
  return WireBytes(message.batch().SerializeAsString());
}

}  // namespace plumbline::server
