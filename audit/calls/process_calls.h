// The table of calls of one process, as libplumb_interpose.so left it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/call_table.h"

namespace plumbline::audit {

enum class CallFamily { kBlas, kNccl, kCublas, kGloo };

struct CountedCall {
  CallKind kind;
  uint64_t count = 0;  // elements of a collective
  uint32_t root = 0;
  uint64_t calls = 0;
};

struct ProcessComm {
  uint64_t id = 0, parent = 0;  // 0: its creation was not seen; not split
  uint32_t ranks = 0;           // 0: not known
  int32_t rank = -1;
  int32_t key = 0;  // of a split
  uint32_t parent_rank = 0;
  uint64_t calls = 0;
};

struct LoggedCall {
  uint64_t in_comm = 0;  // number within its communicator, from 0
  CallKind kind;
  uint64_t count = 0;
  uint32_t root = 0;
};

struct ProcessCalls {
  int64_t pid = 0;
  int32_t rank = -1, ranks = 0;  // of the launcher's environment; -1 and 0: none
  std::string name;
  uint32_t mapped = 0;     // CallMapped
  uint64_t uncounted = 0;  // calls that found no counter or no communicator
  std::vector<CountedCall> counted;
  std::vector<ProcessComm> comms;  // by the index in a kind
  std::vector<LoggedCall> logged;  // collectives by communicator, in order; the middle is absent
};

const char* NameOf(CallFunction function);
CallFamily FamilyOf(CallFunction function);

// Returns the number of calls of a family.
uint64_t CallsOf(const ProcessCalls& process, CallFamily family);

// Returns the number of collectives over all processes.
uint64_t CollectivesOf(const std::vector<ProcessCalls>& processes);

// Reads the tables in a folder, in the order of process numbers. Files that are not tables are
// skipped.
std::vector<ProcessCalls> ReadTables(const std::string& folder);

}  // namespace plumbline::audit
