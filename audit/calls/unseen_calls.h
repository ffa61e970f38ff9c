// Libraries that are there, and of which no call was seen.
#pragma once

#include <string>
#include <vector>

#include "audit/calls/elf_program.h"
#include "audit/calls/process_calls.h"

namespace plumbline::audit {

struct UnseenLibrary {
  std::string layer;  // "NCCL in train"
  std::string
      op;  // "unseen: " or "unhooked: ", and the likely reason (rules/meta/probe_coverage.cc)
};

// The functions whose presence in a program shows that it contains a library.
const std::vector<std::string>& SymbolsOfLibraries();

// `program`: that of the command. `name`: its name. `stepped`: a Python process was watched by its
// hook. Processes of Python load more libraries than they use, so of them only those are reported
// that a training with several ranks, or on a GPU, must call.
std::vector<UnseenLibrary> FindUnseen(const std::vector<ProcessCalls>& processes,
                                      const ElfProgram& program, const std::string& name,
                                      bool stepped);

}  // namespace plumbline::audit
