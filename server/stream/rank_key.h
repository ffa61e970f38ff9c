// One key for a rank of a run, whatever its attempt.
#pragma once

#include <string>

#include "absl/strings/str_cat.h"
#include "plumbline/v1/evidence.pb.h"

namespace plumbline::server {

// Numbers first: nothing a run may be called can then imitate another key.
inline std::string RankKey(const v1::Source& s) {
  return absl::StrCat(static_cast<int>(s.role()), "/", s.rank(), "/", s.run());
}

}  // namespace plumbline::server
