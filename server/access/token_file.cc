#include "server/access/token_file.h"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/rand.h>
#include <openssl/sha.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <sstream>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/private_file.h"

namespace plumbline::server {
namespace {

constexpr size_t kLeastToken = 32;
constexpr std::string_view kDigest = "sha256:";
constexpr std::string_view kExpires = "expires=";

bool ParseHex(std::string_view hex, TokenDigest* out) {
  if (hex.size() != 2 * out->size()) return false;
  for (size_t i = 0; i < hex.size(); ++i) {
    const char c = absl::ascii_tolower(static_cast<unsigned char>(hex[i]));
    if (!absl::ascii_isxdigit(static_cast<unsigned char>(c))) return false;
    const int digit = c <= '9' ? c - '0' : c - 'a' + 10;
    unsigned char& byte = (*out)[i / 2];
    byte = static_cast<unsigned char>(i % 2 == 0 ? digit << 4 : byte | digit);
  }
  return true;
}

// Parses a time or a date. A date means the end of that day.
bool ParseTime(const std::string& text, int64_t* unix_s) {
  for (const bool day : {false, true}) {
    std::tm tm{};
    const char* end = strptime(text.c_str(), day ? "%Y-%m-%d" : "%Y-%m-%dT%H:%M:%SZ", &tm);
    if (end == nullptr || *end != '\0') continue;
    *unix_s = static_cast<int64_t>(timegm(&tm)) + (day ? 86400 : 0);
    return true;
  }
  return false;
}

// Returns an empty text on success, otherwise what was expected.
std::string ParseLine(const std::string& line, AcceptedToken* token) {
  std::istringstream words(line);
  std::string word;
  words >> word;
  if (std::string_view(word).substr(0, kDigest.size()) == kDigest) {
    if (!ParseHex(std::string_view(word).substr(kDigest.size()), &token->digest)) {
      return "64 hexadecimal digits after sha256:";
    }
  } else if (word.size() < kLeastToken) {
    return "a token of at least 32 characters (openssl rand -hex 32), or sha256:HEX";
  } else {
    token->digest = DigestOf(word);
  }
  while (words >> word) {
    if (word[0] == '#') break;
    if (std::string_view(word).substr(0, kExpires.size()) != kExpires ||
        !ParseTime(word.substr(kExpires.size()), &token->expires_unix_s)) {
      return "expires=YYYY-MM-DD or expires=YYYY-MM-DDTHH:MM:SSZ after the token";
    }
  }
  return "";
}

absl::Status WriteNew(const std::string& path, const std::string& text) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, ": cannot be made: ", std::strerror(errno)));
  }
  errno = ENOSPC;  // for a write that was cut short
  const bool written = write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  const int error = errno;
  return close(fd) == 0 && written ? absl::OkStatus()
                                   : absl::UnavailableError(absl::StrCat(
                                         path, ": cannot be written: ", std::strerror(error)));
}

}  // namespace

TokenDigest DigestOf(std::string_view token) {
  TokenDigest digest;
  SHA256(reinterpret_cast<const unsigned char*>(token.data()), token.size(), digest.data());
  return digest;
}

bool SameDigest(const TokenDigest& a, const TokenDigest& b) {
  return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

absl::StatusOr<std::vector<AcceptedToken>> ReadTokenFile(const std::string& path) {
  const auto text = ReadPrivateFile(path);
  if (!text.ok()) return text.status();
  std::vector<AcceptedToken> tokens;
  std::istringstream lines(*text);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    absl::StripAsciiWhitespace(&line);
    if (line.empty() || line[0] == '#') continue;
    AcceptedToken token;
    const std::string expected = ParseLine(line, &token);
    if (!expected.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(path, ":", number, ": expected ", expected));
    }
    tokens.push_back(token);
  }
  return tokens;
}

absl::StatusOr<std::string> MakeToken(const std::string& path) {
  unsigned char random[32];
  if (RAND_bytes(random, sizeof random) != 1) {
    return absl::UnavailableError("the system returned no random numbers");
  }
  const std::string token =
      "plumb_" + absl::BytesToHexString({reinterpret_cast<const char*>(random), sizeof random});
  OPENSSL_cleanse(random, sizeof random);
  if (auto s = WriteNew(path, token + "\n"); !s.ok()) return s;
  const TokenDigest digest = DigestOf(token);
  return absl::StrCat(
      "sha256:",
      absl::BytesToHexString({reinterpret_cast<const char*>(digest.data()), digest.size()}));
}

}  // namespace plumbline::server
