#include "server/alerts/signature.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <climits>

namespace plumbline::server {

std::string HmacSha256Hex(std::string_view secret, std::string_view message) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  if (secret.size() > INT_MAX || HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
                                      reinterpret_cast<const unsigned char*>(message.data()),
                                      message.size(), digest, &size) == nullptr) {
    return "";
  }
  constexpr char kHex[] = "0123456789abcdef";
  std::string out;
  for (unsigned int i = 0; i < size; ++i) {
    out += kHex[digest[i] >> 4];
    out += kHex[digest[i] & 15];
  }
  return out;
}

std::string WebhookSignature(std::string_view secret, std::string_view timestamp,
                             std::string_view body) {
  std::string message(timestamp);
  message += '.';
  message += body;
  return "sha256=" + HmacSha256Hex(secret, message);
}

}  // namespace plumbline::server
