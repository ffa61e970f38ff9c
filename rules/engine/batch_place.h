// Names the place of an error in a batch: "evidence[3].site.layer: 600 bytes, at most 512 are
// accepted".
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace plumbline::rules {

// An entry of one of the batch's lists. Its text is built only if there is an error.
struct BatchPlace {
  const char* list;
  int index;

  absl::Status Bad(std::string_view what) const {
    return absl::InvalidArgumentError(
        absl::StrCat(list, "[", index, "]", absl::string_view(what.data(), what.size())));
  }
  absl::Status CheckName(const char* field, const std::string& name, size_t most) const {
    if (name.size() <= most) return absl::OkStatus();
    return Bad(
        absl::StrCat(".", field, ": ", name.size(), " bytes, at most ", most, " are accepted"));
  }
};

}  // namespace plumbline::rules
