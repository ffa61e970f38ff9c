// Reads from a program's file whether and how its calls can be watched.
#pragma once

#include <set>
#include <string>
#include <vector>

namespace plumbline::audit {

struct ElfProgram {
  bool known = false;  // it is a 64-bit ELF file that could be read
  bool linked_statically = false;
  bool sanitized = false;         // contains or needs AddressSanitizer
  std::set<std::string> symbols;  // of the given ones, those that it defines itself
};

// Returns the path of a command's program, found as execvp does; empty if there is none.
std::string FindProgram(const std::string& name);

// Examines the file. A file that is damaged or foreign is not known. Reads the symbol tables only.
ElfProgram ExamineProgram(const std::string& path, const std::vector<std::string>& symbols);

}  // namespace plumbline::audit
