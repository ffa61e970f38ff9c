#include "server/stream/shares.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace plumbline::server {

Shares::Shares(const Config& config) {
  const auto writes = [](const AccessEntry& entry) {
    return std::find(entry.scopes.begin(), entry.scopes.end(), "write") != entry.scopes.end();
  };
  const auto writers = std::count_if(config.access.begin(), config.access.end(), writes);
  for (const AccessEntry& entry : config.access) {
    if (writes(entry))
      entries_[entry.name] = entry.share > 0 ? entry.share : writers > 1 ? 0.5 : 1.0;
  }
}

double Shares::Of(const std::string& owner) const {
  double share = 0;
  for (const absl::string_view name : absl::StrSplit(owner, ", ")) {
    const auto entry = entries_.find(std::string(name));
    if (entry != entries_.end()) share = std::max(share, entry->second);
  }
  return share > 0 ? share : 1;
}

size_t Shares::Part(const std::string& owner, size_t all) const {
  return std::max<size_t>(1, static_cast<size_t>(static_cast<double>(all) * Of(owner)));
}

std::string Shares::Full(const std::string& owner, size_t all, const char* what,
                         const char* key) const {
  const size_t part = Part(owner, all);
  if (part >= all)
    return absl::StrCat("this server already serves ", all, " ", what, " (", key, ")");
  return absl::StrCat("the access entry ", owner, " has used its share, ", part, " of ", all, " ",
                      what, " (", key, "): end some of them, or raise access.share");
}

}  // namespace plumbline::server
