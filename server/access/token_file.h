// The tokens that an [[access]] entry accepts: one a line, "#" begins a comment.
//
//   sha256:HEX                          a token by its SHA-256: what `plumbd --new-token` prints
//   sha256:HEX expires=2026-12-31       ... until the end of that day, UTC
//   sha256:HEX expires=2026-12-31T12:00:00Z
//   TOKEN                               the token itself, at least 32 characters
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace plumbline::server {

using TokenDigest = std::array<unsigned char, 32>;

TokenDigest DigestOf(std::string_view token);
// Compares in constant time.
bool SameDigest(const TokenDigest& a, const TokenDigest& b);

struct AcceptedToken {
  static constexpr int64_t kNever = INT64_MAX;
  TokenDigest digest;
  int64_t expires_unix_s = kNever;  // refused from then on
};

// Returns all tokens or an error. Errors as ReadPrivateFile; InvalidArgument names file and line,
// never the line's content.
absl::StatusOr<std::vector<AcceptedToken>> ReadTokenFile(const std::string& path);

// Draws a token of 256 random bits, writes it to `path` (new, mode 0600), and returns the line for
// the server's token file.
absl::StatusOr<std::string> MakeToken(const std::string& path);

}  // namespace plumbline::server
