// Parses and formats numbers with suffixes. Thread-safe.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace plumbline::audit {

// Parses "989e12", "100B" (10^9), "4M", "1.5T", "64K"; decimal, never negative. InvalidArgument
// states what was expected and found.
absl::StatusOr<double> ReadQuantity(const std::string& text);

// Returns "100 B", "4.19 M", "989": three digits and the largest suffix of K, M, B, T.
std::string QuantityText(double value);
// Returns bytes in GB (10^9) or TB.
std::string BytesText(double bytes);
// Returns "1.52 s", "12.3 ms".
std::string SecondsText(double seconds);

}  // namespace plumbline::audit
