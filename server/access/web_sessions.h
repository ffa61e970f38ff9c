// Sessions of browsers: a random number in a cookie that stands for a token shown once.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "server/access/token_file.h"

namespace plumbline::server {

// Thread-safe. Lost with the process: people show their token again.
class WebSessions {
 public:
  static constexpr size_t kMost = 1024;
  static constexpr size_t kMostOfToken = 16;  // one more ends its oldest
  static constexpr int64_t kSeconds = 12 * 3600;

  // 256 random bits, in hexadecimal. Unavailable: the system has none.
  absl::StatusOr<std::string> Open(const TokenDigest& token, int64_t now_unix_s);
  // The token that it stands for; whether that is still accepted is for others to ask.
  std::optional<TokenDigest> TokenOf(std::string_view id, int64_t now_unix_s) const;
  void Close(std::string_view id);

 private:
  struct Session {
    TokenDigest token;
    int64_t expires_unix_s;
    uint64_t number;  // in the order of opening
  };
  void MakeRoom(const TokenDigest& token, int64_t now_unix_s) PLUMB_REQUIRES(mutex_);

  mutable Mutex mutex_;
  uint64_t opened_ PLUMB_GUARDED_BY(mutex_) = 0;
  // By the digest of the id: how long a search takes says nothing of the ids there are.
  std::map<TokenDigest, Session> sessions_ PLUMB_GUARDED_BY(mutex_);
};

}  // namespace plumbline::server
