// Messages of v1::Ingest as gRPC buffers.
#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <cstdint>
#include <memory>
#include <string>

#include "plumbline/v1/ingest.pb.h"

namespace plumbline::transport {

// Returns "/plumbline.v1.Ingest/Stream".
std::string StreamMethod();

// Returns AgentMessage{backlog, batch} without parsing or copying the body. `number` (BatchNumber)
// is appended to it; empty if the body has it already. `unsent`: batches that wait to be sent after
// it.
grpc::ByteBuffer FrameBatch(std::shared_ptr<const std::string> body, const std::string& number,
                            uint64_t unsent);

grpc::ByteBuffer Frame(const v1::AgentMessage& message);

bool Parse(const grpc::ByteBuffer& buffer, v1::ServerMessage* message);

}  // namespace plumbline::transport
