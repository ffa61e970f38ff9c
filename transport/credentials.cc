#include "transport/credentials.h"

#include <grpcpp/support/client_interceptor.h>

#include <cstdlib>
#include <sstream>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/address.h"
#include "base/files/whole_file.h"
#include "base/private_file.h"

namespace plumbline::transport {
namespace {

constexpr size_t kMaxToken = 4096;

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

// Adds the token to each call of a channel, so that no caller can forget it.
class TokenBearer : public grpc::experimental::Interceptor {
 public:
  explicit TokenBearer(std::string header) : header_(std::move(header)) {}
  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(
            grpc::experimental::InterceptionHookPoints::PRE_SEND_INITIAL_METADATA)) {
      methods->GetSendInitialMetadata()->insert({"authorization", header_});
    }
    methods->Proceed();
  }

 private:
  const std::string header_;
};

class TokenBearers : public grpc::experimental::ClientInterceptorFactoryInterface {
 public:
  explicit TokenBearers(const std::string& token) : header_("Bearer " + token) {}
  grpc::experimental::Interceptor* CreateClientInterceptor(
      grpc::experimental::ClientRpcInfo*) override {
    return new TokenBearer(header_);
  }

 private:
  const std::string header_;
};

}  // namespace

absl::StatusOr<std::string> ReadToken(const std::string& path) {
  auto text = ReadPrivateFile(path);
  if (!text.ok()) return text.status();
  std::istringstream lines(*text);
  for (std::string line; std::getline(lines, line);) {
    absl::StripAsciiWhitespace(&line);
    if (line.empty() || line[0] == '#') continue;
    for (const char c : line) {
      if (c > ' ' && c < 127) continue;
      return absl::FailedPreconditionError(
          absl::StrCat(path, ": expected one token without spaces on its first line"));
    }
    if (line.size() > kMaxToken) break;
    return line;
  }
  return absl::FailedPreconditionError(
      absl::StrCat(path, ": expected a token on a line of its own, found none"));
}

namespace {

absl::StatusOr<std::string> ReadPublic(const std::string& path) {
  absl::StatusOr<std::string> text = ReadWholeFile(path);
  if (text.ok() && text->find("-----BEGIN ") == std::string::npos) {
    return absl::FailedPreconditionError(path + ": expected PEM (-----BEGIN ...)");
  }
  return text;
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> Tls(const Credentials& c) {
  grpc::SslCredentialsOptions options;
  if (c.tls_ca != "system") {
    auto ca = ReadPublic(c.tls_ca);
    if (!ca.ok()) return ca.status();
    options.pem_root_certs = *std::move(ca);
  }
  if (!c.tls_cert.empty()) {
    auto cert = ReadPublic(c.tls_cert);
    if (!cert.ok()) return cert.status();
    auto key = ReadPrivateFile(c.tls_key);
    if (!key.ok()) return key.status();
    options.pem_cert_chain = *std::move(cert);
    options.pem_private_key = *std::move(key);
  }
  return grpc::SslCredentials(options);
}

absl::Status CheckCombination(const std::string& target, const Credentials& c) {
  if (c.tls_cert.empty() != c.tls_key.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        c.tls_cert.empty() ? "a key is set without its certificate: PLUMBLINE_TLS_CERT (--tls-cert)"
                           : "a certificate is set without its key: PLUMBLINE_TLS_KEY (--tls-key)",
        " is missing"));
  }
  if (!c.tls_cert.empty() && !c.tls()) {
    return absl::FailedPreconditionError(
        "a client certificate needs TLS: set the CA of the server, or \"system\", in "
        "PLUMBLINE_TLS_CA (--tls-ca)");
  }
  if (!c.token_file.empty() && !c.tls() && !IsLoopbackAddress(target)) {
    return absl::FailedPreconditionError(
        absl::StrCat("the token of ", c.token_file, " is not sent to ", target,
                     " without encryption: set the CA of the server, or \"system\", in "
                     "PLUMBLINE_TLS_CA (--tls-ca), or use a tunnel that ends on loopback"));
  }
  return absl::OkStatus();
}

}  // namespace

Credentials CredentialsFromEnvironment() {
  return {Environment("PLUMBLINE_TLS_CA"), Environment("PLUMBLINE_TLS_CERT"),
          Environment("PLUMBLINE_TLS_KEY"), Environment("PLUMBLINE_TOKEN_FILE")};
}

absl::StatusOr<std::shared_ptr<grpc::Channel>> OpenChannel(
    const std::string& target, const Credentials& credentials,
    const grpc::ChannelArguments& arguments) {
  if (!IsAddress(target)) {
    return absl::InvalidArgumentError("expected an address HOST:PORT or unix:PATH, found \"" +
                                      target + "\"");
  }
  if (auto s = CheckCombination(target, credentials); !s.ok()) return s;
  std::shared_ptr<grpc::ChannelCredentials> channel = grpc::InsecureChannelCredentials();
  if (credentials.tls()) {
    auto tls = Tls(credentials);
    if (!tls.ok()) return tls.status();
    channel = *std::move(tls);
  }
  if (credentials.token_file.empty()) return grpc::CreateCustomChannel(target, channel, arguments);
  auto token = ReadToken(credentials.token_file);
  if (!token.ok()) return token.status();
  std::vector<std::unique_ptr<grpc::experimental::ClientInterceptorFactoryInterface>> bearers;
  bearers.push_back(std::make_unique<TokenBearers>(*token));
  return grpc::experimental::CreateCustomChannelWithInterceptors(target, channel, arguments,
                                                                 std::move(bearers));
}

}  // namespace plumbline::transport
