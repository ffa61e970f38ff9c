// Calls a server with bytes instead of messages: any method, and invalid requests.
#pragma once

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

namespace plumbline::test {

inline constexpr char kAgentStream[] = "/plumbline.v1.Ingest/Stream";

// Ends after kPatience at the latest. The caller must wait for its end: by Finish, Ended or Status.
class RawCall {
 public:
  RawCall(const std::shared_ptr<grpc::Channel>& channel, const std::string& path);

  bool Write(const std::string& bytes);     // false: the call is over
  void WritesDone();                        // closes the sending side
  bool Read(std::string* bytes = nullptr);  // reads the next message; false: there is none
  void Cancel() { context_.TryCancel(); }

  grpc::Status Finish();  // closes the sending side, and reads until the server ends the call
  grpc::Status Ended();   // reads until the server ends the call
  grpc::Status Status();  // of a call without further reads

 private:
  bool Next();

  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
  bool ok_ = false;
};

// The result of one request.
struct Answer {
  grpc::Status status;
  std::string bytes;  // of the first message
};
Answer CallOnce(const std::shared_ptr<grpc::Channel>& channel, const std::string& path,
                const std::string& request);

}  // namespace plumbline::test
