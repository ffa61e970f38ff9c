// SHA-256 of files, and Ed25519 signatures, by OpenSSL's libcrypto.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace plumbline::audit {

struct HashedFile {
  uint64_t bytes = 0;
  std::string sha256;  // lower-case hexadecimal digits
};

// Reads the whole file in pieces of 1 MiB. If it cannot be read, returns the system's error
// with the path.
absl::StatusOr<HashedFile> HashFile(const std::string& path);

struct Ed25519Signature {
  std::string value;       // 128 lower-case hexadecimal digits
  std::string public_key;  // SHA-256 of the public key's 32 bytes, hexadecimal
};

// Signs with a private key (PEM, PKCS 8, without a passphrase). Returns InvalidArgument if the key
// is not an Ed25519 key. Refuses a key that other users can read. No message quotes the key.
absl::StatusOr<Ed25519Signature> SignEd25519(const std::string& key_file, std::string_view message);

// Returns true if the signature of the message is by this public key (PEM), and names it. Returns
// InvalidArgument if the file holds no Ed25519 key.
absl::StatusOr<bool> VerifyEd25519(const std::string& public_key_file, std::string_view message,
                                   const Ed25519Signature& signature);

}  // namespace plumbline::audit
