// Reads and checks metadata of a dump by key, for every kind of dump.
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

// Reads values of the metadata. For a wrong value, adds a problem with the expected value, and
// returns the fallback.
class DumpMetadata {
 public:
  // `header` and `problems` must outlive the object.
  DumpMetadata(const SafetensorsHeader& header, std::vector<Problem>* problems)
      : header_(header), problems_(problems) {}

  bool Has(const char* key) const { return header_.Metadata(key) != nullptr; }

  // Returns "" if the key is absent.
  std::string Text(const char* key) const;

  // Reads decimal digits. If absent or wrong, returns `fallback`.
  uint64_t Whole(const char* key, uint64_t low, uint64_t high, uint64_t fallback) const;

  // Reads a finite decimal number ("1e-8"). If absent or wrong, returns `fallback`.
  double Number(const char* key, double fallback) const;

  // Reads true, false, 1 or 0.
  bool Flag(const char* key, bool fallback) const;

  // Returns the index of the value among `choices`. If absent or wrong, returns `fallback`.
  template <size_t n>
  int Choice(const char* key, const std::array<const char*, n>& choices, int fallback) const {
    return ChoiceOf(key, choices, fallback);
  }

  // Reads a dtype by its name ("bf16", "float16", "F32", ...). If absent or wrong, returns
  // kUnspecified.
  DType DTypeNamed(const char* key) const;

  void Wrong(const char* key, const MetadataEntry& entry, const std::string& expected) const;

 private:
  int ChoiceOf(const char* key, std::span<const char* const> choices, int fallback) const;

  const SafetensorsHeader& header_;
  std::vector<Problem>* problems_;
};

inline constexpr uint64_t kMaxI64 = std::numeric_limits<int64_t>::max();
inline constexpr uint64_t kMaxU32 = std::numeric_limits<uint32_t>::max();

// The metadata that all kinds of dump share: the call and the process that were recorded.
struct DumpSite {
  std::string run;
  uint32_t attempt = 0;
  int64_t step = 0;
  uint32_t rank = 0;
  uint32_t world_size = 0;  // ranks of the run; 0: not stated
  uint64_t order = 0;       // number of the observation within its step and rank; 0: not stated
  std::string layer;
  std::string op;
};

// Reads the site. Adds all problems, not only the first.
DumpSite ReadDumpSite(const SafetensorsHeader& header, std::vector<Problem>* problems);

// Reports misspelt names, because a missing value may lead to a wrong verdict. Ignores foreign
// names. `keys` are the kind's own keys, in addition to those of every kind.
void CheckSpelling(const SafetensorsHeader& header, std::span<const std::string_view> keys,
                   std::span<const std::string_view> tensors, std::vector<Problem>* problems);

}  // namespace plumbline::audit
