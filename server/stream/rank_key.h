// Makes one key for a rank of a run, independent of its attempt.
#pragma once

#include <string>

#include "absl/strings/str_cat.h"
#include "plumbline/v1/evidence.pb.h"

namespace plumbline::server {

// Numbers come first, so that no run name can imitate another key.
inline std::string RankKey(const v1::Source& s) {
  return absl::StrCat(static_cast<int>(s.role()), "/", s.rank(), "/", s.run());
}

}  // namespace plumbline::server
