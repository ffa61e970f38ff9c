#include "server/access/web_sessions.h"

#include <openssl/crypto.h>
#include <openssl/rand.h>

#include <algorithm>

#include "absl/strings/escaping.h"

namespace plumbline::server {

absl::StatusOr<std::string> WebSessions::Open(const TokenDigest& token, int64_t now_unix_s) {
  unsigned char random[32];
  if (RAND_bytes(random, sizeof random) != 1) {
    return absl::UnavailableError("the system returned no random numbers");
  }
  const std::string id =
      absl::BytesToHexString({reinterpret_cast<const char*>(random), sizeof random});
  OPENSSL_cleanse(random, sizeof random);
  const MutexLock lock(mutex_);
  MakeRoom(token, now_unix_s);
  sessions_[DigestOf(id)] = {token, now_unix_s + kSeconds, ++opened_};
  return id;
}

void WebSessions::MakeRoom(const TokenDigest& token, int64_t now_unix_s) {
  std::erase_if(sessions_,
                [&](const auto& one) { return now_unix_s >= one.second.expires_unix_s; });
  const auto older = [](const auto& a, const auto& b) { return a.second.number < b.second.number; };
  size_t own = 0;
  auto oldest = sessions_.end();
  for (auto it = sessions_.begin(); it != sessions_.end(); ++it) {
    if (!SameDigest(it->second.token, token)) continue;
    ++own;
    if (oldest == sessions_.end() || older(*it, *oldest)) oldest = it;
  }
  if (own >= kMostOfToken) sessions_.erase(oldest);
  if (sessions_.size() >= kMost) {
    sessions_.erase(std::min_element(sessions_.begin(), sessions_.end(), older));
  }
}

std::optional<TokenDigest> WebSessions::TokenOf(std::string_view id, int64_t now_unix_s) const {
  const MutexLock lock(mutex_);
  const auto found = sessions_.find(DigestOf(id));
  if (found == sessions_.end() || now_unix_s >= found->second.expires_unix_s) return std::nullopt;
  return found->second.token;
}

void WebSessions::Close(std::string_view id) {
  const MutexLock lock(mutex_);
  sessions_.erase(DigestOf(id));
}

}  // namespace plumbline::server
