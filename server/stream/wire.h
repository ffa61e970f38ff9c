// Messages as they come from gRPC.
#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "plumbline/v1/ingest.pb.h"
#include "server/journal/entry.h"

namespace plumbline::server {

// An empty message that lies, with all that is parsed into it, in few blocks of memory of its own,
// made for `wire_bytes`: taking a batch apart into hundreds of allocations, and freeing them on
// another thread, costs more than parsing it.
std::shared_ptr<v1::AgentMessage> NewAgentMessage(size_t wire_bytes);

// False: no valid AgentMessage; `message` then holds what was understood.
bool ParseAgentMessage(grpc::ByteBuffer& buffer, v1::AgentMessage* message);

// What a message from an agent is about, read without parsing the rest.
struct MessageHead {
  int member = 0;          // field number in AgentMessage.what; 0: none, or not read
  uint64_t stream_id = 0;  // 0: none
};

// Returns an empty head if the bytes are no message or hold more than one member of
// AgentMessage.what. A parser merges two members, so their head would not be that of the whole.
MessageHead HeadOf(const grpc::ByteBuffer& agent_message);

// CRC-32C of those bytes.
uint32_t Checksum(const WireBytes& bytes);

// The bytes of the batch in `buffer`, which parsed to `message`, shared with it. A message that
// says more than its batch (a newer agent's, or one written in pieces) has its batch written anew.
WireBytes BatchBytes(grpc::ByteBuffer& buffer, const v1::AgentMessage& message);

}  // namespace plumbline::server
