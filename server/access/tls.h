// The listener's side of TLS.
#pragma once

#include <grpcpp/security/server_credentials.h>

#include <memory>
#include <string>
#include <vector>

#include "server/settings/config.h"

namespace plumbline::server {

// Checks that the files of [tls] exist, in PEM, private if they must be, and match. Without [tls]
// there is nothing to check. For an expired certificate it only warns, because it may be renewed
// later.
void CheckTlsFiles(const Config& config, ConfigMistakes* mistakes);

// When a certificate of [tls] expires: "tls.cert", "tls.client_ca"; the first one of each file.
struct CertificateExpiry {
  std::string key;
  int64_t unix_s;
};
std::vector<CertificateExpiry> CertificateExpiries(const Config& config);

// Returns TLS credentials with [tls]; the files are read again if they change. Without [tls]
// connections are plain, and with [[access]] only from this host.
std::shared_ptr<grpc::ServerCredentials> MakeServerCredentials(const Config& config,
                                                               const std::string& address);

}  // namespace plumbline::server
