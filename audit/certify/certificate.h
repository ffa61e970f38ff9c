// The certificate as JSON: writing, signing, verifying, and comparing with a baseline.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "audit/certify/certify.h"

namespace plumbline::audit {

inline constexpr char kCertificateSchema[] = "plumbline.certificate/1";

// Returns the certificate of schema plumbline.certificate/1, with `signature` null. All numbers are
// integers.
nlohmann::json CertificateJson(const Certificate& certificate,
                               const std::vector<std::string>& ignored);

// Adds the signature by the key.
absl::Status SignCertificate(const std::string& key_file, nlohmann::json* certificate);

// Returns the bytes of the file: indented by one space, keys sorted, with a final newline.
std::string CertificateText(const nlohmann::json& certificate);

// Parses a certificate. Returns InvalidArgument if it is not exactly what CertificateText writes.
absl::StatusOr<nlohmann::json> ReadCertificate(const std::string& path);

// Returns why the signature is not by this public key; "" if it is. Returns an error if the key
// cannot be read.
absl::StatusOr<std::string> SignatureFault(const nlohmann::json& certificate,
                                           const std::string& public_key_file);

// Returns the first deviation of the files at `path` from the certificate's `side` ("a" or "b"); ""
// if they are the same.
absl::StatusOr<std::string> InputFault(const nlohmann::json& certificate, const std::string& side,
                                       const std::string& path);

// Returns every respect in which `now` is worse than the baseline; empty if it holds. Returns
// InvalidArgument if the two compare other things.
absl::StatusOr<std::vector<std::string>> WorseThan(const nlohmann::json& baseline,
                                                   const nlohmann::json& now);

// Returns the summary for a terminal.
std::string CertificateSummary(const nlohmann::json& certificate);

}  // namespace plumbline::audit
