// Callers of BLAS in ways that an interposer must survive:
//   caller CASE [PLUGIN...]
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "vendor.h"

namespace {

// Returns 6 times the weight of the library.
float Product() {
  const int one = 1;
  const float two = 2, three = 3, alpha = 1, beta = 0;
  float result = 0;
  sgemm_("N", "N", &one, &one, &one, &alpha, &two, &one, &three, &one, &beta, &result, &one);
  return result;
}

float ByC() {
  const float two = 2, three = 3;
  float result = 0;
  cblas_sgemm(102, 111, 111, 1, 1, 1, 1, &two, 1, &three, 1, 0, &result, 1);
  return result;
}

float OfPlugin(const char* path, int flags) {
  void* handle = dlopen(path, RTLD_NOW | flags);
  if (handle == nullptr) return -1;
  const auto multiply = reinterpret_cast<float (*)()>(dlsym(handle, "Multiply"));
  float result = multiply();
  for (int i = 0; i < 9; ++i) result = multiply();
  dlclose(handle);
  return result;
}

void Threads() {
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([] {
      for (int i = 0; i < 1000; ++i) Product();
    });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  if (what == "calls") {
    for (int i = 0; i < 100; ++i) Product();
  } else if (what == "nested") {
    for (int i = 0; i < 10; ++i) printf("%g\n", ByC());
  } else if (what == "threads") {
    Threads();
  } else if (what == "plugins") {
    for (int i = 2; i < argc; ++i) printf("%g\n", OfPlugin(argv[i], RTLD_LOCAL));
    printf("%g\n", Product());
  } else if (what == "deep") {
    for (int i = 2; i < argc; ++i) printf("%g\n", OfPlugin(argv[i], RTLD_LOCAL | RTLD_DEEPBIND));
  } else if (what == "fork") {
    for (int i = 0; i < 7; ++i) Product();
    if (fork() == 0) {
      for (int i = 0; i < 5; ++i) Product();
      _exit(0);
    }
    int status = 0;
    wait(&status);
    Product();
  } else if (what == "exec") {
    for (int i = 0; i < 3; ++i) Product();
    execl(argv[0], argv[0], "calls", nullptr);
  } else if (what == "exit") {
    for (int i = 0; i < 4; ++i) Product();
    _exit(5);
  } else if (what == "kill") {
    for (int i = 0; i < 4; ++i) Product();
    kill(getpid(), SIGKILL);
  } else if (what == "errno") {
    errno = 42;
    Product();
    printf("%d %s\n", errno, dlerror() == nullptr ? "none" : "left");
  }
  return 0;
}
