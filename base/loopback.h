// Does an address stay on this host?
#pragma once

#include <string_view>

namespace plumbline {

// "127.0.0.1:7433", "[::1]:0", "localhost:7433", "unix:/run/plumbd.sock". 127.0.0.0/8 and nothing
// that merely begins like it ("127.example.org").
inline bool IsLoopbackAddress(std::string_view address) {
  if (address.substr(0, 5) == "unix:") return true;
  std::string_view host = address.substr(0, address.rfind(':'));
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  if (host == "localhost" || host == "::1") return true;
  return host.substr(0, 4) == "127." &&
         host.find_first_not_of("0123456789.") == std::string_view::npos;
}

}  // namespace plumbline
