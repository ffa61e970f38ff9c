#include "server/http/tls_context.h"

#include <openssl/err.h>

#include <utility>

namespace plumbline::server {
namespace {

// Ciphers for TLS 1.2, as in gRPC (the TLS 1.3 suites are the library's own three).
constexpr const char* kCiphers =
    "ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-ECDSA-AES256-GCM-SHA384:"
    "ECDHE-RSA-AES128-GCM-SHA256:ECDHE-RSA-AES256-GCM-SHA384";

TlsContext MakeContext(const std::string& cert, const std::string& key) {
  TlsContext context(SSL_CTX_new(TLS_server_method()), &SSL_CTX_free);
  SSL_CTX* const raw = context.get();
  const bool usable = raw != nullptr && SSL_CTX_set_min_proto_version(raw, TLS1_2_VERSION) == 1 &&
                      SSL_CTX_set_cipher_list(raw, kCiphers) == 1 &&
                      SSL_CTX_use_certificate_chain_file(raw, cert.c_str()) == 1 &&
                      SSL_CTX_use_PrivateKey_file(raw, key.c_str(), SSL_FILETYPE_PEM) == 1 &&
                      SSL_CTX_check_private_key(raw) == 1;
  ERR_clear_error();
  if (!usable) return {nullptr, &SSL_CTX_free};
  SSL_CTX_set_options(
      raw, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_CIPHER_SERVER_PREFERENCE);
  // A repeated write may pass the bytes at another address.
  SSL_CTX_set_mode(raw, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_session_cache_mode(raw, SSL_SESS_CACHE_OFF);
  return context;
}

}  // namespace

TlsFiles::TlsFiles(std::string cert, std::string key)
    : cert_(std::move(cert)), key_(std::move(key)) {}

SSL_CTX* TlsFiles::Context() {
  const FileStamp cert = StampOf(cert_), key = StampOf(key_);
  if (context_ != nullptr && cert == cert_stamp_ && key == key_stamp_) return context_.get();
  // If only one of the files is renewed, they do not match: the next connection tries again.
  context_ = MakeContext(cert_, key_);
  cert_stamp_ = cert;
  key_stamp_ = key;
  return context_.get();
}

}  // namespace plumbline::server
