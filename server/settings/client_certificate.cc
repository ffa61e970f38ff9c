#include "server/settings/client_certificate.h"

#include <openssl/bn.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <ctime>
#include <memory>
#include <sstream>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/files/whole_file.h"
#include "rules/catalogue.h"

namespace plumbline::server {
namespace {

using Kind = SubjectName::Kind;

struct Free {
  void operator()(BIO* p) const { BIO_free(p); }
  void operator()(X509* p) const { X509_free(p); }
  void operator()(BIGNUM* p) const { BN_free(p); }
  void operator()(GENERAL_NAMES* p) const { GENERAL_NAMES_free(p); }
};
template <typename T>
using Owned = std::unique_ptr<T, Free>;

std::string Lower(std::string_view text) {
  return absl::AsciiStrToLower(absl::string_view(text.data(), text.size()));
}

// Adds a name. A name with an invalid byte is skipped, because other code might cut or misread it.
void AddName(Kind kind, const ASN1_STRING* value, ClientCertificate* out) {
  const std::string name(reinterpret_cast<const char*>(ASN1_STRING_get0_data(value)),
                         static_cast<size_t>(ASN1_STRING_length(value)));
  const bool plain =
      std::all_of(name.begin(), name.end(), [](char c) { return c > ' ' && c < 0x7F; });
  if (!name.empty() && plain) out->names.push_back({kind, kind == Kind::kDns ? Lower(name) : name});
}

void AddNames(X509* certificate, ClientCertificate* out) {
  const Owned<GENERAL_NAMES> names(static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)));
  for (int i = 0; i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const GENERAL_NAME* name = sk_GENERAL_NAME_value(names.get(), i);
    if (name->type == GEN_DNS) AddName(Kind::kDns, name->d.dNSName, out);
    if (name->type == GEN_URI) AddName(Kind::kUri, name->d.uniformResourceIdentifier, out);
    if (name->type == GEN_EMAIL) AddName(Kind::kEmail, name->d.rfc822Name, out);
  }
}

std::string WithoutZeros(const std::string& hex) {
  const size_t first = hex.find_first_not_of('0');
  return first == std::string::npos ? "0" : hex.substr(first);
}

std::string SerialOf(X509* certificate) {
  const Owned<BIGNUM> number(ASN1_INTEGER_to_BN(X509_get0_serialNumber(certificate), nullptr));
  char* const hex = number == nullptr ? nullptr : BN_bn2hex(number.get());
  const std::string out = hex == nullptr ? "" : WithoutZeros(Lower(hex));
  OPENSSL_free(hex);
  return out;
}

std::string FingerprintOf(X509* certificate) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  if (X509_digest(certificate, EVP_sha256(), digest, &size) != 1) return "";
  return absl::BytesToHexString({reinterpret_cast<const char*>(digest), size});
}

// Returns the digits without colons, in lower case, so that "AA:bb" and "aabb" are equal; empty if
// it is not a hexadecimal number.
std::string PlainHex(std::string_view text) {
  std::string hex = Lower(text);
  std::erase(hex, ':');
  const bool all = std::all_of(hex.begin(), hex.end(), [](char c) {
    return absl::ascii_isxdigit(static_cast<unsigned char>(c));
  });
  return all ? hex : "";
}

}  // namespace

SubjectName ParseSubjectGlob(std::string_view text) {
  for (const auto& [prefix, kind] : {std::pair<std::string_view, Kind>{"dns:", Kind::kDns},
                                     {"uri:", Kind::kUri},
                                     {"email:", Kind::kEmail}}) {
    if (text.substr(0, prefix.size()) != prefix) continue;
    text.remove_prefix(prefix.size());
    return {kind, kind == Kind::kDns ? Lower(text) : std::string(text)};
  }
  return {Kind::kDns, Lower(text)};
}

bool Fits(const SubjectName& glob, const SubjectName& name) {
  return glob.kind == name.kind && rules::GlobMatch(glob.name, name.name);
}

std::optional<ClientCertificate> ReadClientCertificate(const std::string& pem) {
  const Owned<BIO> text(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  const Owned<X509> certificate(PEM_read_bio_X509(text.get(), nullptr, nullptr, nullptr));
  ERR_clear_error();
  std::tm end{};
  if (certificate == nullptr || ASN1_TIME_to_tm(X509_get0_notAfter(certificate.get()), &end) != 1) {
    return std::nullopt;
  }
  ClientCertificate out;
  AddNames(certificate.get(), &out);
  out.fingerprint = FingerprintOf(certificate.get());
  out.serial = SerialOf(certificate.get());
  out.expires_unix_s = static_cast<int64_t>(timegm(&end));
  ERR_clear_error();
  return out;
}

absl::Status RevocationList::Refresh() {
  if (path_.empty()) return absl::OkStatus();
  // before the read, so that a change during the read is detected next time
  const FileStamp now = StampOf(path_);
  if (read_ && now == stamp_ && problem_.ok()) return problem_;
  stamp_ = now;
  read_ = true;
  fingerprints_.clear();
  serials_.clear();
  problem_ = Read();
  return problem_;
}

absl::Status RevocationList::Read() {
  const absl::StatusOr<std::string> text = ReadWholeFile(path_);
  if (!text.ok()) return text.status();
  std::istringstream file(*text);
  int number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    std::istringstream words(line);
    std::string word, more;
    if (!(words >> word) || word[0] == '#') continue;
    const size_t colon = word.find(':');
    const std::string kind = word.substr(0, colon);
    const std::string hex = colon == std::string::npos ? "" : PlainHex(word.substr(colon + 1));
    const bool alone = !(words >> more) || more[0] == '#';
    if (alone && kind == "sha256" && hex.size() == 64) {
      fingerprints_.insert(hex);
    } else if (alone && kind == "serial" && !hex.empty() && hex.size() <= 64) {
      serials_.insert(WithoutZeros(hex));
    } else {
      return absl::InvalidArgumentError(
          absl::StrCat(path_, ":", number,
                       ": expected sha256:HEX, a certificate's fingerprint of 64 digits, or "
                       "serial:HEX"));
    }
  }
  return absl::OkStatus();
}

bool RevocationList::Holds(const ClientCertificate& certificate) const {
  return !problem_.ok() || fingerprints_.contains(certificate.fingerprint) ||
         serials_.contains(certificate.serial);
}

}  // namespace plumbline::server
