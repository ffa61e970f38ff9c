#include "audit/readers/scalars/state_copies.h"

#include <filesystem>

namespace plumbline::audit {
namespace {

// Empty: it is no such file.
std::string OutputOf(const std::string& path) {
  namespace fs = std::filesystem;
  if (!path.ends_with("trainer_state.json")) return "";  // most files, soon
  const fs::path file = fs::absolute(path).lexically_normal();
  if (file.filename() != "trainer_state.json") return "";
  const fs::path folder = file.parent_path();
  const bool copy = folder.filename().string().starts_with("checkpoint-");
  return (copy ? folder.parent_path() : folder).string();
}

}  // namespace

std::map<const InputReport*, std::string> CopiesAmong(const std::vector<StateFile>& files) {
  std::map<std::string, const StateFile*> longest;  // by output folder
  for (const StateFile& file : files) {
    const std::string output = OutputOf(file.report->path);
    if (output.empty()) continue;
    const StateFile*& kept = longest[output];
    const bool longer = kept == nullptr || file.bytes > kept->bytes ||
                        (file.bytes == kept->bytes && file.report->path < kept->report->path);
    if (longer) kept = &file;
  }
  std::map<const InputReport*, std::string> copies;
  for (const StateFile& file : files) {
    const auto of = longest.find(OutputOf(file.report->path));
    if (of == longest.end() || file.report->named || of->second->report == file.report) continue;
    copies.emplace(file.report, of->second->report->path);
  }
  return copies;
}

std::string NoteOfCopy(const std::string& longest) {
  return "an earlier copy of what " + longest + " has logged: not read";
}

}  // namespace plumbline::audit
