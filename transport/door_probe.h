// Connects to an address and looks at which protocol answers there. No secret is sent: of a
// client's certificate only whether the server asks for one is looked at.
#pragma once

#include <string>

namespace plumbline::transport {

struct DoorProbe {
  bool connected = false;
  std::string error;  // of the connection: "Connection refused"
  bool http2 = false, http1 = false, tls = false;
  // Over TLS alone.
  bool handshake = false;         // it was completed on our side
  bool asks_certificate = false;  // of the client
  int verify_error = 0;           // X509_V_OK or why the server's certificate is not trusted
  std::string verify_text;        // the same in OpenSSL's words
};

// `ca`: a PEM file, or "system". Each waits at most a second for an answer.
DoorProbe ProbeClear(const std::string& target);
DoorProbe ProbeTls(const std::string& target, const std::string& ca);

}  // namespace plumbline::transport
