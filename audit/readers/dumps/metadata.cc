#include "audit/readers/dumps/metadata.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <limits>

#include "audit/readers/input/spelling.h"

namespace plumbline::audit {
namespace {

constexpr std::string_view kKeysOfEveryKind[] = {"kind", "run",  "attempt",    "layer", "op",
                                                 "step", "rank", "world_size", "order"};

struct TypeSpelling {
  const char* name;
  DType dtype;
};

// The names of Plumbline, safetensors and PyTorch, in lower case.
constexpr TypeSpelling kDumpDTypes[] = {
    {"f64", DType::kF64},
    {"float64", DType::kF64},
    {"double", DType::kF64},
    {"f32", DType::kF32},
    {"fp32", DType::kF32},
    {"float32", DType::kF32},
    {"float", DType::kF32},
    {"f16", DType::kF16},
    {"fp16", DType::kF16},
    {"float16", DType::kF16},
    {"half", DType::kF16},
    {"bf16", DType::kBF16},
    {"bfloat16", DType::kBF16},
    {"e4m3", DType::kE4M3},
    {"f8_e4m3", DType::kE4M3},
    {"fp8_e4m3", DType::kE4M3},
    {"float8_e4m3fn", DType::kE4M3},
    {"e5m2", DType::kE5M2},
    {"f8_e5m2", DType::kE5M2},
    {"fp8_e5m2", DType::kE5M2},
    {"float8_e5m2", DType::kE5M2},
};

std::string Small(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  constexpr std::string_view kTorch = "torch.";
  return text.starts_with(kTorch) ? text.substr(kTorch.size()) : text;
}

}  // namespace

std::string DumpMetadata::Text(const char* key) const {
  const MetadataEntry* entry = header_.Metadata(key);
  return entry == nullptr ? std::string() : entry->value;
}

uint64_t DumpMetadata::Whole(const char* key, uint64_t low, uint64_t high,
                             uint64_t fallback) const {
  const MetadataEntry* entry = header_.Metadata(key);
  if (entry == nullptr) return fallback;
  uint64_t value = 0;
  const char* end = entry->value.data() + entry->value.size();
  const auto parsed = std::from_chars(entry->value.data(), end, value);
  if (parsed.ec == std::errc() && parsed.ptr == end && value >= low && value <= high) return value;
  Wrong(key, *entry, "a whole number from " + std::to_string(low) + " to " + std::to_string(high));
  return fallback;
}

double DumpMetadata::Number(const char* key, double fallback) const {
  const MetadataEntry* entry = header_.Metadata(key);
  if (entry == nullptr) return fallback;
  double value = 0;
  const char* end = entry->value.data() + entry->value.size();
  const auto parsed = std::from_chars(entry->value.data(), end, value);
  if (parsed.ec == std::errc() && parsed.ptr == end && std::isfinite(value)) return value;
  Wrong(key, *entry, "a decimal number");
  return fallback;
}

bool DumpMetadata::Flag(const char* key, bool fallback) const {
  const int choice = Choice(key, std::array{"false", "true", "0", "1"}, -1);
  return choice < 0 ? fallback : choice % 2 == 1;
}

int DumpMetadata::ChoiceOf(const char* key, std::span<const char* const> choices,
                           int fallback) const {
  const MetadataEntry* entry = header_.Metadata(key);
  if (entry == nullptr) return fallback;
  std::string expected;
  for (size_t i = 0; i < choices.size(); ++i) {
    if (entry->value == choices[i]) return static_cast<int>(i);
    expected += (i == 0 ? "" : i + 1 == choices.size() ? " or " : ", ") + std::string(choices[i]);
  }
  Wrong(key, *entry, expected);
  return fallback;
}

DType DumpMetadata::DTypeNamed(const char* key) const {
  const MetadataEntry* entry = header_.Metadata(key);
  if (entry == nullptr) return DType::kUnspecified;
  const std::string name = Small(entry->value);
  for (const TypeSpelling& known : kDumpDTypes) {
    if (name == known.name) return known.dtype;
  }
  Wrong(key, *entry, "a floating dtype (f64, f32, f16, bf16, e4m3 or e5m2)");
  return DType::kUnspecified;
}

void DumpMetadata::Wrong(const char* key, const MetadataEntry& entry,
                         const std::string& expected) const {
  problems_->push_back({entry.declared_at, std::string("expected metadata ") + key + " to be " +
                                               expected + ", found " + Quoted(entry.value)});
}

DumpSite ReadDumpSite(const SafetensorsHeader& header, std::vector<Problem>* problems) {
  const DumpMetadata metadata(header, problems);
  DumpSite site;
  site.run = metadata.Text("run");
  site.layer = metadata.Text("layer");
  site.op = metadata.Text("op");
  site.attempt = static_cast<uint32_t>(metadata.Whole("attempt", 0, kMaxU32, 0));
  site.rank = static_cast<uint32_t>(metadata.Whole("rank", 0, kMaxU32, 0));
  site.step = static_cast<int64_t>(metadata.Whole("step", 0, kMaxI64, 0));
  const uint64_t least = uint64_t{site.rank} + 1;
  site.world_size = static_cast<uint32_t>(metadata.Whole("world_size", least, kMaxU32, 0));
  site.order = metadata.Whole("order", 1, std::numeric_limits<uint64_t>::max(), 0);
  return site;
}

void CheckSpelling(const SafetensorsHeader& header, std::span<const std::string_view> keys,
                   std::span<const std::string_view> tensors, std::vector<Problem>* problems) {
  const auto check = [&](const char* what, const std::string& name, uint64_t declared_at,
                         std::span<const std::string_view> known) {
    const auto meant = MeantName(name, known);
    if (!meant) return;
    problems->push_back({declared_at, std::string("expected ") + what + " " + std::string(*meant) +
                                          ", found " + Quoted(name) + ", which is not read"});
  };
  std::vector<std::string_view> all(std::begin(kKeysOfEveryKind), std::end(kKeysOfEveryKind));
  all.insert(all.end(), keys.begin(), keys.end());
  for (const auto& [key, entry] : header.metadata) check("metadata", key, entry.declared_at, all);
  for (const auto& [name, tensor] : header.tensors) {
    check("tensor", name, tensor.declared_at, tensors);
  }
}

}  // namespace plumbline::audit
