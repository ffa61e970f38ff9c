#include "analysis/frame/hash_fields.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cstdint>
#include <cstdio>

namespace plumbline::analysis {

std::string HashFields(std::initializer_list<std::string_view> fields) {
  std::string key;
  for (const std::string_view field : fields) {
    const auto size = static_cast<uint32_t>(field.size());
    for (int shift = 0; shift < 32; shift += 8)
      key.push_back(static_cast<char>(size >> shift & 0xff));
    key.append(field);
  }
  const XXH128_hash_t hash = XXH3_128bits(key.data(), key.size());
  char text[33];
  std::snprintf(text, sizeof(text), "%016llx%016llx", static_cast<unsigned long long>(hash.high64),
                static_cast<unsigned long long>(hash.low64));
  return text;
}

}  // namespace plumbline::analysis
