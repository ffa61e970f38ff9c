// The [[access]] entries and the token files they name, as they are now.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/access/grant.h"
#include "server/access/token_file.h"
#include "server/config.h"

namespace plumbline::server {

// What a connection or call has shown of itself.
struct Caller {
  std::vector<std::string> sans;     // subject alternative names of a verified certificate
  std::optional<TokenDigest> token;  // of a bearer token
};

// Thread-safe.
class AccessList {
 public:
  // Errors as ReadTokenFile: at the start every file must be right.
  static absl::StatusOr<std::unique_ptr<AccessList>> Open(const std::vector<AccessEntry>& entries);

  // What the entries that fit grant together. Unauthenticated: none does, or the token is unknown
  // or has expired.
  absl::StatusOr<Grant> Identify(const Caller& caller, int64_t now_unix_s) const;

  // Looks at the files and reads those anew that changed. One that cannot be read any more accepts
  // nothing until it is mended. Returns the problems there are now, one a file.
  std::vector<std::string> Refresh();

 private:
  // Of a file, to see that it changed; an edit in place, a rename over it or a chmod.
  struct Stamp {
    int64_t device = 0, inode = 0, size = 0, modified_ns = 0, changed_ns = 0;
    bool operator==(const Stamp&) const = default;
  };
  struct Entry {
    GrantPart part;
    std::string san;  // glob; empty: no certificate is asked for
    std::string token_file;
    Stamp stamp;
    std::vector<AcceptedToken> tokens;
    std::string problem;
  };
  enum class Fit { kNo, kExpired, kYes };

  static Stamp StampOf(const std::string& path);
  static absl::Status Read(Entry* entry);
  static Fit TokenFits(const Entry& entry, const TokenDigest& token, int64_t now_unix_s);
  static bool SanFits(const Entry& entry, const std::vector<std::string>& sans);

  mutable std::mutex mutex_;
  std::vector<Entry> entries_;
};

}  // namespace plumbline::server
