#include "audit/readers/scalars/csv_exports.h"

#include <set>

#include "audit/readers/scalars/text_file.h"

namespace plumbline::audit {

bool IsRange(std::string_view name) { return name.ends_with("__MIN") || name.ends_with("__MAX"); }

std::string ExportedRun(const std::vector<std::string_view>& columns, std::string_view step) {
  if (step != "Step") return "";
  std::set<std::string_view> runs;
  for (const std::string_view name : columns) {
    if (name == step) continue;
    const size_t at = name.rfind(" - ");
    if (at == std::string_view::npos || at == 0) return "";
    runs.insert(name.substr(0, at));
  }
  return runs.size() == 1 ? PlainName(*runs.begin()) : "";
}

std::string_view TagOf(std::string_view path) {
  path = path.substr(path.rfind('/') + 1);
  const size_t tag = path.find("tag-");
  if (tag == std::string_view::npos) return "Value";
  path.remove_prefix(tag + 4);
  return path.substr(0, path.find(".csv"));
}

}  // namespace plumbline::audit
