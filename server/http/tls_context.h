// TLS of the HTTP side: the same files, versions and ciphers as gRPC's.
#pragma once

#include <openssl/ssl.h>

#include <memory>
#include <string>

#include "server/process/file_stamp.h"

namespace plumbline::server {

using TlsContext = std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)>;

// The files of a certificate chain and its key. They are read again if they change, so that a
// renewed certificate needs no restart. Used by one thread.
class TlsFiles {
 public:
  TlsFiles(std::string cert, std::string key);

  // Returns the context for a new connection; null if the files cannot be used at present.
  SSL_CTX* Context();

 private:
  const std::string cert_, key_;
  FileStamp cert_stamp_, key_stamp_;
  TlsContext context_{nullptr, &SSL_CTX_free};
};

}  // namespace plumbline::server
