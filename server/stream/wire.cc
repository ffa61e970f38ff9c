#include "server/stream/wire.h"

#include <google/protobuf/arena.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>
#include <grpcpp/support/proto_buffer_reader.h>

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "base/crc32c.h"

namespace plumbline::server {
namespace {

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;

constexpr int kStreamIdField = 1;  // of every member of AgentMessage.what

// Reads a member of `size` bytes. Returns false if it is not a valid message.
bool ReadStreamId(CodedInputStream* in, int size, uint64_t* id) {
  const auto limit = in->PushLimit(size);
  while (const uint32_t tag = in->ReadTag()) {
    const bool is_id = WireFormatLite::GetTagFieldNumber(tag) == kStreamIdField &&
                       WireFormatLite::GetTagWireType(tag) == WireFormatLite::WIRETYPE_FIXED64;
    if (is_id ? !in->ReadLittleEndian64(id) : !WireFormatLite::SkipField(in, tag)) return false;
  }
  const bool whole = in->BytesUntilLimit() == 0;  // a missing tag looks like the end
  return in->CheckEntireMessageConsumedAndPopLimit(limit) && whole;
}

}  // namespace

std::shared_ptr<v1::AgentMessage> NewAgentMessage(size_t wire_bytes) {
  google::protobuf::ArenaOptions options;
  // Numbers take at least as much memory as on the wire; small items take a few hundred bytes each.
  // Protobuf allocates nodes with pointers from the end of the block, so the size must be a
  // multiple of 8.
  const size_t wanted = (wire_bytes + wire_bytes / 2 + 1024) / 64 * 64;
  options.start_block_size = std::min<size_t>(wanted, 64 << 10);
  options.max_block_size = 64 << 10;
  const auto arena = std::make_shared<google::protobuf::Arena>(options);
  auto* message = google::protobuf::Arena::CreateMessage<v1::AgentMessage>(arena.get());
  return {arena, message};
}

MessageHead HeadOf(const grpc::ByteBuffer& agent_message) {
  grpc::ByteBuffer shared(agent_message);
  grpc::ProtoBufferReader reader(&shared);
  if (!reader.status().ok()) return {};
  CodedInputStream in(&reader);
  MessageHead head;
  while (const uint32_t tag = in.ReadTag()) {
    int size = 0;
    if (WireFormatLite::GetTagWireType(tag) != WireFormatLite::WIRETYPE_LENGTH_DELIMITED ||
        !in.ReadVarintSizeAsInt(&size)) {
      return {};  // every member of AgentMessage is a message
    }
    const int member = WireFormatLite::GetTagFieldNumber(tag);
    if (member == v1::AgentMessage::kBacklogFieldNumber) {
      if (!in.Skip(size)) return {};
      continue;
    }
    if (std::exchange(head.member, member) != 0) return {};
    if (!ReadStreamId(&in, size, &head.stream_id)) return {};
  }
  return in.ConsumedEntireMessage() ? head : MessageHead();
}

bool ParseAgentMessage(grpc::ByteBuffer& buffer, v1::AgentMessage* message) {
  grpc::ProtoBufferReader reader(&buffer);
  return reader.status().ok() && message->ParseFromZeroCopyStream(&reader);
}

uint32_t Checksum(const WireBytes& bytes) {
  std::vector<std::string_view> parts;
  bytes.AddTo(&parts);
  uint32_t crc = 0;
  for (const std::string_view part : parts) crc = Crc32c(part.data(), part.size(), crc);
  return crc;
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
