// Parses addresses: "127.0.0.1:7433", "[::1]:0", "localhost:7433", "unix:/run/plumbd.sock".
#pragma once

#include <charconv>
#include <string_view>

namespace plumbline {

inline bool IsSocketPath(std::string_view address) { return address.substr(0, 5) == "unix:"; }

// Returns true for unix:PATH, or HOST:PORT with a port of 0 to 65535. A URL is no address.
inline bool IsAddress(std::string_view address) {
  if (IsSocketPath(address)) return true;
  const size_t colon = address.rfind(':');
  if (colon == std::string_view::npos || colon == 0) return false;
  if (address.find('/') != std::string_view::npos) return false;
  const std::string_view text = address.substr(colon + 1);
  int port = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  return error == std::errc() && end == text.data() + text.size() && port >= 0 && port <= 65535;
}

// Returns true if the address stays on this host: 127.0.0.0/8, but not a name that only begins like
// this ("127.example.org").
inline bool IsLoopbackAddress(std::string_view address) {
  if (IsSocketPath(address)) return true;
  std::string_view host = address.substr(0, address.rfind(':'));
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  if (host == "localhost" || host == "::1") return true;
  return host.substr(0, 4) == "127." &&
         host.find_first_not_of("0123456789.") == std::string_view::npos;
}

}  // namespace plumbline
