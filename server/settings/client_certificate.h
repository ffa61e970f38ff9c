// A client's certificate that TLS has verified: its names, its expiry, and whether it has been
// revoked.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "server/process/file_stamp.h"

namespace plumbline::server {

// A subject alternative name and its kind; other kinds (IP addresses, ...) are not used.
struct SubjectName {
  enum class Kind : uint8_t { kDns, kUri, kEmail };
  Kind kind = Kind::kDns;
  std::string name;  // dns: in lower case

  bool operator==(const SubjectName&) const = default;
};

// Parses "dns:*.example.org", "uri:spiffe://example/*" or "email:*@example.org"; without a kind:
// dns.
SubjectName ParseSubjectGlob(std::string_view text);
// Returns true if both have one kind, and the name matches the glob.
bool Fits(const SubjectName& glob, const SubjectName& name);

struct ClientCertificate {
  std::vector<SubjectName> names;
  std::string fingerprint;  // SHA-256 of its DER, hexadecimal
  std::string serial;       // hexadecimal, without leading zeros
  int64_t expires_unix_s = 0;
};

// Returns nullopt if `pem` is not a certificate.
std::optional<ClientCertificate> ReadClientCertificate(const std::string& pem);

// The file of [tls] revoked: a line for each certificate, "sha256:HEX" (openssl x509 -noout
// -fingerprint -sha256) or "serial:HEX" (... -serial) of any authority; colons within HEX and "#"
// comments are allowed. Not thread-safe.
class RevocationList {
 public:
  // Empty path: no certificate is revoked.
  explicit RevocationList(std::string path) : path_(std::move(path)) {}

  // Reads the file if it changed. Returns NotFound or InvalidArgument if it cannot be used; then
  // every certificate counts as revoked until it is fixed.
  absl::Status Refresh();
  bool Holds(const ClientCertificate& certificate) const;

 private:
  absl::Status Read();

  const std::string path_;
  bool read_ = false;
  FileStamp stamp_;
  absl::Status problem_;
  std::set<std::string> fingerprints_, serials_;
};

}  // namespace plumbline::server
