// The HTTP side's TLS: the same files, versions and ciphers as gRPC's.
#pragma once

#include <openssl/ssl.h>

#include <memory>
#include <string>

#include "server/process/file_stamp.h"

namespace plumbline::server {

using TlsContext = std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)>;

// Files of a certificate chain and its key. What they hold is read again when they change, so a
// renewed certificate needs no restart. Used by one thread.
class TlsFiles {
 public:
  TlsFiles(std::string cert, std::string key);

  // For a new connection. Null: the files cannot be used now.
  SSL_CTX* Context();

 private:
  const std::string cert_, key_;
  FileStamp cert_stamp_, key_stamp_;
  TlsContext context_{nullptr, &SSL_CTX_free};
};

}  // namespace plumbline::server
