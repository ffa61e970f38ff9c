#include "transport/reason.h"

namespace plumbline::transport {
namespace {

bool Has(const std::string& text, const char* words) {
  return text.find(words) != std::string::npos;
}

}  // namespace

bool SpeaksHttp1(const std::string& stated) {
  for (const char* sign : {"http1.x server", "Failed parsing HTTP/2", "missing selected ALPN"}) {
    if (Has(stated, sign)) return true;
  }
  return false;
}

std::string WhyUnreachable(const std::string& stated) {
  if (SpeaksHttp1(stated)) {
    return "this port answers HTTP, not gRPC: is it plumbd's --http port instead of its --grpc "
           "port (7433 by default)?";
  }
  if (Has(stated, "DNS resolution failed")) {
    const size_t last = stated.rfind(": ");
    return "the host's name does not resolve" +
           (last == std::string::npos ? "" : " (" + stated.substr(last + 2) + ")");
  }
  for (const std::string before : {"Failed to connect to remote host: ", "last error: "}) {
    const size_t at = stated.rfind(before);
    if (at != std::string::npos) return stated.substr(at + before.size());
  }
  return stated;
}

}  // namespace plumbline::transport
