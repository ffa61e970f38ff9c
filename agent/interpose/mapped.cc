#include "agent/interpose/mapped.h"

#include <link.h>

#include <cerrno>
#include <cstring>

namespace plumbline::interpose {
namespace {

struct Named {
  const char* prefix;
  uint32_t bit;
};
constexpr Named kNames[] = {
    {"libblas.so", kMappedBlas},     {"libcblas.so", kMappedBlas},
    {"libopenblas.so", kMappedBlas}, {"libblis.so", kMappedBlas},
    {"libmkl_rt.so", kMappedBlas},   {"libnccl.so", kMappedNccl},
    {"libcublas.so", kMappedCublas}, {"libcublasLt.so", kMappedCublas},
    {"libgloo.so", kMappedGloo},     {"libcuda.so", kMappedCuda},
    {"libpython3", kMappedPython},
};

bool StartsWith(const char* text, const char* prefix) {
  return strncmp(text, prefix, strlen(prefix)) == 0;
}

int NoteObject(dl_phdr_info* info, size_t /*size*/, void* context) {
  if (info->dlpi_name == nullptr) return 0;
  const char* slash = strrchr(info->dlpi_name, '/');
  const char* name = slash != nullptr ? slash + 1 : info->dlpi_name;
  for (const Named& known : kNames)
    if (StartsWith(name, known.prefix)) *static_cast<uint32_t*>(context) |= known.bit;
  return 0;
}

}  // namespace

uint32_t MappedLibraries() {
  uint32_t bits = StartsWith(program_invocation_short_name, "python") ? uint32_t{kMappedPython} : 0;
  dl_iterate_phdr(NoteObject, &bits);
  return bits;
}

}  // namespace plumbline::interpose
