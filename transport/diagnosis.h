// Finds out why a call did not reach a server, and which variable or option fixes it. plumb, plumb
// doctor, the relay's clients and the agent's message in the trainer use this table of cases.
#pragma once

#include <grpcpp/grpcpp.h>

#include <string>

#include "transport/credentials.h"

namespace plumbline::transport {

// Trailing metadata in a relay's answer to a query: the address of the server above it.
inline constexpr char kRelayOf[] = "plumbline-relay-of";

enum class Fault {
  kNothingListens,      // refused, or no route
  kNoName,              // the host's name does not resolve
  kSilent,              // the connection is accepted, but no data arrives
  kHttp,                // the server speaks HTTP: plumbd's --http port
  kWantsTls,            // the server speaks TLS, this client does not
  kSpeaksClear,         // this client speaks TLS, the server does not
  kUnknownAuthority,    // the server's certificate is signed by another authority
  kWrongName,           // ... is for another host
  kExpired,             // ... has expired, or is not valid yet
  kWantsCertificate,    // the server asks for a certificate, and this client has none
  kCertificateRefused,  // ... does not accept this client's certificate
  kNoToken,             // the server asks for a token, and this client has none
  kTokenRefused,        // ... does not know this client's token
  kServer,              // the server was reached; the text is from the server
};

struct Diagnosis {
  Fault fault = Fault::kServer;
  std::string text;  // one sentence without a full stop: the fact, then the fix
};

// Returns true if a host answers and no call can succeed until a setting, certificate or address is
// changed: waiting does not help.
bool NeedsChange(Fault fault);

// Diagnoses a call to `target` that ended with `status`, which must not be OK. If the status is
// UNAVAILABLE, connects to `target` once more, for at most two seconds, to detect the protocol that
// answers there. Sends no secret. Thread-safe.
Diagnosis Diagnose(const std::string& target, const Credentials& credentials,
                   const grpc::Status& status);

// Returns the status's text; if it is empty, the name of its code.
std::string TextOf(const grpc::Status& status);

}  // namespace plumbline::transport
