#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cstdio>

#include "rules/rule.h"

namespace plumbline::rules {

// XXH3-128 over length-prefixed fields, so that ("ab","c") and ("a","bc") differ.
std::string Fingerprint(std::string_view rule, const v1::FindingSite& site) {
  std::string key;
  for (std::string_view field : {rule, std::string_view(site.run()), std::string_view(site.layer()),
                                 std::string_view(site.op())}) {
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

}  // namespace plumbline::rules
