#include "transport/diagnosis.h"

#include <openssl/x509_vfy.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "transport/door_probe.h"
#include "transport/reason.h"

namespace plumbline::transport {
namespace {

constexpr const char* kCa = "PLUMBLINE_TLS_CA (--tls-ca)";

// Returns true for gRPC's texts about a connection that ended before the call. No server sends
// them.
bool BrokenConnection(const std::string& stated) {
  for (const char* words : {"andshake", "closed", "reset", "failed to connect", "last error"}) {
    if (stated.find(words) != std::string::npos) return true;
  }
  return false;
}

Diagnosis Http(const std::string& at) {
  return {Fault::kHttp, absl::StrCat(at,
                                     " answers HTTP, not gRPC: it is plumbd's --http port (7434 by "
                                     "default); use its --grpc port (7433 by default)")};
}

Diagnosis NotReached(const std::string& at, const std::string& stated, const DoorProbe& probe) {
  if (stated.find("DNS resolution failed") != std::string::npos ||
      probe.error.find("not known") != std::string::npos) {
    return {Fault::kNoName,
            absl::StrCat("no server answers at ", at, ": ", "the host's name does not resolve (",
                         probe.error, "); set another address with PLUMBLINE_SERVER (--server)")};
  }
  return {Fault::kNothingListens, absl::StrCat("no server answers at ", at, ": ", probe.error,
                                               "; start one there with plumbd --grpc, or set "
                                               "another address with PLUMBLINE_SERVER (--server)")};
}

// Diagnoses a client that uses TLS.
Diagnosis OverTls(const std::string& at, const Credentials& c, const grpc::Status& status) {
  const DoorProbe probe = ProbeTls(at, c.tls_ca);
  if (!probe.connected) return NotReached(at, status.error_message(), probe);
  if (!probe.handshake && !probe.tls) {
    const DoorProbe clear = ProbeClear(at);
    if (clear.http2) {
      return {
          Fault::kSpeaksClear,
          absl::StrCat(at, " does not use TLS, but ", kCa,
                       " requires it: unset it, or configure [tls] cert and key on the server")};
    }
    if (clear.http1) return Http(at);
  }
  const std::string trusts = absl::StrCat("the CA certificates of ", c.tls_ca);
  switch (probe.handshake ? probe.verify_error : X509_V_OK) {
    case X509_V_OK:
      break;
    case X509_V_ERR_CERT_HAS_EXPIRED:
    case X509_V_ERR_CERT_NOT_YET_VALID:
      return {Fault::kExpired,
              absl::StrCat("the certificate of ", at, " is not valid now (", probe.verify_text,
                           "): renew the file of [tls] cert on the server, or "
                           "set this host's clock")};
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH:
      return {
          Fault::kWrongName,
          absl::StrCat("the certificate of ", at, " is for another host (", probe.verify_text,
                       "): use the host name of the certificate in PLUMBLINE_SERVER (--server)")};
    default:
      return {Fault::kUnknownAuthority,
              absl::StrCat("the certificate of ", at, " is not signed by ", trusts, " (",
                           probe.verify_text, "): set the CA of the server in ", kCa)};
  }
  if (probe.handshake && probe.http1) return Http(at);
  if (probe.requires_certificate && c.tls_cert.empty()) {
    return {Fault::kWantsCertificate,
            absl::StrCat(at,
                         " requires a client certificate: set it in PLUMBLINE_TLS_CERT "
                         "(--tls-cert) and its key in PLUMBLINE_TLS_KEY (--tls-key)")};
  }
  if (probe.requires_certificate && BrokenConnection(status.error_message())) {
    return {Fault::kCertificateRefused,
            absl::StrCat(at, " does not accept the certificate ", c.tls_cert,
                         ": it has expired, or is from another CA; set another one in "
                         "PLUMBLINE_TLS_CERT (--tls-cert)")};
  }
  if (probe.http2) return {Fault::kServer, ""};
  return {Fault::kSilent, absl::StrCat("no server answers at ", at, ": ",
                                       "the connection is accepted, but no TLS handshake follows (",
                                       WhyUnreachable(TextOf(status)), ")")};
}

// Diagnoses a client without TLS.
Diagnosis InTheClear(const std::string& at, const grpc::Status& status) {
  const DoorProbe probe = ProbeClear(at);
  if (!probe.connected) return NotReached(at, status.error_message(), probe);
  if (probe.http1 || SpeaksHttp1(status.error_message())) return Http(at);
  if (probe.tls) {
    return {
        Fault::kWantsTls,
        absl::StrCat(
            at, " uses TLS, and this client does not: set the CA of the server, or \"system\", in ",
            kCa)};
  }
  if (probe.http2) return {Fault::kServer, ""};
  return {Fault::kSilent, absl::StrCat("no server answers at ", at,
                                       ": the connection is accepted, but there is no answer (",
                                       WhyUnreachable(TextOf(status)), ")")};
}

Diagnosis Unauthenticated(const Credentials& c, const grpc::Status& status) {
  if (c.token_file.empty()) return {Fault::kNoToken, TextOf(status)};
  return {Fault::kTokenRefused, absl::StrCat(TextOf(status), " (the token of ", c.token_file,
                                             ", PLUMBLINE_TOKEN_FILE or --token-file)")};
}

}  // namespace

bool NeedsChange(Fault fault) {
  return fault >= Fault::kHttp && fault <= Fault::kCertificateRefused;
}

std::string TextOf(const grpc::Status& status) {
  if (!status.error_message().empty()) return status.error_message();
  return absl::StrCat("the call ended with the gRPC status ",
                      absl::StatusCodeToString(static_cast<absl::StatusCode>(status.error_code())),
                      " and no text");
}

Diagnosis Diagnose(const std::string& target, const Credentials& credentials,
                   const grpc::Status& status) {
  if (status.error_code() == grpc::StatusCode::UNAUTHENTICATED)
    return Unauthenticated(credentials, status);
  if (status.error_code() != grpc::StatusCode::UNAVAILABLE) return {Fault::kServer, TextOf(status)};
  Diagnosis found =
      credentials.tls() ? OverTls(target, credentials, status) : InTheClear(target, status);
  // The connection works now, so the text is from the server, or the server has started meanwhile.
  if (found.text.empty()) found.text = absl::StrCat(target, ": ", TextOf(status));
  return found;
}

}  // namespace plumbline::transport
