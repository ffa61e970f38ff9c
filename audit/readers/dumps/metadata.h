// Metadata of a dump, read by key and checked: what every kind of dump shares.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "audit/readers/input/reader.h"
#include "audit/readers/safetensors/header.h"

namespace plumbline::audit {

// Values of the metadata. A wrong one becomes a problem that says what was expected, and reads as
// its fallback.
class DumpMetadata {
 public:
  // Both outlive the object.
  DumpMetadata(const SafetensorsHeader& header, std::vector<Problem>* problems)
      : header_(header), problems_(problems) {}

  bool Has(const char* key) const { return header_.Metadata(key) != nullptr; }

  // Empty when absent.
  std::string Text(const char* key) const;

  // Decimal digits only; `fallback` when absent or wrong.
  uint64_t Whole(const char* key, uint64_t low, uint64_t high, uint64_t fallback) const;

  // A decimal number ("1e-8"), finite; `fallback` when absent or wrong.
  double Number(const char* key, double fallback) const;

  // true, false, 1 or 0.
  bool Flag(const char* key, bool fallback) const;

  // Index of the value among `choices`, `fallback` when absent or wrong.
  template <size_t n>
  int Choice(const char* key, const std::array<const char*, n>& choices, int fallback) const {
    return ChoiceOf(key, choices, fallback);
  }

  // A dtype by its name ("bf16", "float16", "F32", ...); kUnspecified when absent or wrong.
  DType DTypeNamed(const char* key) const;

  void Wrong(const char* key, const MetadataEntry& entry, const std::string& expected) const;

 private:
  int ChoiceOf(const char* key, std::span<const char* const> choices, int fallback) const;

  const SafetensorsHeader& header_;
  std::vector<Problem>* problems_;
};

inline constexpr uint64_t kMaxI64 = std::numeric_limits<int64_t>::max();
inline constexpr uint64_t kMaxU32 = std::numeric_limits<uint32_t>::max();

// Which call of which process a dump of any kind records: the metadata that every kind takes.
struct DumpSite {
  std::string run;
  uint32_t attempt = 0;
  int64_t step = 0;
  uint32_t rank = 0;
  uint32_t world_size = 0;  // ranks of the run; 0: not said
  uint64_t order = 0;  // running number of the observation within its step and rank; 0: not said
  std::string layer;
  std::string op;
};

// Collects every problem, not only the first.
DumpSite ReadDumpSite(const SafetensorsHeader& header, std::vector<Problem>* problems);

// Names that are not ours are left alone, misspelt ones are not: without them the rest would be
// judged as something it is not. `keys` are the kind's own, beside those of every kind.
void CheckSpelling(const SafetensorsHeader& header, std::span<const std::string_view> keys,
                   std::span<const std::string_view> tensors, std::vector<Problem>* problems);

}  // namespace plumbline::audit
