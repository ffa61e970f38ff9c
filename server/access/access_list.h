// The [[access]] entries and the token files they name, as they are now.
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

// What a connection or call has shown of itself.
struct Caller {
  std::optional<ClientCertificate> certificate;  // verified by TLS
  std::optional<TokenDigest> token;              // of a bearer token
  std::string session;  // that stands for the token; empty: the caller has it itself
};

// Thread-safe.
class AccessList {
 public:
  // Errors as ReadTokenFile: at the start every file must be right.
  static absl::StatusOr<std::unique_ptr<AccessList>> Open(const std::vector<AccessEntry>& entries);

  // What the entries that fit grant together. Unauthenticated: none does, or the token is unknown
  // or has expired.
  absl::StatusOr<Grant> Identify(const Caller& caller, int64_t now_unix_s) const;

  // Of the accepted tokens of one entry, the one that runs out next.
  struct Expiry {
    std::string entry;
    int64_t unix_s;
  };
  std::vector<Expiry> NextExpiries(int64_t now_unix_s) const;

  // Looks at the files and reads those anew that changed. One that cannot be read any more accepts
  // nothing until it is mended. Returns the problems there are now, one a file.
  std::vector<std::string> Refresh();

 private:
  struct Entry {
    GrantPart part;
    std::optional<SubjectName> san;  // glob; none: no certificate is asked for
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
