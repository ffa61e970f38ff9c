#include "agent/interpose/table.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "agent/interpose/interpose.h"
#include "agent/interpose/mapped.h"

namespace plumbline::interpose {

std::atomic<State*> process_state;
__thread char* outermost_frame;

namespace {

constexpr uint32_t kOpen = 2, kNone = 3;

// Returns the page of the state; null if the kernel cannot zero it in a child (before Linux 4.14).
State* MakeState() {
  const long page = sysconf(_SC_PAGESIZE);
  const size_t bytes = page > 0 ? static_cast<size_t>(page) : 4096;
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return nullptr;
  if (madvise(p, bytes, MADV_WIPEONFORK) == 0) {
    State* none = nullptr;
    if (process_state.compare_exchange_strong(none, static_cast<State*>(p))) return process_state;
  }
  munmap(p, bytes);
  return process_state;
}

// Creates DIR/PID-N for the first N that is free: exec keeps the process's number.
int CreateFile(const char* folder) {
  char path[4096];
  for (int n = 0; n < 64; ++n) {
    const int length = snprintf(path, sizeof(path), "%s/%d-%d", folder, getpid(), n);
    if (length < 0 || static_cast<size_t>(length) >= sizeof(path)) return -1;
    const int file = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (file >= 0 || errno != EEXIST) return file;
  }
  return -1;
}

// A file beyond the limit of file sizes would raise SIGXFSZ.
bool MayWrite() {
  rlimit limit{};
  return getrlimit(RLIMIT_FSIZE, &limit) == 0 &&
         (limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= sizeof(CallTable));
}

CallTable* MapFile(int file) {
  if (posix_fallocate(file, 0, sizeof(CallTable)) != 0) return nullptr;
  void* p = mmap(nullptr, sizeof(CallTable), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (p == MAP_FAILED) return nullptr;
  madvise(p, sizeof(CallTable), MADV_DONTFORK);
  return static_cast<CallTable*>(p);
}

int NumberOf(const char* name, int otherwise) {
  const char* text = getenv(name);
  if (text == nullptr || *text < '0' || *text > '9') return otherwise;
  return static_cast<int>(strtol(text, nullptr, 10));
}

// The launcher's variables, in the order of the library (agent/facade/options.cc).
void FillRank(CallTable* table) {
  static constexpr const char* kPairs[][2] = {{"RANK", "WORLD_SIZE"},
                                              {"SLURM_PROCID", "SLURM_NTASKS"},
                                              {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}};
  table->rank = -1;
  for (const auto& pair : kPairs) {
    if (getenv(pair[0]) == nullptr) continue;
    table->rank = NumberOf(pair[0], -1);
    table->ranks = NumberOf(pair[1], 0);
    return;
  }
}

CallTable* Create() {
  const char* folder = getenv("PLUMBLINE_CALLS");
  if (folder == nullptr || folder[0] != '/' || !MayWrite()) return nullptr;
  const int file = CreateFile(folder);
  if (file < 0) return nullptr;
  CallTable* table = MapFile(file);
  close(file);
  if (table == nullptr) return nullptr;
  table->version = CallTable::kVersion;
  table->pid = getpid();
  FillRank(table);
  strncpy(table->name, program_invocation_short_name, sizeof(table->name) - 1);
  table->mapped.store(MappedLibraries());
  std::atomic_thread_fence(std::memory_order_release);
  table->magic = CallTable::kMagic;
  return table;
}

CallTable* OpenOnce(State* state) {
  uint32_t phase = 0;
  if (state->phase.compare_exchange_strong(phase, 1)) {
    CallTable* table = Create();
    state->table.store(table, std::memory_order_release);
    state->phase.store(table != nullptr ? kOpen : kNone, std::memory_order_release);
    return table;
  }
  // Another thread opens it, or this one, if a signal handler makes the call.
  for (int i = 0; i < 10'000 && state->phase.load(std::memory_order_acquire) == 1; ++i)
    sched_yield();
  return state->table.load(std::memory_order_acquire);
}

uint64_t KindAt(const CallKind& at) {
  uint64_t word = 0;
  memcpy(&word, &at, sizeof(word));
  return word;
}

bool Claim(CallCounter& at, uint64_t kind, uint64_t count, uint32_t root) {
  uint32_t free = 0;
  if (!at.state.compare_exchange_strong(free, 1, std::memory_order_acquire)) return false;
  memcpy(static_cast<void*>(&at.kind), &kind, sizeof(kind));
  at.count = count;
  at.root = root;
  at.state.store(2, std::memory_order_release);
  return true;
}

// A counter that another thread is writing is passed over: then two counters have one kind, which
// the reader adds up.
CallCounter* CounterOf(CallTable* table, uint64_t kind, uint64_t count, uint32_t root) {
  constexpr uint32_t kProbes = 64;
  const uint64_t hash = (kind ^ (count * 0xff51'afd7'ed55'8ccdu) ^ root) * 0x9e37'79b9'7f4a'7c15u;
  for (uint32_t i = 0; i < kProbes; ++i) {
    CallCounter& at = table->counters[((hash >> 40) + i) % CallTable::kCounters];
    const uint32_t state = at.state.load(std::memory_order_acquire);
    if (state == 2 && KindAt(at.kind) == kind && at.count == count && at.root == root) return &at;
    if (state == 0 && Claim(at, kind, count, root)) return &at;
  }
  return nullptr;
}

// Adds one without a locked operation. NCCL's calls on one communicator come from one thread at a
// time, and no other call has its counters.
uint64_t AddAlone(std::atomic<uint64_t>& at) {
  const uint64_t before = at.load(std::memory_order_relaxed);
  at.store(before + 1, std::memory_order_relaxed);
  return before;
}

inline void CountIn(CallTable* table, uint64_t kind, uint64_t count, uint32_t root) {
  CallCounter* at = CounterOf(table, kind, count, root);
  (at != nullptr ? at->calls : table->uncounted).fetch_add(1, std::memory_order_relaxed);
}

// Runs when the process exits in the ordinary way. A process without calls gets a table only if it
// mapped a watched library.
__attribute__((destructor)) void AtEnd() {
  const int saved = errno;
  if (getenv("PLUMBLINE_CALLS") != nullptr) {
    const uint32_t mapped = MappedLibraries();
    if (CallTable* table = (mapped & kMappedWatched) != 0 ? Table() : nullptr; table != nullptr) {
      table->mapped.fetch_or(mapped);
      table->ended.store(1);
    }
  }
  errno = saved;
}

}  // namespace

CallTable* OpenTable() {
  State* state = process_state.load(std::memory_order_acquire);
  if (state != nullptr && state->phase.load(std::memory_order_relaxed) == kNone) return nullptr;
  const int saved = errno;
  if (state == nullptr) state = MakeState();
  CallTable* table = state != nullptr ? OpenOnce(state) : nullptr;
  errno = saved;
  return table;
}

void CountWord(uint64_t kind, uint64_t count, uint32_t root) {
  if (CallTable* table = Table(); table != nullptr) CountIn(table, kind, count, root);
}

void CountCollective(uint64_t kind, uint8_t comm, uint64_t count, uint32_t root) {
  CallTable* table = Table();
  if (table == nullptr) return;
  if (comm == kNoCallNumber) {
    CountIn(table, kind, count, root);
    table->unknown.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  CallCounter* at = CounterOf(table, kind, count, root);
  if (at != nullptr) AddAlone(at->calls);
  if (at == nullptr) table->uncounted.fetch_add(1, std::memory_order_relaxed);
  const uint64_t n = AddAlone(table->comms[comm].calls);
  if (comm >= CallTable::kLogs) return;
  CallEntry& entry = table->logs[comm][CallTable::Place(n)];
  entry.number.store(0, std::memory_order_release);
  memcpy(static_cast<void*>(&entry.kind), &kind, sizeof(kind));
  entry.count = count;
  entry.root = root;
  entry.number.store(n + 1, std::memory_order_release);
}

uint8_t CommOf(uint64_t pointer) {
  CallTable* table = Table();
  if (table == nullptr || pointer == 0) return kNoCallNumber;
  for (uint32_t i = 0; i < CallTable::kComms; ++i) {
    CallComm& comm = table->comms[i];
    if (comm.pointer.load(std::memory_order_acquire) == pointer) return static_cast<uint8_t>(i);
    uint32_t free = 0;
    if (comm.used.load(std::memory_order_relaxed) == 0 &&
        comm.used.compare_exchange_strong(free, 1, std::memory_order_acq_rel)) {
      comm.rank = -1;
      comm.pointer.store(pointer, std::memory_order_release);
      return static_cast<uint8_t>(i);
    }
  }
  return kNoCallNumber;
}

}  // namespace plumbline::interpose
