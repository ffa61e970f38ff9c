#include "audit/calls/unseen_calls.h"

#include <algorithm>

namespace plumbline::audit {
namespace {

struct Watched {
  CallFamily family;
  uint32_t mapped;
  const char* name;
  const char* symbols[3];
};
constexpr Watched kWatched[] = {
    {CallFamily::kBlas, kMappedBlas, "BLAS", {"sgemm_", "dgemm_", "cblas_sgemm"}},
    {CallFamily::kNccl, kMappedNccl, "NCCL", {"ncclAllReduce", "ncclReduceScatter", "ncclReduce"}},
    {CallFamily::kCublas,
     kMappedCublas,
     "cuBLAS",
     {"cublasGemmEx", "cublasSgemm_v2", "cublasLtMatmul"}},
};

constexpr char kStatic[] =
    "unhooked: the program contains the library (linked statically), so its calls do not pass the "
    "dynamic linker; link the shared library, or observe by code (docs/instrumenting.md)";
constexpr char kDynamic[] =
    "unseen: the library is loaded, but no watched function was called through the dynamic linker. "
    "Likely reasons: the program does not use it, calls it by dlsym, calls pnccl... directly, or "
    "binds deeply (RTLD_DEEPBIND)";

bool MustCall(const ProcessCalls& process, const Watched& watched, bool stepped) {
  if ((process.mapped & kMappedPython) == 0) return true;
  if (!stepped) return false;
  if (watched.family == CallFamily::kNccl)
    return process.ranks > 1 && (process.mapped & kMappedCuda);
  return watched.family == CallFamily::kCublas && (process.mapped & kMappedCuda) != 0;
}

bool Contains(const ElfProgram& program, const Watched& watched) {
  return std::any_of(std::begin(watched.symbols), std::end(watched.symbols),
                     [&](const char* symbol) { return program.symbols.contains(symbol); });
}

}  // namespace

const std::vector<std::string>& SymbolsOfLibraries() {
  static const auto& symbols = *new std::vector<std::string>([] {
    std::vector<std::string> all;
    for (const Watched& watched : kWatched)
      all.insert(all.end(), std::begin(watched.symbols), std::end(watched.symbols));
    return all;
  }());
  return symbols;
}

std::vector<UnseenLibrary> FindUnseen(const std::vector<ProcessCalls>& processes,
                                      const ElfProgram& program, const std::string& name,
                                      bool stepped) {
  std::vector<UnseenLibrary> unseen;
  for (const Watched& watched : kWatched) {
    uint64_t calls = 0;
    const ProcessCalls* silent = nullptr;
    for (const ProcessCalls& process : processes) {
      calls += CallsOf(process, watched.family);
      const bool mapped = (process.mapped & watched.mapped) != 0;
      if (mapped && MustCall(process, watched, stepped)) silent = &process;
    }
    if (calls > 0) continue;
    if (Contains(program, watched)) {
      unseen.push_back({std::string(watched.name) + " in " + name, kStatic});
    } else if (silent != nullptr) {
      unseen.push_back({std::string(watched.name) + " in " + silent->name, kDynamic});
    }
  }
  return unseen;
}

}  // namespace plumbline::audit
