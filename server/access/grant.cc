#include "server/access/grant.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "rules/catalogue.h"

namespace plumbline::server {

const char* ScopeName(Scope scope) {
  switch (scope) {
    case Scope::kRead:
      return "read";
    case Scope::kWrite:
      return "write";
    case Scope::kAdmin:
      return "admin";
  }
  return "?";
}

bool Grant::Somewhere(Scope scope) const {
  return std::any_of(parts_.begin(), parts_.end(),
                     [&](const GrantPart& part) { return part.Has(scope); });
}

bool Grant::Everywhere(Scope scope) const {
  return std::any_of(parts_.begin(), parts_.end(), [&](const GrantPart& part) {
    return part.Has(scope) && std::find(part.runs.begin(), part.runs.end(), "*") != part.runs.end();
  });
}

bool Grant::Over(Scope scope, std::string_view run) const {
  return std::any_of(parts_.begin(), parts_.end(), [&](const GrantPart& part) {
    return part.Has(scope) &&
           std::any_of(part.runs.begin(), part.runs.end(),
                       [&](const std::string& glob) { return rules::GlobMatch(glob, run); });
  });
}

std::string Grant::Names() const {
  std::string names;
  for (const GrantPart& part : parts_)
    absl::StrAppend(&names, names.empty() ? "" : ", ", part.entry);
  return names;
}

}  // namespace plumbline::server
