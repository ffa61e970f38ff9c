#include "audit/calls/process_calls.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <system_error>
#include <tuple>

#include "base/printable.h"

namespace plumbline::audit {
namespace {

namespace fs = std::filesystem;

class MappedTable {
 public:
  explicit MappedTable(const std::string& path) {
    const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    struct stat info {};
    if (file >= 0 && fstat(file, &info) == 0 && info.st_size >= off_t{sizeof(CallTable)}) {
      void* p = mmap(nullptr, sizeof(CallTable), PROT_READ, MAP_SHARED, file, 0);
      table_ = p == MAP_FAILED ? nullptr : static_cast<const CallTable*>(p);
    }
    if (file >= 0) close(file);
  }
  MappedTable(const MappedTable&) = delete;
  MappedTable& operator=(const MappedTable&) = delete;
  ~MappedTable() {
    if (table_ != nullptr) munmap(const_cast<CallTable*>(table_), sizeof(CallTable));
  }
  const CallTable* valid() const {
    const bool ours = table_ != nullptr && table_->magic == CallTable::kMagic &&
                      table_->version == CallTable::kVersion;
    return ours ? table_ : nullptr;
  }

 private:
  const CallTable* table_ = nullptr;
};

bool IsValid(const CallKind& kind) {
  return static_cast<unsigned>(kind.function) <=
             static_cast<unsigned>(CallFunction::gloo_barrier) &&
         (kind.comm == kNoCallNumber || kind.comm < CallTable::kComms);
}

// Two threads may have made two counters for one kind.
void TakeCounters(const CallTable& table, ProcessCalls* process) {
  std::map<std::tuple<uint64_t, uint64_t, uint32_t>, CountedCall> sums;
  for (const CallCounter& at : table.counters) {
    if (at.state.load(std::memory_order_acquire) != 2 || !IsValid(at.kind)) continue;
    uint64_t words = 0;
    std::memcpy(&words, &at.kind, sizeof(words));
    CountedCall& sum = sums[{words, at.count, at.root}];
    sum = {at.kind, at.count, at.root, sum.calls + at.calls.load()};
  }
  for (const auto& [key, sum] : sums)
    if (sum.calls > 0) process->counted.push_back(sum);
}

void TakeComms(const CallTable& table, ProcessCalls* process) {
  for (const CallComm& at : table.comms)
    process->comms.push_back(
        {at.id, at.parent, at.ranks, at.rank, at.key, at.parent_rank, at.calls.load()});
}

void TakeLog(const CallTable& table, uint8_t comm, ProcessCalls* process) {
  const uint64_t all = table.comms[comm].calls.load();
  for (uint64_t n = 0; n < all; ++n) {
    if (n == CallTable::kFirst && all > CallTable::kFirst + CallTable::kLast)
      n = all - CallTable::kLast;
    const CallEntry& entry = table.logs[comm][CallTable::Place(n)];
    if (entry.number.load(std::memory_order_acquire) != n + 1 || entry.kind.comm != comm) continue;
    if (IsValid(entry.kind)) process->logged.push_back({n, entry.kind, entry.count, entry.root});
  }
}

}  // namespace

const char* NameOf(CallFunction function) {
  static constexpr const char* kNames[] = {
#define PLUMB_CALL_NAME(name) #name,
      PLUMB_CALL_FUNCTIONS(PLUMB_CALL_NAME)
#undef PLUMB_CALL_NAME
  };
  return kNames[static_cast<size_t>(function)];
}

CallFamily FamilyOf(CallFunction function) {
  const std::string_view name = NameOf(function);
  if (name.starts_with("nccl")) return CallFamily::kNccl;
  if (name.starts_with("cublas")) return CallFamily::kCublas;
  return name.starts_with("gloo") ? CallFamily::kGloo : CallFamily::kBlas;
}

uint64_t CallsOf(const ProcessCalls& process, CallFamily family) {
  uint64_t calls = 0;
  for (const CountedCall& one : process.counted)
    calls += FamilyOf(one.kind.function) == family ? one.calls : 0;
  return calls;
}

uint64_t CollectivesOf(const std::vector<ProcessCalls>& processes) {
  uint64_t calls = 0;
  for (const ProcessCalls& process : processes)
    for (const ProcessComm& comm : process.comms) calls += comm.calls;
  return calls;
}

std::vector<ProcessCalls> ReadTables(const std::string& folder) {
  std::vector<ProcessCalls> processes;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const MappedTable mapped(it->path());
    const CallTable* table = mapped.valid();
    if (table == nullptr) continue;
    ProcessCalls process{.pid = table->pid, .rank = table->rank, .ranks = table->ranks};
    process.name = Printable(std::string(table->name, strnlen(table->name, sizeof(table->name))));
    process.mapped = table->mapped.load();
    process.uncounted = table->uncounted.load();
    TakeCounters(*table, &process);
    TakeComms(*table, &process);
    for (uint8_t comm = 0; comm < CallTable::kLogs; ++comm) TakeLog(*table, comm, &process);
    process.uncounted += table->unknown.load();
    processes.push_back(std::move(process));
  }
  std::stable_sort(processes.begin(), processes.end(),
                   [](const ProcessCalls& a, const ProcessCalls& b) { return a.pid < b.pid; });
  return processes;
}

}  // namespace plumbline::audit
