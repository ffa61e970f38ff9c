// Prints the members of a zip and their bytes in the format of zip_test.py, or why it is refused.
// With `--damage`, every byte is changed and every length tried.
#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>

#include "audit/readers/zip/archive.h"

namespace {

using namespace plumbline::audit;

std::optional<Problem> Read(const std::string& path, ZipArchive* archive, std::string* text) {
  auto file = InputFile::Open(path);
  if (!file.ok()) return Problem{0, std::string(file.status().message())};
  if (auto problem = ReadZip(*file, archive)) return problem;
  for (const ZipMember& member : archive->members) {
    std::string data(member.unreadable.empty() ? member.size : 0, '\0');
    if (auto read = file->ReadAt(member.begin, data.data(), data.size()); !read.ok())
      return Problem{member.begin, "a member that is not there"};
    *text += member.name + "|" + (member.unreadable.empty() ? data : member.unreadable) + "\n";
  }
  return std::nullopt;
}

int Damage(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string bytes(std::istreambuf_iterator<char>(in), {});
  const std::string damaged_path = path + ".damaged";
  const auto attempt = [&](const std::string& damaged) {
    std::ofstream(damaged_path, std::ios::binary | std::ios::trunc) << damaged;
    ZipArchive archive;
    std::string text;
    const auto problem = Read(damaged_path, &archive, &text);
    return !problem || problem->text != "a member that is not there";
  };
  for (size_t i = 0; i < bytes.size(); ++i) {
    for (const char change : {'\x01', '\x80', '\xff'}) {
      std::string damaged = bytes;
      damaged[i] = static_cast<char>(damaged[i] ^ change);
      if (!attempt(damaged)) return 1;
    }
    if (!attempt(bytes.substr(0, i))) return 1;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 2) return Damage(argv[2]);
  ZipArchive archive;
  std::string text;
  if (const auto problem = Read(argv[1], &archive, &text)) {
    std::printf("refused: byte %" PRIu64 ": %s\n", problem->offset, problem->text.c_str());
    return 1;
  }
  std::fputs(text.c_str(), stdout);
  return 0;
}
