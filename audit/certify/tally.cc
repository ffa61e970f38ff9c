#include "audit/certify/tally.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "audit/render/text_util.h"
#include "base/load.h"

namespace plumbline::audit {
namespace {

// The largest distances of the bins; see KindTally::kBins.
constexpr uint64_t kBinEnds[] = {1, 2, 4, 16, 256, 65536};

double DoubleOf(const BitValue& value) { return LoadDouble(&value.bits, value.dtype, 0); }

// Widens a floating value to f64, which holds every other format exactly.
BitValue Widened(const BitValue& value) {
  if (value.dtype == DType::kF64) return value;
  const double wide = DoubleOf(value);
  BitValue out{DType::kF64, 0, ""};
  std::memcpy(&out.bits, &wide, sizeof(wide));
  return out;
}

// Narrows an f64 value that f32 holds exactly: text of a trainer that computes in f32.
bool Narrow(BitValue* value) {
  if (value->dtype == DType::kF32) return true;
  if (value->dtype != DType::kF64) return false;
  const double wide = DoubleOf(*value);
  const auto narrow = static_cast<float>(wide);
  if (static_cast<double>(narrow) != wide) return false;
  uint32_t bits = 0;
  std::memcpy(&bits, &narrow, sizeof(bits));
  *value = {DType::kF32, bits, ""};
  return true;
}

// Returns the number of values of the format from one to the other; -0 and +0 count once.
uint64_t UlpsBetween(const BitValue& a, const BitValue& b) {
  const uint64_t sign = uint64_t{1} << (8 * DTypeSize(a.dtype) - 1);
  const uint64_t of_a = a.bits & (sign - 1), of_b = b.bits & (sign - 1);
  if ((a.bits & sign) != (b.bits & sign)) return of_a + of_b;  // each is below 2^63
  return of_a > of_b ? of_a - of_b : of_b - of_a;
}

nlohmann::json JsonOf(const BitValue& value) {
  if (value.dtype == DType::kUnspecified) return value.text;
  const int digits = static_cast<int>(2 * DTypeSize(value.dtype));
  std::string decimal = value.dtype == DType::kU64 ? absl::StrCat(value.bits)
                        : value.dtype == DType::kI64
                            ? absl::StrCat(static_cast<int64_t>(value.bits))
                            : ExactNumber(DoubleOf(value));
  if (IsFloating(value.dtype) && DoubleOf(value) == 0 && std::signbit(DoubleOf(value)))
    decimal = "-0";
  return {{"dtype", DTypeName(value.dtype)},
          {"bits", absl::StrFormat("0x%0*x", digits, value.bits)},
          {"value", decimal}};
}

}  // namespace

BitValue BitValueAt(const void* data, DType dtype, size_t i) {
  BitValue value{dtype, 0, ""};
  const size_t width = DTypeSize(dtype);
  std::memcpy(&value.bits, static_cast<const char*>(data) + i * width, width);  // little-endian
  return value;
}

nlohmann::json BitPlace::Json() const {
  nlohmann::json out = nlohmann::json::object();
  const auto number = [&](const char* name, const auto& value) {
    if (value) out[name] = *value;
  };
  const auto word = [&](const char* name, const std::string& value) {
    if (!value.empty()) out[name] = Printable(value);
  };
  number("step", step);
  number("position", position);
  number("token", token);
  number("element", element);
  number("attempt", attempt);
  number("rank", rank);
  number("call", call);
  word("role", role);
  word("site", site);
  word("sequence", sequence);
  word("field", field);
  word("tensor", tensor);
  word("index", index);
  return out;
}

bool Tally::Take(const std::string& kind, const BitPlace& place, const BitValue& a,
                 const BitValue& b) {
  KindTally& tally = kinds_[kind];
  ++tally.compared;
  // Formats that differ are no difference: values are. f32 and bf16 both fit in f64.
  const bool floating = IsFloating(a.dtype) && IsFloating(b.dtype);
  BitValue left = a, right = b;
  if (a.dtype != b.dtype && floating) {
    left = Widened(a);
    right = Widened(b);
  }
  if (left.dtype == right.dtype && left.bits == right.bits && left.text == right.text) return true;
  ++tally.differ;
  nlohmann::json distance;
  if (!floating) {
    ++tally.other;
  } else if (!std::isfinite(DoubleOf(a)) || !std::isfinite(DoubleOf(b))) {
    ++tally.non_finite;
  } else if (DoubleOf(a) == DoubleOf(b)) {
    ++tally.zero_signs;
    distance = {{"dtype", DTypeName(left.dtype)}, {"ulps", 0}};
  } else {
    // Text has f64 even if the trainer computed in f32; then f32 units are meant.
    BitValue narrow_a = left, narrow_b = right;
    if (left.dtype == DType::kF64 && Narrow(&narrow_a) && Narrow(&narrow_b)) {
      left = narrow_a;
      right = narrow_b;
    }
    const uint64_t ulps = UlpsBetween(left, right);
    auto& [most, bins] = tally.ulps[DTypeName(left.dtype)];
    most = std::max(most, ulps);
    ++bins[static_cast<size_t>(std::lower_bound(std::begin(kBinEnds), std::end(kBinEnds), ulps) -
                               std::begin(kBinEnds))];
    distance = {{"dtype", DTypeName(left.dtype)}, {"ulps", ulps}};
  }
  if (first_.is_null()) Keep(kind, place, JsonOf(a), JsonOf(b), distance);
  return false;
}

void Tally::Other(const std::string& kind, const BitPlace& place, const std::string& a,
                  const std::string& b) {
  KindTally& tally = kinds_[kind];
  ++tally.compared;
  ++tally.differ;
  ++tally.other;
  if (first_.is_null()) Keep(kind, place, a, b, nullptr);
}

void Tally::Keep(const std::string& kind, const BitPlace& place, const nlohmann::json& a,
                 const nlohmann::json& b, const nlohmann::json& distance) {
  first_ = {{"kind", kind}, {"where", place.Json()}, {"a", a}, {"b", b}, {"distance", distance}};
}

void Tally::Gap(const std::string& kind, const std::string& reason, uint64_t count, bool open) {
  if (count == 0) return;
  gaps_[{kind, reason, open}] += count;
  open_ = open_ || open;
}

uint64_t Tally::compared() const {
  uint64_t sum = 0;
  for (const auto& [name, kind] : kinds_) sum += kind.compared;
  return sum;
}

uint64_t Tally::differ() const {
  uint64_t sum = 0;
  for (const auto& [name, kind] : kinds_) sum += kind.differ;
  return sum;
}

nlohmann::json Tally::KindsJson() const {
  nlohmann::json out = nlohmann::json::object();
  for (const auto& [name, kind] : kinds_) {
    nlohmann::json ulps = nlohmann::json::object();
    for (const auto& [dtype, distances] : kind.ulps)
      ulps[dtype] = {{"largest", distances.first}, {"by_distance", distances.second}};
    out[name] = {{"compared", kind.compared},     {"differ", kind.differ},
                 {"zero_signs", kind.zero_signs}, {"non_finite", kind.non_finite},
                 {"other", kind.other},           {"ulps", std::move(ulps)}};
  }
  return out;
}

// Sorted by kind, reason and openness, so that equal inputs give equal bytes.
nlohmann::json Tally::GapsJson() const {
  nlohmann::json out = nlohmann::json::array();
  for (const auto& [key, count] : gaps_) {
    const auto& [kind, reason, open] = key;
    out.push_back({{"kind", kind}, {"reason", reason}, {"count", count}, {"open", open}});
  }
  return out;
}

}  // namespace plumbline::audit
