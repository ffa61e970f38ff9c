#include "server/access/tls.h"

#include <grpcpp/grpcpp.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_credentials_options.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <ctime>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/files/whole_file.h"
#include "base/private_file.h"
#include "server/process/log.h"

namespace plumbline::server {
namespace {

constexpr unsigned kRefreshSeconds = 2;

struct Free {
  void operator()(BIO* p) const { BIO_free(p); }
  void operator()(X509* p) const { X509_free(p); }
  void operator()(EVP_PKEY* p) const { EVP_PKEY_free(p); }
};
template <typename T>
using Owned = std::unique_ptr<T, Free>;

Owned<BIO> Memory(const std::string& text) {
  return Owned<BIO>(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

// Refuses a key with a passphrase instead of a prompt.
int NoPassphrase(char*, int, int, void*) { return -1; }

Owned<X509> ReadCertificate(const std::string& key, const std::string& path,
                            ConfigMistakes* mistakes) {
  const std::string expected = "expected a certificate in PEM, found ";
  const absl::StatusOr<std::string> text = ReadWholeFile(path);
  if (!text.ok()) {
    mistakes->Add(key, absl::StrCat(expected, std::string(text.status().message())));
    return nullptr;
  }
  Owned<X509> certificate(PEM_read_bio_X509(Memory(*text).get(), nullptr, nullptr, nullptr));
  ERR_clear_error();
  if (certificate == nullptr)
    mistakes->Add(key, absl::StrCat(expected, path, ", which is not one"));
  return certificate;
}

Owned<EVP_PKEY> ReadKey(const std::string& path, ConfigMistakes* mistakes) {
  const auto text = ReadPrivateFile(path);
  if (!text.ok()) {
    mistakes->Add("tls.key", std::string(text.status().message()));
    return nullptr;
  }
  Owned<EVP_PKEY> key(PEM_read_bio_PrivateKey(Memory(*text).get(), nullptr, NoPassphrase, nullptr));
  ERR_clear_error();
  if (key == nullptr) {
    mistakes->Add("tls.key", absl::StrCat("expected a private key in PEM, without a passphrase, "
                                          "found ",
                                          path, ", which is not one"));
  }
  return key;
}

}  // namespace

void CheckTlsFiles(const Config& config, ConfigMistakes* mistakes) {
  if (config.tls_cert.empty()) return;
  const Owned<X509> cert = ReadCertificate("tls.cert", config.tls_cert, mistakes);
  const Owned<EVP_PKEY> key = ReadKey(config.tls_key, mistakes);
  if (cert != nullptr && key != nullptr && X509_check_private_key(cert.get(), key.get()) != 1) {
    ERR_clear_error();
    mistakes->Add("tls.key",
                  absl::StrCat("expected the key of the certificate in ", config.tls_cert,
                               ", found the key of another one in ", config.tls_key));
  }
  if (cert != nullptr && X509_cmp_current_time(X509_get0_notAfter(cert.get())) < 0) {
    LogWarning("{}: this certificate has expired: clients will refuse it", config.tls_cert);
  }
  if (!config.tls_client_ca.empty())
    ReadCertificate("tls.client_ca", config.tls_client_ca, mistakes);
}

std::vector<CertificateExpiry> CertificateExpiries(const Config& config) {
  std::vector<CertificateExpiry> out;
  for (const auto& [key, path] :
       {std::pair<const char*, const std::string&>{"tls.cert", config.tls_cert},
        {"tls.client_ca", config.tls_client_ca}}) {
    if (path.empty()) continue;
    ConfigMistakes unread;  // the file existed at the start; other code reports if it has changed
    const Owned<X509> certificate = ReadCertificate(key, path, &unread);
    std::tm end{};
    if (certificate != nullptr &&
        ASN1_TIME_to_tm(X509_get0_notAfter(certificate.get()), &end) == 1) {
      out.push_back({key, static_cast<int64_t>(timegm(&end))});
    }
  }
  return out;
}

std::shared_ptr<grpc::ServerCredentials> MakeServerCredentials(const Config& config,
                                                               const std::string& address) {
  namespace tls = grpc::experimental;
  if (config.tls_cert.empty()) {
    if (config.access.empty()) return grpc::InsecureServerCredentials();
    return tls::LocalServerCredentials(absl::StartsWith(address, "unix:") ? UDS : LOCAL_TCP);
  }
  tls::TlsServerCredentialsOptions options(std::make_shared<tls::FileWatcherCertificateProvider>(
      config.tls_key, config.tls_cert, config.tls_client_ca, kRefreshSeconds));
  options.watch_identity_key_cert_pairs();
  if (!config.tls_client_ca.empty()) {
    options.watch_root_certs();
    options.set_cert_request_type(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  }
  return tls::TlsServerCredentials(options);
}

}  // namespace plumbline::server
