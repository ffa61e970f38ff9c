// Connects to an address and detects the protocol that answers there. Sends no secret: for a client
// certificate it only detects whether the server asks for one.
#pragma once

#include <string>

namespace plumbline::transport {

struct DoorProbe {
  bool connected = false;
  std::string error;  // of the connection: "Connection refused"
  bool http2 = false, http1 = false, tls = false;
  // Only over TLS.
  bool handshake = false;             // true if it completed on our side
  bool requires_certificate = false;  // of the client
  int verify_error = 0;               // X509_V_OK or why the server's certificate is not trusted
  std::string verify_text;            // the same as OpenSSL's text
};

// Probe the target without and with TLS. `ca` is a PEM file, or "system". Each waits at most one
// second for an answer.
DoorProbe ProbeClear(const std::string& target);
DoorProbe ProbeTls(const std::string& target, const std::string& ca);

}  // namespace plumbline::transport
