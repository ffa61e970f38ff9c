// A program without BLAS that opens plugins, each linked with its own BLAS: late_caller PLUGIN...
#include <dlfcn.h>

#include <cstdio>

int main(int argc, char** argv) {
  for (int round = 0; round < 3; ++round) {
    for (int i = 1; i < argc; ++i) {
      void* handle = dlopen(argv[i], RTLD_NOW | RTLD_LOCAL);
      if (handle == nullptr) return 1;
      printf("%g\n", reinterpret_cast<float (*)()>(dlsym(handle, "Multiply"))());
      dlclose(handle);
    }
  }
  return 0;
}
