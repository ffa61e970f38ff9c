#include "tests/server/doors/certificates.h"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>

#include <cstdio>
#include <stdexcept>

namespace plumbline::test {
namespace {

void Expect(bool ok, const char* what) {
  if (!ok) throw std::runtime_error(std::string("certificate: ") + what);
}

void AddExtension(X509* cert, X509* issuer, int id, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, cert, nullptr, nullptr, 0);
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, id, value.c_str());
  Expect(extension != nullptr && X509_add_ext(cert, extension, -1) == 1, value.c_str());
  X509_EXTENSION_free(extension);
}

X509* NewCertificate(EVP_PKEY* key, const std::string& name, long begins_s, long ends_s) {
  static long serial = 1;
  X509* cert = X509_new();
  X509_set_version(cert, 2);
  ASN1_INTEGER_set(X509_get_serialNumber(cert), serial++);
  X509_gmtime_adj(X509_getm_notBefore(cert), begins_s);
  X509_gmtime_adj(X509_getm_notAfter(cert), ends_s);
  X509_set_pubkey(cert, key);
  X509_NAME_add_entry_by_txt(X509_get_subject_name(cert), "CN", MBSTRING_UTF8,
                             reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
  return cert;
}

void WriteCertificate(const std::string& path, X509* cert) {
  FILE* file = std::fopen(path.c_str(), "w");
  Expect(file != nullptr && PEM_write_X509(file, cert) == 1, path.c_str());
  std::fclose(file);
}

void WriteKey(const std::string& path, EVP_PKEY* key) {
  FILE* file = std::fopen(path.c_str(), "w");
  Expect(file != nullptr, path.c_str());
  chmod(path.c_str(), 0600);
  Expect(PEM_write_PrivateKey(file, key, nullptr, nullptr, 0, nullptr, nullptr) == 1, path.c_str());
  std::fclose(file);
}

}  // namespace

struct Authority::Keys {
  EVP_PKEY* key = EVP_EC_gen("P-256");
  X509* cert = nullptr;
};

Authority::Authority(const TempFolder& folder, const std::string& name)
    : folder_(folder), file_(folder.File(name + ".pem")), keys_(std::make_unique<Keys>()) {
  keys_->cert = NewCertificate(keys_->key, name, -86400, 864000);
  X509_set_issuer_name(keys_->cert, X509_get_subject_name(keys_->cert));
  AddExtension(keys_->cert, keys_->cert, NID_basic_constraints, "critical,CA:TRUE");
  AddExtension(keys_->cert, keys_->cert, NID_subject_key_identifier, "hash");
  Expect(X509_sign(keys_->cert, keys_->key, EVP_sha256()) > 0, "signing");
  WriteCertificate(file_, keys_->cert);
}

Authority::~Authority() {
  X509_free(keys_->cert);
  EVP_PKEY_free(keys_->key);
}

CertificateFiles Authority::Issue(const Wish& wish) const {
  const CertificateFiles files{folder_.File(wish.name + ".pem"), folder_.File(wish.name + ".key")};
  EVP_PKEY* key = EVP_EC_gen("P-256");
  X509* cert = NewCertificate(key, wish.name, wish.begins_s, wish.ends_s);
  X509_set_issuer_name(cert, X509_get_subject_name(keys_->cert));
  std::string sans;
  for (const std::string& san : wish.sans) sans += (sans.empty() ? "" : ",") + san;
  if (!sans.empty()) AddExtension(cert, keys_->cert, NID_subject_alt_name, sans);
  Expect(X509_sign(cert, keys_->key, EVP_sha256()) > 0, "signing");
  WriteCertificate(files.cert, cert);
  WriteKey(files.key, key);
  X509_free(cert);
  EVP_PKEY_free(key);
  return files;
}

}  // namespace plumbline::test
