// Sessions of browsers: a random id in a cookie that represents a token sent once.
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

// Thread-safe. Sessions end with the process; then people enter their token again.
class WebSessions {
 public:
  static constexpr size_t kMost = 1024;
  static constexpr size_t kMostOfToken = 16;  // a further session ends the oldest
  static constexpr int64_t kSeconds = 12 * 3600;

  // Returns a new id of 256 random bits, in hexadecimal. Returns Unavailable if the system gives no
  // random bytes.
  absl::StatusOr<std::string> Open(const TokenDigest& token, int64_t now_unix_s);
  // Returns the token of a session. The caller must check whether it is still accepted.
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
  // By the digest of the id, so that the duration of a search reveals nothing about the ids.
  std::map<TokenDigest, Session> sessions_ PLUMB_GUARDED_BY(mutex_);
};

}  // namespace plumbline::server
