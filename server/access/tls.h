// The listener's side of TLS.
#pragma once

#include <grpcpp/security/server_credentials.h>

#include <memory>
#include <string>
#include <vector>

#include "server/settings/config.h"

namespace plumbline::server {

// Are the files of [tls] there, in PEM, private where they must be, and do they belong together?
// Nothing is wrong without [tls]. A certificate that has run out is only warned of: who renews it
// may be late.
void CheckTlsFiles(const Config& config, ConfigMistakes* mistakes);

// When the certificates of [tls] run out: "tls.cert", "tls.client_ca"; the first one of each file.
struct CertificateExpiry {
  std::string key;
  int64_t unix_s;
};
std::vector<CertificateExpiry> CertificateExpiries(const Config& config);

// TLS with [tls]: the files are read again when they change. Without: plain connections, and with
// [[access]] only from this host.
std::shared_ptr<grpc::ServerCredentials> MakeServerCredentials(const Config& config,
                                                               const std::string& address);

}  // namespace plumbline::server
