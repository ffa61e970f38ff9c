#include "audit/commands/python_package.h"

#include <filesystem>
#include <system_error>

namespace plumbline::audit {

std::string PythonPackage() {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path here = fs::read_symlink("/proc/self/exe", error).parent_path();
  for (const char* package :
       {"../python/plumbline", "../lib/python3/dist-packages/plumbline", ".."}) {
    const fs::path folder = here / package;
    if (fs::exists(folder / "_attach/path/sitecustomize.py", error))
      return fs::canonical(folder, error);
  }
  return "";
}

}  // namespace plumbline::audit
