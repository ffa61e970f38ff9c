#include "audit/ledger/whole_file.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace plumbline::audit {

absl::StatusOr<std::string> WholeFile(const std::string& path, uint64_t most_bytes) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error))
    return absl::InvalidArgumentError("expected a file, found a directory");
  const uintmax_t size = std::filesystem::file_size(path, error);
  if (error) return absl::NotFoundError("expected a readable file, found: " + error.message());
  if (size > most_bytes)
    return absl::InvalidArgumentError(
        absl::StrCat("expected at most ", most_bytes, " bytes, found ", size));
  std::ifstream file(path, std::ios::binary);
  std::string bytes(size, '\0');
  if (!file || (size > 0 && !file.read(bytes.data(), static_cast<std::streamsize>(size))))
    return absl::NotFoundError(
        absl::StrCat("expected a readable file, found: ", std::strerror(errno)));
  return bytes;
}

}  // namespace plumbline::audit
