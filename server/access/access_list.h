// The [[access]] entries and the present contents of their token files.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "server/access/grant.h"
#include "server/access/token_file.h"
#include "server/process/file_stamp.h"
#include "server/settings/client_certificate.h"
#include "server/settings/config.h"

namespace plumbline::server {

// The credentials of a connection or call.
struct Caller {
  std::optional<ClientCertificate> certificate;  // verified by TLS
  std::optional<TokenDigest> token;              // of a bearer token
  std::string session;  // session id that represents the token; empty: the caller sent the token
};

// Thread-safe.
class AccessList {
 public:
  // Returns errors as ReadTokenFile: at the start every file must be correct.
  static absl::StatusOr<std::unique_ptr<AccessList>> Open(const std::vector<AccessEntry>& entries);

  // Returns the permissions that all matching entries grant together. Returns Unauthenticated if
  // none matches, or the token is unknown or has expired.
  absl::StatusOr<Grant> Identify(const Caller& caller, int64_t now_unix_s) const;

  // The accepted token of an entry with the earliest expiry.
  struct Expiry {
    std::string entry;
    int64_t unix_s;
  };
  std::vector<Expiry> NextExpiries(int64_t now_unix_s) const;

  // Checks the files, and reads changed ones again. If a file can no longer be read, its entry
  // accepts no token until the file is fixed. Returns the present problems, one per file.
  std::vector<std::string> Refresh();

 private:
  struct Entry {
    GrantPart part;
    std::optional<SubjectName> san;  // glob; none: no certificate is required
    std::string token_file;
    FileStamp stamp;
    std::vector<AcceptedToken> tokens;
    std::string problem;
  };
  enum class Fit { kNo, kExpired, kYes };

  static absl::Status Read(Entry* entry);
  static Fit TokenFits(const Entry& entry, const TokenDigest& token, int64_t now_unix_s);
  static bool SanFits(const SubjectName& san, const Caller& caller);

  mutable Mutex mutex_;
  std::vector<Entry> entries_ PLUMB_GUARDED_BY(mutex_);
};

}  // namespace plumbline::server
