#include "server/stream/sender.h"

#include <arpa/inet.h>

#include <atomic>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace plumbline::server {
namespace {

constexpr size_t kMostBytes = 64;
constexpr size_t kMostConnection = 128;  // bytes

std::string Cut(std::string_view text) { return std::string(text.substr(0, kMostBytes)); }

// Parses "[2001:db8::1%25eth0]:443" or "%5B::1%5D:443".
std::string Ipv6Of(std::string_view rest) {
  std::string text = absl::StrReplaceAll({rest.data(), rest.size()}, {{"%5B", "["}, {"%5D", "]"}});
  const size_t end = text.find(']');
  if (text.empty() || text[0] != '[' || end == std::string::npos) return Cut(rest);
  text = text.substr(1, end - 1);
  text = text.substr(0, text.find('%'));  // removes the zone
  in6_addr address{};
  if (inet_pton(AF_INET6, text.c_str(), &address) != 1) return Cut(rest);
  char shown[INET6_ADDRSTRLEN] = {};
  if (IN6_IS_ADDR_V4MAPPED(&address)) {
    inet_ntop(AF_INET, address.s6_addr + 12, shown, sizeof shown);
    return shown;
  }
  if (IN6_IS_ADDR_LOOPBACK(&address)) return "::1";
  std::memset(address.s6_addr + 8, 0, 8);
  inet_ntop(AF_INET6, &address, shown, sizeof shown);
  return absl::StrCat(shown, "/64");
}

}  // namespace

std::string AddressOf(std::string_view grpc_peer) {
  constexpr std::string_view kV4 = "ipv4:", kV6 = "ipv6:", kUnix = "unix";
  if (grpc_peer.starts_with(kV4)) {
    const std::string_view rest = grpc_peer.substr(kV4.size());
    return Cut(rest.substr(0, rest.rfind(':')));
  }
  if (grpc_peer.starts_with(kV6)) return Ipv6Of(grpc_peer.substr(kV6.size()));
  if (grpc_peer.starts_with(kUnix)) return std::string(kUnix);
  return Cut(grpc_peer);
}

std::string ConnectionOf(std::string_view grpc_peer) {
  static std::atomic<uint64_t> calls{0};
  if (AddressOf(grpc_peer) == "unix") return absl::StrCat("unix:#", ++calls);
  return std::string(grpc_peer.substr(0, kMostConnection));
}

}  // namespace plumbline::server
