#include "transport/wire.h"

#include <google/protobuf/io/coded_stream.h>

#include <utility>
#include <vector>

#include "base/crc32c.h"
#include "plumbline/v1/ingest.grpc.pb.h"

namespace plumbline::transport {
namespace {

void ReleaseBody(void* owner) { delete static_cast<std::shared_ptr<const std::string>*>(owner); }

}  // namespace

std::string StreamMethod() {
  return std::string("/") + v1::Ingest::service_full_name() + "/Stream";
}

// Writes the backlog first, then the batch's field key, length, body and number.
grpc::ByteBuffer FrameBatch(std::shared_ptr<const std::string> body, const std::string& number,
                            uint64_t unsent) {
  using google::protobuf::io::CodedOutputStream;
  constexpr uint32_t kLengthDelimited = 2;
  uint8_t head[40];
  uint8_t* end = head;
  v1::AgentMessage adjacent;
  adjacent.mutable_backlog()->set_unsent_batches(unsent);
  adjacent.mutable_backlog()->set_batch_crc32c(
      Crc32c(number.data(), number.size(), Crc32c(body->data(), body->size())));
  end = adjacent.SerializeWithCachedSizesToArray((static_cast<void>(adjacent.ByteSizeLong()), end));
  end = CodedOutputStream::WriteVarint32ToArray(
      (v1::AgentMessage::kBatchFieldNumber << 3) | kLengthDelimited, end);
  end = CodedOutputStream::WriteVarint64ToArray(body->size() + number.size(), end);

  auto* owner = new std::shared_ptr<const std::string>(std::move(body));
  grpc::Slice slices[3] = {
      grpc::Slice(head, static_cast<size_t>(end - head)),
      grpc::Slice(const_cast<char*>((*owner)->data()), (*owner)->size(), ReleaseBody, owner),
      grpc::Slice(number)};
  return grpc::ByteBuffer(slices, 3);
}

grpc::ByteBuffer Frame(const v1::AgentMessage& message) {
  grpc::Slice slice(message.SerializeAsString());
  return grpc::ByteBuffer(&slice, 1);
}

bool Parse(const grpc::ByteBuffer& buffer, v1::ServerMessage* message) {
  std::vector<grpc::Slice> slices;
  if (!buffer.Dump(&slices).ok()) return false;
  std::string bytes;
  for (const grpc::Slice& s : slices)
    bytes.append(reinterpret_cast<const char*>(s.begin()), s.size());
  return message->ParseFromString(bytes);
}

}  // namespace plumbline::transport
