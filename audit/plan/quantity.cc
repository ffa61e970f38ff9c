#include "audit/plan/quantity.h"

#include <cmath>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace plumbline::audit {
namespace {

constexpr char kSuffixes[] = "KMBT";

double Thousands(size_t count) { return std::pow(1000.0, static_cast<double>(count)); }

}  // namespace

absl::StatusOr<double> ReadQuantity(const std::string& text) {
  const auto wrong = [&] {
    return absl::InvalidArgumentError(
        absl::StrCat("expected a number such as 1.5e9, 100B, 4M or 64K, found \"", text, "\""));
  };
  // strtod also takes "nan", "inf" and hexadecimal digits.
  if (text.empty() || text.find_first_not_of("0123456789.eE+KMBTkmbt") != std::string::npos)
    return wrong();
  char* end = nullptr;
  double value = std::strtod(text.c_str(), &end);
  if (end == text.c_str()) return wrong();
  if (*end != '\0') {
    const char suffix = static_cast<char>(std::toupper(static_cast<unsigned char>(*end)));
    const size_t at = std::string_view(kSuffixes).find(suffix);
    if (at == std::string_view::npos || end[1] != '\0') return wrong();
    value *= Thousands(at + 1);
  }
  if (!std::isfinite(value)) return wrong();
  return value;
}

std::string QuantityText(double value) {
  size_t suffix = 0;
  while (suffix < 4 && std::fabs(value) >= 999.5 * Thousands(suffix)) ++suffix;
  const std::string number = absl::StrFormat("%.3g", value / Thousands(suffix));
  return suffix == 0 ? number : absl::StrCat(number, " ", std::string(1, kSuffixes[suffix - 1]));
}

std::string BytesText(double bytes) {
  if (bytes >= 1e12) return absl::StrFormat("%.3g TB", bytes / 1e12);
  return bytes >= 1e9 ? absl::StrFormat("%.3g GB", bytes / 1e9)
                      : absl::StrFormat("%.3g MB", bytes / 1e6);
}

std::string SecondsText(double seconds) {
  return seconds < 1 ? absl::StrFormat("%.3g ms", seconds * 1e3)
                     : absl::StrFormat("%.3g s", seconds);
}

}  // namespace plumbline::audit
