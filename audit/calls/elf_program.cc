#include "audit/calls/elf_program.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace plumbline::audit {
namespace {

// The bytes of a file, mapped read-only.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path) {
    const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    struct stat info {};
    if (file >= 0 && fstat(file, &info) == 0 && S_ISREG(info.st_mode) && info.st_size > 0) {
      size_ = static_cast<size_t>(info.st_size);
      void* p = mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file, 0);
      data_ = p == MAP_FAILED ? nullptr : static_cast<const char*>(p);
    }
    if (file >= 0) close(file);
  }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile() {
    if (data_ != nullptr) munmap(const_cast<char*>(data_), size_);
  }

  // Returns the bytes; empty if they are not all within the file.
  std::string_view Bytes(uint64_t offset, uint64_t size) const {
    if (data_ == nullptr || offset > size_ || size > size_ - offset) return {};
    return {data_ + offset, size};
  }

 private:
  const char* data_ = nullptr;
  size_t size_ = 0;
};

// Copies the i-th record of a table; false if it is not in the table.
template <typename Record>
bool Get(std::string_view table, uint64_t i, Record* record) {
  if (i >= table.size() / sizeof(Record)) return false;
  std::memcpy(record, table.data() + i * sizeof(Record), sizeof(Record));
  return true;
}

std::string_view TextAt(std::string_view texts, uint64_t offset) {
  if (offset >= texts.size()) return {};
  const std::string_view text = texts.substr(offset);
  return text.substr(0, text.find('\0'));
}

// Reads the tables of a 64-bit little-endian file. All offsets come from the file, so each access
// is checked against its size.
class ElfReader {
 public:
  ElfReader(const MappedFile& file, const std::vector<std::string>& wanted)
      : file_(file), wanted_(wanted) {}

  ElfProgram Read() {
    Elf64_Ehdr header;
    const std::string_view bytes = file_.Bytes(0, sizeof(header));
    if (!Get(bytes, 0, &header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
        header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB)
      return {};
    program_.known = true;
    program_.linked_statically = !HasInterpreter(header);
    sections_ = file_.Bytes(header.e_shoff, uint64_t{header.e_shnum} * sizeof(Elf64_Shdr));
    Elf64_Shdr section;
    for (uint64_t i = 0; Get(sections_, i, &section); ++i) {
      if (section.sh_type == SHT_SYMTAB || section.sh_type == SHT_DYNSYM) TakeSymbols(section);
      if (section.sh_type == SHT_DYNAMIC) TakeNeeded(section);
    }
    return program_;
  }

 private:
  bool HasInterpreter(const Elf64_Ehdr& header) const {
    const std::string_view headers =
        file_.Bytes(header.e_phoff, uint64_t{header.e_phnum} * sizeof(Elf64_Phdr));
    Elf64_Phdr one;
    for (uint64_t i = 0; Get(headers, i, &one); ++i)
      if (one.p_type == PT_INTERP) return true;
    return false;
  }

  std::string_view TextsOf(const Elf64_Shdr& section) const {
    Elf64_Shdr texts;
    if (!Get(sections_, section.sh_link, &texts)) return {};
    return file_.Bytes(texts.sh_offset, texts.sh_size);
  }

  // Functions that the program itself defines: a library that was linked statically.
  void TakeSymbols(const Elf64_Shdr& section) {
    const std::string_view texts = TextsOf(section);
    const std::string_view symbols = file_.Bytes(section.sh_offset, section.sh_size);
    Elf64_Sym symbol;
    for (uint64_t i = 0; Get(symbols, i, &symbol); ++i) {
      const std::string_view name = TextAt(texts, symbol.st_name);
      if (name == "__asan_init") program_.sanitized = true;
      if (symbol.st_shndx == SHN_UNDEF || ELF64_ST_TYPE(symbol.st_info) != STT_FUNC) continue;
      if (std::find(wanted_.begin(), wanted_.end(), name) != wanted_.end())
        program_.symbols.insert(std::string(name));
    }
  }

  void TakeNeeded(const Elf64_Shdr& section) {
    const std::string_view texts = TextsOf(section);
    const std::string_view entries = file_.Bytes(section.sh_offset, section.sh_size);
    Elf64_Dyn entry;
    for (uint64_t i = 0; Get(entries, i, &entry); ++i) {
      if (entry.d_tag == DT_NEEDED && TextAt(texts, entry.d_un.d_val).starts_with("libasan.so"))
        program_.sanitized = true;
    }
  }

  const MappedFile& file_;
  const std::vector<std::string>& wanted_;
  std::string_view sections_;
  ElfProgram program_;
};

}  // namespace

// Searches as execvp does. "": none found.
std::string FindProgram(const std::string& name) {
  if (name.find('/') != std::string::npos) return name;
  const char* path = std::getenv("PATH");
  std::string_view rest = path != nullptr ? path : "/bin:/usr/bin";
  while (true) {
    const size_t end = rest.find(':');
    const std::string folder(rest.substr(0, end));
    const std::string file = (folder.empty() ? "." : folder) + "/" + name;
    struct stat info {};
    if (access(file.c_str(), X_OK) == 0 && stat(file.c_str(), &info) == 0 && S_ISREG(info.st_mode))
      return file;
    if (end == std::string_view::npos) return "";
    rest.remove_prefix(end + 1);
  }
}

ElfProgram ExamineProgram(const std::string& path, const std::vector<std::string>& symbols) {
  const MappedFile file(path);
  return ElfReader(file, symbols).Read();
}

}  // namespace plumbline::audit
