// Tests the head of an agent's message, which is read without the other fields.
#include "server/stream/wire.h"

#include <gtest/gtest.h>

#include "tests/support/batches.h"

namespace plumbline::server {
namespace {

grpc::ByteBuffer Bytes(const std::string& bytes) {
  const grpc::Slice slice(bytes);
  return grpc::ByteBuffer(&slice, 1);
}
MessageHead HeadOfBytes(const std::string& bytes) { return HeadOf(Bytes(bytes)); }

v1::AgentMessage BatchOfStream(uint64_t id) {
  v1::AgentMessage message;
  *message.mutable_batch() = test::BatchOf(test::SourceOf("run"));
  message.mutable_batch()->set_stream_id(id);
  return message;
}

TEST(WireHead, IsThatOfTheMember) {
  v1::AgentMessage message = BatchOfStream(7);
  message.mutable_backlog()->set_unsent_batches(3);
  const MessageHead head = HeadOfBytes(message.SerializeAsString());
  EXPECT_EQ(head.member, v1::AgentMessage::kBatchFieldNumber);
  EXPECT_EQ(head.stream_id, 7u);
  message.mutable_goodbye()->set_stream_id(9);
  EXPECT_EQ(HeadOfBytes(message.SerializeAsString()).member, v1::AgentMessage::kGoodbyeFieldNumber);
  EXPECT_EQ(HeadOfBytes(message.SerializeAsString()).stream_id, 9u);
}

TEST(WireHead, OfTwoMembersIsNone) {
  const std::string first = BatchOfStream(7).SerializeAsString();
  const std::string second = BatchOfStream(8).SerializeAsString();
  EXPECT_EQ(HeadOfBytes(first + second).stream_id, 0u);
  EXPECT_EQ(HeadOfBytes(first + second).member, 0);
  v1::AgentMessage hello;
  hello.mutable_hello()->set_stream_id(7);
  EXPECT_EQ(HeadOfBytes(hello.SerializeAsString() + first).member, 0);
}

TEST(WireHead, IsNotReadFromWhatStandsNextToIt) {
  // A fixed64 number 1 in the backlog, where other members have their stream.
  const std::string backlog = std::string("\x2a\x09\x09", 3) + std::string("\x08\0\0\0\0\0\0\0", 8);
  const MessageHead head = HeadOfBytes(BatchOfStream(7).SerializeAsString() + backlog);
  EXPECT_EQ(head.stream_id, 7u);
  EXPECT_EQ(HeadOfBytes(backlog).member, 0);
}

TEST(WireHead, OfDamagedBytesIsNone) {
  const std::string bytes = BatchOfStream(7).SerializeAsString();
  for (size_t size = 0; size < bytes.size(); ++size)
    EXPECT_EQ(HeadOfBytes(bytes.substr(0, size)).stream_id, 0u) << size;
  EXPECT_EQ(HeadOfBytes("\x08\x01").member, 0);
  EXPECT_EQ(HeadOfBytes(std::string(64, '\xff')).member, 0);
}

}  // namespace
}  // namespace plumbline::server
