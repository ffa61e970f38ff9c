#include "tests/server/ingest/raw_call.h"

#include <chrono>
#include <vector>

#include "tests/server/support.h"

namespace plumbline::test {

RawCall::RawCall(const std::shared_ptr<grpc::Channel>& channel, const std::string& path)
    : stub_(channel) {
  context_.set_deadline(std::chrono::system_clock::now() + kPatience);
  call_ = stub_.PrepareCall(&context_, path, &queue_);
  call_->StartCall(this);
  ok_ = Next();
}

bool RawCall::Write(const std::string& bytes) {
  if (!ok_) return false;
  const grpc::Slice slice(bytes);
  call_->Write(grpc::ByteBuffer(&slice, 1), this);
  return ok_ = Next();
}

void RawCall::WritesDone() {
  if (!ok_) return;
  call_->WritesDone(this);
  Next();
}

bool RawCall::Read(std::string* bytes) {
  grpc::ByteBuffer buffer;
  call_->Read(&buffer, this);
  if (!Next()) return false;
  if (bytes == nullptr) return true;
  std::vector<grpc::Slice> slices;
  (void)buffer.Dump(&slices);
  bytes->clear();
  for (const grpc::Slice& s : slices) {
    bytes->append(reinterpret_cast<const char*>(s.begin()), s.size());
  }
  return true;
}

grpc::Status RawCall::Finish() {
  WritesDone();
  return Ended();
}

grpc::Status RawCall::Ended() {
  while (Read()) {
  }
  return Status();
}

grpc::Status RawCall::Status() {
  grpc::Status status;
  call_->Finish(&status, this);
  Next();
  return status;
}

bool RawCall::Next() {
  void* tag = nullptr;
  bool ok = false;
  return queue_.Next(&tag, &ok) && ok;
}

Answer CallOnce(const std::shared_ptr<grpc::Channel>& channel, const std::string& path,
                const std::string& request) {
  RawCall call(channel, path);
  call.Write(request);
  call.WritesDone();
  Answer answer;
  if (call.Read(&answer.bytes)) call.Cancel();  // a stream would continue
  answer.status = call.Status();
  return answer;
}

}  // namespace plumbline::test
