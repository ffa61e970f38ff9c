// The client's identity and the servers that it trusts: files, named by environment variables. No
// secret comes from a command line, and none is ever printed.
//
// PLUMBLINE_TLS_CA      authorities of trusted servers (PEM), or "system"; turns TLS on
// PLUMBLINE_TLS_CERT    our certificate (PEM), for servers that ask for one (mTLS)
// PLUMBLINE_TLS_KEY     ... and its key (PEM), mode 0600
// PLUMBLINE_TOKEN_FILE  our token, the first line that is not a comment, mode 0600
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace plumbline::transport {

struct Credentials {
  std::string tls_ca, tls_cert, tls_key;  // paths; empty: none
  std::string token_file;

  bool any() const { return !tls_ca.empty() || !tls_cert.empty() || !token_file.empty(); }
  bool tls() const { return !tls_ca.empty(); }
};

Credentials CredentialsFromEnvironment();

// Returns the token in a file of mode 0600. Errors name the path and what was expected.
absl::StatusOr<std::string> ReadToken(const std::string& path);

// Returns a channel that sends our identity with every call. The files are read now, so a new
// channel uses new ones. Returns FailedPrecondition, NotFound or PermissionDenied if a file is
// missing, readable by others, or does not match the others, or if the token would cross a network
// unencrypted.
absl::StatusOr<std::shared_ptr<grpc::Channel>> OpenChannel(const std::string& target,
                                                           const Credentials& credentials,
                                                           const grpc::ChannelArguments& arguments);

}  // namespace plumbline::transport
