#include "audit/certify/signing.h"

#include <openssl/evp.h>
#include <openssl/pem.h>

#include <algorithm>
#include <array>
#include <climits>
#include <memory>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "audit/readers/input/file.h"
#include "base/files/whole_file.h"
#include "base/private_file.h"
#include "base/sha256.h"

namespace plumbline::audit {
namespace {

constexpr size_t kHashPiece = 1u << 20;
constexpr size_t kSignatureBytes = 64, kPublicKeyBytes = 32;

using DigestContext = std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)>;
using Key = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;

DigestContext NewContext() { return {EVP_MD_CTX_new(), EVP_MD_CTX_free}; }

// Gives no passphrase, so that OpenSSL does not ask at a terminal.
int NoPassphrase(char* /*buffer*/, int /*size*/, int /*writing*/, void* /*data*/) { return -1; }

absl::StatusOr<Key> KeyOf(const std::string& file, const std::string& pem, bool is_private) {
  const std::unique_ptr<BIO, decltype(&BIO_free)> bio(
      BIO_new_mem_buf(pem.data(), static_cast<int>(std::min<size_t>(pem.size(), INT_MAX))),
      BIO_free);
  Key key(is_private ? PEM_read_bio_PrivateKey(bio.get(), nullptr, NoPassphrase, nullptr)
                     : PEM_read_bio_PUBKEY(bio.get(), nullptr, NoPassphrase, nullptr),
          EVP_PKEY_free);
  if (key == nullptr || EVP_PKEY_get_id(key.get()) != EVP_PKEY_ED25519) {
    return absl::InvalidArgumentError(absl::StrCat(file, ": expected ",
                                                   is_private ? "a private" : "a public",
                                                   " Ed25519 key in PEM without a passphrase"));
  }
  return key;
}

// Returns the SHA-256 of the public key's bytes, in hexadecimal; "" if OpenSSL does not give them.
std::string PublicKeyDigest(const EVP_PKEY* key) {
  std::array<unsigned char, kPublicKeyBytes> known{};
  size_t size = known.size();
  if (EVP_PKEY_get_raw_public_key(key, known.data(), &size) != 1) return "";
  return HexText(Sha256Of({reinterpret_cast<const char*>(known.data()), size}));
}

}  // namespace

absl::StatusOr<HashedFile> HashFile(const std::string& path) {
  const auto named = [&path](const absl::Status& status) {
    return absl::Status(status.code(), absl::StrCat(path, ": ", status.message()));
  };
  absl::StatusOr<InputFile> file = InputFile::Open(path);
  if (!file.ok()) return named(file.status());
  const DigestContext context = NewContext();
  bool good = context != nullptr && EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr) == 1;
  std::vector<char> piece(kHashPiece);
  HashedFile out;
  while (good) {
    const absl::StatusOr<size_t> size = file->ReadSome(out.bytes, piece.data(), piece.size());
    if (!size.ok()) return named(size.status());
    if (*size == 0) break;
    good = EVP_DigestUpdate(context.get(), piece.data(), *size) == 1;
    out.bytes += *size;
  }
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int length = 0;
  if (!good || EVP_DigestFinal_ex(context.get(), digest.data(), &length) != 1)
    return absl::InternalError(path + ": SHA-256 failed");
  out.sha256 = HexText({reinterpret_cast<const char*>(digest.data()), length});
  return out;
}

absl::StatusOr<Ed25519Signature> SignEd25519(const std::string& key_file,
                                             std::string_view message) {
  const absl::StatusOr<std::string> pem = ReadPrivateFile(key_file);
  if (!pem.ok()) return pem.status();
  const absl::StatusOr<Key> key = KeyOf(key_file, *pem, true);
  if (!key.ok()) return key.status();
  const DigestContext context = NewContext();
  std::array<unsigned char, kSignatureBytes> value{};
  size_t size = value.size();
  const std::string known = PublicKeyDigest(key->get());
  if (known.empty() || context == nullptr ||
      EVP_DigestSignInit(context.get(), nullptr, nullptr, nullptr, key->get()) != 1 ||
      EVP_DigestSign(context.get(), value.data(), &size,
                     reinterpret_cast<const unsigned char*>(message.data()), message.size()) != 1) {
    return absl::InternalError(key_file + ": signing failed");
  }
  return Ed25519Signature{HexText({reinterpret_cast<const char*>(value.data()), size}), known};
}

absl::StatusOr<bool> VerifyEd25519(const std::string& public_key_file, std::string_view message,
                                   const Ed25519Signature& signature) {
  const absl::StatusOr<std::string> pem = ReadWholeFile(public_key_file, 1u << 20);
  if (!pem.ok()) return pem.status();
  const absl::StatusOr<Key> key = KeyOf(public_key_file, *pem, false);
  if (!key.ok()) return key.status();
  const std::string& value = signature.value;
  if (signature.public_key != PublicKeyDigest(key->get()) || value.size() != 2 * kSignatureBytes ||
      value.find_first_not_of("0123456789abcdef") != std::string_view::npos)
    return false;
  const std::string bytes = absl::HexStringToBytes(value);
  const DigestContext context = NewContext();
  return context != nullptr &&
         EVP_DigestVerifyInit(context.get(), nullptr, nullptr, nullptr, key->get()) == 1 &&
         EVP_DigestVerify(context.get(), reinterpret_cast<const unsigned char*>(bytes.data()),
                          bytes.size(), reinterpret_cast<const unsigned char*>(message.data()),
                          message.size()) == 1;
}

}  // namespace plumbline::audit
