// Messages as they come from gRPC.
#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "plumbline/v1/ingest.pb.h"
#include "server/journal/entry.h"

namespace plumbline::server {

// Returns an empty message with an arena of a few blocks, sized for `wire_bytes`. Hundreds of
// separate allocations for a batch, freed on another thread, would cost more than parsing it.
std::shared_ptr<v1::AgentMessage> NewAgentMessage(size_t wire_bytes);

// Returns false if the bytes are not a valid AgentMessage; `message` then holds the part that was
// parsed.
bool ParseAgentMessage(grpc::ByteBuffer& buffer, v1::AgentMessage* message);

// The type and stream of an agent's message, read without parsing the rest.
struct MessageHead {
  int member = 0;          // field number in AgentMessage.what; 0: none, or not read
  uint64_t stream_id = 0;  // 0: none
};

// Returns an empty head if the bytes are no message or hold more than one member of
// AgentMessage.what. A parser merges two members, so this head would not match the merged message.
MessageHead HeadOf(const grpc::ByteBuffer& agent_message);

// Returns the CRC-32C of the bytes.
uint32_t Checksum(const WireBytes& bytes);

// Returns the bytes of the batch in `buffer`, shared with it; `message` is the parsed buffer. If
// the message holds more than its batch (from a newer agent, or written in pieces), serializes the
// batch again.
WireBytes BatchBytes(grpc::ByteBuffer& buffer, const v1::AgentMessage& message);

}  // namespace plumbline::server
