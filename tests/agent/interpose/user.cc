// A program that loads the stub NCCL and calls it by dlsym.
#include <dlfcn.h>

#include <cstdio>
#include <vector>

#include "vendor.h"

int main(int, char** argv) {
  void* library = dlopen(argv[1], RTLD_NOW);
  if (library == nullptr) return 1;
  const auto unique =
      reinterpret_cast<decltype(&ncclGetUniqueId)>(dlsym(library, "ncclGetUniqueId"));
  const auto init =
      reinterpret_cast<decltype(&ncclCommInitRank)>(dlsym(library, "ncclCommInitRank"));
  const auto reduce = reinterpret_cast<decltype(&ncclAllReduce)>(dlsym(library, "ncclAllReduce"));
  const auto destroy =
      reinterpret_cast<decltype(&ncclCommDestroy)>(dlsym(library, "ncclCommDestroy"));
  ncclUniqueId id;
  ncclComm_t comm;
  unique(&id);
  if (init(&comm, 1, id, 0) != 0) return 1;
  std::vector<float> data(8, 1.0f);
  const int status = reduce(data.data(), data.data(), 8, 7, 0, comm, nullptr);
  destroy(comm);
  printf("%g\n", data[0]);
  return status;
}
