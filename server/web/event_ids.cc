#include "server/web/event_ids.h"

#include <random>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/sha256.h"

namespace plumbline::server {
namespace {

constexpr size_t kPart = 8;  // bytes of the nonce, of the position, and of the mark

std::string Random(size_t bytes) {
  std::random_device random;
  std::string out(bytes, '\0');
  for (char& one : out) one = static_cast<char>(random());
  return out;
}

std::string Xored(std::string_view a, std::string_view b) {
  std::string out(a);
  for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<char>(out[i] ^ b[i]);
  return out;
}

}  // namespace

EventIds::EventIds() : key_(Random(Sha256::kBytes)) {}

std::string EventIds::Plain(std::string_view table, uint64_t position) {
  return absl::StrCat(std::string(table), ".", position);
}

std::optional<uint64_t> EventIds::FromPlain(std::string_view id, std::string_view table) {
  const size_t dot = id.rfind('.');
  uint64_t position = 0;
  if (dot == std::string_view::npos || id.substr(0, dot) != table ||
      !absl::SimpleAtoi(std::string(id.substr(dot + 1)), &position)) {
    return std::nullopt;
  }
  return position;
}

// The hashed text has a fixed length and begins with a distinct letter.
std::string EventIds::Pad(std::string_view nonce) const {
  return Sha256Of(absl::StrCat("p", key_, std::string(nonce))).substr(0, kPart);
}

std::string EventIds::Mark(std::string_view nonce, std::string_view hidden) const {
  return Sha256Of(absl::StrCat("m", key_, std::string(nonce), std::string(hidden)))
      .substr(0, kPart);
}

std::string EventIds::Sealed(uint64_t position) const {
  std::string bytes(kPart, '\0');
  for (size_t i = 0; i < kPart; ++i) bytes[i] = static_cast<char>(position >> (8 * i));
  const std::string nonce = Random(kPart);
  const std::string hidden = Xored(bytes, Pad(nonce));
  return HexText(nonce + hidden + Mark(nonce, hidden));
}

std::optional<uint64_t> EventIds::FromSealed(std::string_view id) const {
  const auto is_hex = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  if (id.size() != 6 * kPart) return std::nullopt;
  for (const char c : id) {
    if (!is_hex(c)) return std::nullopt;
  }
  const std::string bytes = absl::HexStringToBytes({id.data(), id.size()});
  const std::string nonce = bytes.substr(0, kPart), hidden = bytes.substr(kPart, kPart);
  if (bytes.substr(2 * kPart) != Mark(nonce, hidden)) return std::nullopt;
  const std::string open = Xored(hidden, Pad(nonce));
  uint64_t position = 0;
  for (size_t i = 0; i < kPart; ++i) {
    position |= static_cast<uint64_t>(static_cast<unsigned char>(open[i])) << (8 * i);
  }
  return position;
}

}  // namespace plumbline::server
