// The server of the stream benchmark: parses and counts every batch, and acknowledges each eighth.
// Prints its address, then serves until it is killed.
#include <grpcpp/grpcpp.h>

#include <cstdio>
#include <string>

#include "plumbline/v1/ingest.grpc.pb.h"

namespace {

class Service : public plumbline::v1::Ingest::Service {
  grpc::Status Stream(grpc::ServerContext*,
                      grpc::ServerReaderWriter<plumbline::v1::ServerMessage,
                                               plumbline::v1::AgentMessage>* io) override {
    plumbline::v1::AgentMessage message;
    plumbline::v1::ServerMessage reply;
    uint64_t newest = 0;
    while (io->Read(&message)) {
      reply.Clear();
      if (message.has_hello()) {
        reply.mutable_welcome()->set_acknowledged(newest);
      } else if (message.has_batch()) {
        newest = message.batch().sequence();
        if (newest % 8 != 0 && message.batch().evidence_size() > 100) continue;
        reply.mutable_ack()->set_sequence(newest);
      } else {
        continue;
      }
      io->Write(reply);
    }
    return grpc::Status::OK;
  }
};

}  // namespace

int main() {
  Service service;
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.SetMaxReceiveMessageSize(64 << 20);
  builder.RegisterService(&service);
  const auto server = builder.BuildAndStart();
  if (server == nullptr || port == 0) return 1;
  std::printf("127.0.0.1:%d\n", port);
  std::fflush(stdout);
  server->Wait();
}
