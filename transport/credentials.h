// How a client proves who it is, and whom it trusts: files, named by the environment. No secret
// comes from a command line, and none is ever printed.
//
// | variable             | file (PEM) |
// |----------------------|-------------------------------------------------------------------------|
// | PLUMBLINE_TLS_CA     | authorities whose servers are trusted, or "system": the connection is
// TLS | | PLUMBLINE_TLS_CERT   | our certificate, for servers that ask for one (mTLS) | |
// PLUMBLINE_TLS_KEY    | ... and its key, mode 0600                                              |
// | PLUMBLINE_TOKEN_FILE | our token, the first line that is no comment, mode 0600 (no PEM) |
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

// The token in a file of mode 0600. Errors name the path and what was expected.
absl::StatusOr<std::string> ReadToken(const std::string& path);

// A channel that says who we are with every call. The files are read now: a new channel sees new
// ones. FailedPrecondition, NotFound, PermissionDenied: a file is missing, readable by others, or
// does not belong together with the others; or the token would cross a network in the clear.
absl::StatusOr<std::shared_ptr<grpc::Channel>> OpenChannel(const std::string& target,
                                                           const Credentials& credentials,
                                                           const grpc::ChannelArguments& arguments);

}  // namespace plumbline::transport
