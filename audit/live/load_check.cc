// plumb-load-check LIBRARY: loads libplumbline.so as a trainer would, opens a run that records to a
// scratch directory, and closes it, which loads the agent too. Prints the library's version.
//
// This is a separate program because plumb links protobuf itself, and one process can register
// Plumbline's messages only once.
#include <dlfcn.h>

#include <cstdint>
#include <cstdio>

namespace {

using Open = int32_t (*)(const void*, void**);
using Step = int32_t (*)(void*, int64_t);
using Scalar = int32_t (*)(void*, const char*, double);
using End = int32_t (*)(void*);
using Close = int32_t (*)(void*, uint32_t);
using Text = const char* (*)();

void* library = nullptr;

template <typename Function>
Function Find(const char* name) {
  auto* symbol = reinterpret_cast<Function>(dlsym(library, name));
  if (symbol == nullptr) std::printf("no symbol %s\n", name);
  return symbol;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: plumb-load-check LIBRARY\n");
    return 2;
  }
  library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    std::printf("%s\n", dlerror());
    return 1;
  }
  const auto open = Find<Open>("plumbline_open");
  const auto begin = Find<Step>("plumbline_step_begin");
  const auto scalar = Find<Scalar>("plumbline_scalar");
  const auto end = Find<End>("plumbline_step_end");
  const auto close = Find<Close>("plumbline_close");
  const auto error = Find<Text>("plumbline_last_error");
  const auto version = Find<Text>("plumbline_version");
  if (!open || !begin || !scalar || !end || !close || !error || !version) return 1;

  void* run = nullptr;
  const bool ok = open(nullptr, &run) == 0 && begin(run, 0) == 0 &&
                  scalar(run, "doctor", 1.0) == 0 && end(run) == 0 && close(run, 5000) == 0;
  std::printf("%s\n", ok ? version() : error());
  return ok ? 0 : 1;
}
