// Shared by the tests of plumbd's entry points: a server with a configuration, secrets in files,
// channels with credentials.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/server/http_support.h"
#include "tests/server/support.h"
#include "transport/credentials.h"

namespace plumbline::test {

// Writes `text` to a file that only we can read. Returns its path.
std::string WriteSecret(const TempFolder& folder, const std::string& name, const std::string& text);

// A token: the client's file, and the line for the server's file.
struct TestToken {
  std::string file, line;
};
TestToken NewToken(const TempFolder& folder, const std::string& name);

// Writes a configuration file of these lines in `folder`, and starts plumbd with it.
std::unique_ptr<Plumbd> StartWith(const TempFolder& folder, const std::string& toml,
                                  std::vector<std::string> options = {});
// Returns plumbd's output for such a file with --check-config.
Ended CheckedConfig(const TempFolder& folder, const std::string& toml);

std::shared_ptr<grpc::Channel> ChannelTo(const std::string& address,
                                         const transport::Credentials& credentials);

// Sends one query, or one update of an incident that does not exist.
grpc::Status ListRuns(const std::shared_ptr<grpc::Channel>& channel);
grpc::Status Silence(const std::shared_ptr<grpc::Channel>& channel,
                     const std::string& fingerprint = "00");

// Sends `hello` (if any) and then `messages`, unchanged; returns the server's final status.
grpc::Status SendBytes(const std::shared_ptr<grpc::Channel>& channel,
                       const std::vector<std::string>& messages);

std::string HelloBytes(uint64_t stream_id, const std::vector<v1::Source>& sources);
std::string BatchBytes(v1::Batch batch, uint64_t stream_id, uint64_t sequence);

// Returns the peak resident memory of a process, in MiB.
uint64_t PeakMiB(const Process& process);

}  // namespace plumbline::test
