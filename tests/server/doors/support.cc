#include "tests/server/doors/support.h"

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <stdexcept>

#include "tests/server/ingest/raw_call.h"

namespace plumbline::test {
namespace {

std::chrono::system_clock::time_point Soon() {
  return std::chrono::system_clock::now() + kPatience;
}

}  // namespace

std::string WriteSecret(const TempFolder& folder, const std::string& name,
                        const std::string& text) {
  const std::string path = folder.File(name);
  const std::string fresh = path + ".new";
  std::ofstream(fresh) << text;
  chmod(fresh.c_str(), 0600);
  rename(fresh.c_str(), path.c_str());
  return path;
}

TestToken NewToken(const TempFolder& folder, const std::string& name) {
  TestToken token;
  token.file = folder.File(name);
  const Ended plumbd = RunToEnd({PLUMBD_PROGRAM, "--new-token", token.file});
  if (plumbd.status != 0) throw std::runtime_error(plumbd.errors);
  token.line = plumbd.output;
  return token;
}

std::unique_ptr<Plumbd> StartWith(const TempFolder& folder, const std::string& toml,
                                  std::vector<std::string> options) {
  options.insert(options.begin(), {"--config", folder.Write("plumbd.toml", toml)});
  return std::make_unique<Plumbd>(std::move(options));
}

Ended CheckedConfig(const TempFolder& folder, const std::string& toml) {
  return RunToEnd(
      {PLUMBD_PROGRAM, "--config", folder.Write("plumbd.toml", toml), "--check-config"});
}

std::shared_ptr<grpc::Channel> ChannelTo(const std::string& address,
                                         const transport::Credentials& credentials) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  auto channel = transport::OpenChannel(address, credentials, arguments);
  if (!channel.ok()) throw std::runtime_error(std::string(channel.status().message()));
  return *channel;
}

grpc::Status ListRuns(const std::shared_ptr<grpc::Channel>& channel) {
  grpc::ClientContext context;
  context.set_deadline(Soon());
  v1::ListRunsResponse response;
  return v1::Query::NewStub(channel)->ListRuns(&context, {}, &response);
}

grpc::Status Silence(const std::shared_ptr<grpc::Channel>& channel,
                     const std::string& fingerprint) {
  grpc::ClientContext context;
  context.set_deadline(Soon());
  v1::UpdateIncidentRequest request;
  request.mutable_update()->set_fingerprint(fingerprint);
  request.mutable_update()->set_who("tester");
  request.mutable_update()->set_reason("a test");
  request.mutable_update()->set_action(v1::IncidentUpdate::ACTION_ACKNOWLEDGE);
  v1::UpdateIncidentResponse response;
  return v1::Query::NewStub(channel)->UpdateIncident(&context, request, &response);
}

grpc::Status SendBytes(const std::shared_ptr<grpc::Channel>& channel,
                       const std::vector<std::string>& messages) {
  RawCall call(channel, kAgentStream);
  for (const std::string& message : messages) {
    if (!call.Write(message)) break;
  }
  return call.Finish();
}

std::string HelloBytes(uint64_t stream_id, const std::vector<v1::Source>& sources) {
  v1::AgentMessage message;
  v1::Hello& hello = *message.mutable_hello();
  hello.set_stream_id(stream_id);
  hello.set_protocol(1);
  hello.set_next_sequence(1);
  for (const v1::Source& source : sources) *hello.add_sources() = source;
  return message.SerializeAsString();
}

std::string BatchBytes(v1::Batch batch, uint64_t stream_id, uint64_t sequence) {
  v1::AgentMessage message;
  *message.mutable_batch() = std::move(batch);
  message.mutable_batch()->set_stream_id(stream_id);
  message.mutable_batch()->set_sequence(sequence);
  return message.SerializeAsString();
}

uint64_t PeakMiB(const Process& process) {
  std::ifstream status("/proc/" + std::to_string(process.pid()) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("VmHWM:", 0) == 0) return std::stoull(line.substr(6)) / 1024;
  }
  return 0;
}

}  // namespace plumbline::test
