// Signs webhook requests.
#pragma once

#include <string>
#include <string_view>

namespace plumbline::server {

// Returns the HMAC-SHA256 in lowercase hex (RFC 2104, FIPS 180-4).
std::string HmacSha256Hex(std::string_view secret, std::string_view message);

// Returns the value of X-Plumbline-Signature: "sha256=" and the HMAC of "TIMESTAMP.BODY", where
// TIMESTAMP is the text of X-Plumbline-Timestamp. A receiver must refuse old timestamps, so that a
// recorded request cannot be replayed.
std::string WebhookSignature(std::string_view secret, std::string_view timestamp,
                             std::string_view body);

}  // namespace plumbline::server
