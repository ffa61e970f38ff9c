// Signs what a webhook receives.
#pragma once

#include <string>
#include <string_view>

namespace plumbline::server {

// Lowercase hex of HMAC-SHA256 (RFC 2104, FIPS 180-4).
std::string HmacSha256Hex(std::string_view secret, std::string_view message);

// The value of X-Plumbline-Signature: "sha256=" and the HMAC of "TIMESTAMP.BODY", where TIMESTAMP
// is the text of X-Plumbline-Timestamp. Who receives it refuses old timestamps, so that what was
// once overheard cannot be sent again.
std::string WebhookSignature(std::string_view secret, std::string_view timestamp,
                             std::string_view body);

}  // namespace plumbline::server
