#include "audit/commands/missing_paths.h"

#include <filesystem>
#include <string>
#include <vector>

#include "audit/commands/commands.h"
#include "base/near_word.h"

namespace plumbline::audit {

int ReportMissing(const AuditResult& result) {
  for (const InputReport& input : result.inputs) {
    const std::filesystem::path path(input.path);
    std::vector<std::string> names;
    std::error_code error;
    for (std::filesystem::directory_iterator
             entry(path.has_parent_path() ? path.parent_path() : std::filesystem::path("."), error),
         end;
         !error && entry != end && names.size() < 10'000; entry.increment(error))
      names.push_back(entry->path().filename().string());
    Fail(input.path + ": no such file or directory" + DidYouMean(path.filename().string(), names));
  }
  return kExitError;
}

}  // namespace plumbline::audit
