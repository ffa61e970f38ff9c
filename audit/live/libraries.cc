#include <cstdio>
#include <filesystem>
#include <system_error>

#include "audit/live/live.h"
#include "base/files/whole_file.h"

namespace plumbline::audit {

namespace fs = std::filesystem;

int PrintLibraries() {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  const fs::path list = program.parent_path() / "../share/plumbline/libraries.txt";
  if (!fs::exists(list, error)) {
    std::printf("This build contains no libraries of its own: it uses those of the machine.\n");
    return 0;
  }
  const absl::StatusOr<std::string> text = ReadWholeFile(list.lexically_normal().string());
  if (!text.ok()) {
    std::fprintf(stderr, "plumb doctor: %s\n", std::string(text.status().message()).c_str());
    return 1;
  }
  std::fputs(text->c_str(), stdout);
  return 0;
}

}  // namespace plumbline::audit
