// Declares the content of known_map_texts.cc.in.
#pragma once

#include <string_view>

namespace plumbline::audit {

struct KnownMapText {
  std::string_view name, text;
};
inline constexpr int kKnownMaps = 4;
extern const KnownMapText kKnownMapTexts[kKnownMaps];

}  // namespace plumbline::audit
