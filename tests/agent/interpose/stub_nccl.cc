// An NCCL for host memory: ranks are processes that share a file. It sums one rank after the other,
// in the dtype of the call. A world may be larger than the number of processes (TEST_LOCAL_RANKS):
// the absent ranks have the addends of the present ones.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "vendor.h"

namespace {

constexpr size_t kBytes = 1 << 16;  // of a rank
constexpr int kMostRanks = 8;

struct Shared {
  std::atomic<int> arrived;
  std::atomic<int> generation;
  char data[kMostRanks][kBytes];
};

int LocalRanks(int ranks) {
  const char* text = getenv("TEST_LOCAL_RANKS");
  const int local = text != nullptr ? atoi(text) : ranks;
  return local < ranks ? local : ranks;
}

}  // namespace

struct ncclComm {
  Shared* shared;
  int ranks, rank, local;
  int split;
  char path[64];
};

namespace {

// Returns 1 if another rank did not come within 60 s.
int Meet(const ncclComm* comm) {
  Shared* s = comm->shared;
  const int generation = s->generation.load();
  if (s->arrived.fetch_add(1) + 1 == comm->local) {
    s->arrived.store(0);
    s->generation.fetch_add(1);
    return 0;
  }
  for (int i = 0; i < 600'000; ++i) {
    if (s->generation.load() != generation) return 0;
    usleep(100);
  }
  return 1;
}

int Open(ncclComm_t* comm, const char* path, int ranks, int rank) {
  const int file = open(path, O_RDWR | O_CREAT, 0600);
  if (file < 0 || ftruncate(file, sizeof(Shared)) != 0) return 2;
  void* p = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (p == MAP_FAILED) return 2;
  auto* made = new ncclComm{static_cast<Shared*>(p), ranks, rank, LocalRanks(ranks), 0, {}};
  snprintf(made->path, sizeof(made->path), "%s", path);
  *comm = made;
  return Meet(made);
}

size_t SizeOf(int datatype) { return datatype == 7 ? 4 : 2; }

float Value(const char* data, int datatype, size_t i) {
  if (datatype == 7) return reinterpret_cast<const float*>(data)[i];
  return FromHalf(reinterpret_cast<const uint16_t*>(data)[i]);
}

}  // namespace

extern "C" {

int ncclGetUniqueId(ncclUniqueId* id) {
  memset(id, 0, sizeof(*id));
  snprintf(id->internal, sizeof(id->internal), "/dev/shm/plumb-stub-nccl-%d", getpid());
  unlink(id->internal);
  return 0;
}

int ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank) {
  return Open(comm, id.internal, ranks, rank);
}

int ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* created, void*) {
  char path[64];
  snprintf(path, sizeof(path), "%.40s-%d-%d", comm->path, comm->split++, color);
  (void)key;
  return Open(created, path, comm->ranks, comm->rank);  // the tests split into one part
}

int ncclCommDestroy(ncclComm_t comm) {
  const int status = Meet(comm);
  unlink(comm->path);
  munmap(comm->shared, sizeof(Shared));
  delete comm;
  return status;
}

int ncclAllReduce(const void* send, void* receive, size_t count, int datatype, int, ncclComm_t comm,
                  void*) {
  if (count * SizeOf(datatype) > kBytes) return 4;
  memcpy(comm->shared->data[comm->rank], send, count * SizeOf(datatype));
  if (Meet(comm) != 0) return 6;
  for (size_t i = 0; i < count; ++i) {
    float sum = Value(comm->shared->data[0], datatype, i);
    for (int r = 1; r < comm->ranks; ++r) {
      sum += Value(comm->shared->data[r % comm->local], datatype, i);
      if (datatype == 6) sum = FromHalf(ToHalf(sum));
    }
    if (datatype == 7) static_cast<float*>(receive)[i] = sum;
    if (datatype != 7) static_cast<uint16_t*>(receive)[i] = ToHalf(sum);
  }
  errno = 77;  // the caller sees the library's errno
  return Meet(comm);
}

int ncclBroadcast(const void* send, void* receive, size_t count, int datatype, int root,
                  ncclComm_t comm, void*) {
  if (comm->rank == root) memcpy(comm->shared->data[root], send, count * SizeOf(datatype));
  if (Meet(comm) != 0) return 6;
  memcpy(receive, comm->shared->data[root], count * SizeOf(datatype));
  return Meet(comm);
}

}  // extern "C"
