#include "audit/render/file_uri.h"

#include <filesystem>

namespace plumbline::audit {
namespace {

// Returns true for characters that a path segment of a URI holds unencoded. ':' is encoded, because
// it would make a first segment a scheme.
bool Unreserved(unsigned char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '.' || c == '_' || c == '~' || c == '/';
}

std::string PercentEncoded(std::string_view text) {
  constexpr char kHex[] = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (Unreserved(byte)) {
      out += c;
    } else {
      out += {'%', kHex[byte >> 4], kHex[byte & 15]};
    }
  }
  return out;
}

}  // namespace

std::string FileUri(std::string_view path, std::string_view folder) {
  const std::filesystem::path base(folder);
  const std::filesystem::path whole = (base / path).lexically_normal();
  const std::string relative = whole.lexically_relative(base.lexically_normal()).string();
  const bool below = !relative.empty() && relative != ".." && relative.rfind("../", 0) != 0;
  return below ? PercentEncoded(relative) : "file://" + PercentEncoded(whole.string());
}

}  // namespace plumbline::audit
