// A compiled trainer that knows nothing of Plumbline: products by cuBLAS, sums by NCCL.
//   trainer RANKS STEPS FAULT[:RANK:STEP]    one process per rank; prints the sum of the last
//   weights
#include <dlfcn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "vendor.h"

namespace {

constexpr int kSize = 8;
constexpr size_t kCount = kSize * kSize;
const float kOne = 1, kZero = 0;

struct Options {
  int ranks, world, steps;
  std::string fault;
  int fault_rank, fault_step;
};

// One product of cuBLASLt, split along K if the fault is "split".
void Split(std::vector<uint16_t>* weights, const std::vector<uint16_t>& data, bool split) {
  void *descriptor, *layout;
  cublasLtMatmulDescCreate(&descriptor, 68, 0);
  cublasLtMatrixLayoutCreate(&layout, 2, kSize, kSize, kSize);
  struct {
    int parts = 1, scheme = 0;
    uint64_t more[8] = {};
  } algorithm;
  const int parts = split ? 4 : 1, scheme = split ? 4 : 0;
  cublasLtMatmulAlgoConfigSetAttribute(&algorithm, 2, &parts, sizeof(parts));
  cublasLtMatmulAlgoConfigSetAttribute(&algorithm, 3, &scheme, sizeof(scheme));
  cublasLtMatmul(nullptr, descriptor, &kOne, data.data(), layout, data.data(), layout, &kZero,
                 weights->data(), layout, weights->data(), layout, &algorithm, nullptr, 0, nullptr);
  cublasLtMatrixLayoutDestroy(layout);
  cublasLtMatmulDescDestroy(descriptor);
}

// A product of f32, of f16, and one of cuBLASLt. Returns the gradients.
std::vector<float> Backward(void* handle, const std::vector<float>& data, const Options& options) {
  std::vector<float> gradients(kCount);
  cublasSgemm_v2(handle, 0, 0, kSize, kSize, kSize, &kOne, data.data(), kSize, data.data(), kSize,
                 &kZero, gradients.data(), kSize);
  std::vector<uint16_t> half(kCount), product(kCount);
  for (size_t i = 0; i < kCount; ++i) half[i] = ToHalf(data[i]);
  const int compute = options.fault == "accumulate" ? 64 : 68;
  cublasGemmEx(handle, 0, 0, kSize, kSize, kSize, &kOne, half.data(), 2, kSize, half.data(), 2,
               kSize, &kZero, product.data(), 2, kSize, compute, 0);
  for (size_t i = 0; i < kCount; ++i) gradients[i] += FromHalf(product[i]);
  Split(&product, half, options.fault == "split");
  for (size_t i = 0; i < kCount; ++i) gradients[i] += FromHalf(product[i]);
  return gradients;
}

bool Reduce(std::vector<float>* gradients, ncclComm_t comm, int rank, int step,
            const Options& options) {
  if (options.fault == "hangs" && rank == options.fault_rank && step == options.fault_step) pause();
  const bool here = rank == options.fault_rank && step == options.fault_step;
  if (options.fault == "half" || (options.fault == "dtype" && here)) {
    std::vector<uint16_t> half(kCount);
    for (size_t i = 0; i < kCount; ++i) half[i] = ToHalf((*gradients)[i]);
    if (ncclAllReduce(half.data(), half.data(), kCount, 6, 0, comm, nullptr) != 0) return false;
    for (size_t i = 0; i < kCount; ++i) (*gradients)[i] = FromHalf(half[i]);
    return true;
  }
  const size_t count = options.fault == "counts" && here ? kCount - 1 : kCount;
  if (options.fault == "order" && here)
    return ncclBroadcast(gradients->data(), gradients->data(), count, 7, 0, comm, nullptr) == 0;
  errno = 5;
  const int status =
      ncclAllReduce(gradients->data(), gradients->data(), count, 7, 0, comm, nullptr);
  return status == 0 && errno == 77;
}

int Train(const Options& options, const ncclUniqueId& id, int rank) {
  void* handle = nullptr;
  cublasCreate_v2(&handle);
  if (options.fault == "tf32") cublasSetMathMode(handle, 3);
  ncclComm_t comm = nullptr, part = nullptr;
  if (ncclCommInitRank(&comm, options.world, id, rank) != 0) return 1;
  if (ncclCommSplit(comm, 0, rank, &part, nullptr) != 0) return 1;
  std::vector<float> weights(kCount);
  for (int step = 0; step < options.steps; ++step) {
    std::vector<float> data(kCount);
    for (size_t i = 0; i < kCount; ++i)
      data[i] =
          static_cast<float>(
              (i * 37 + static_cast<size_t>(rank) * 11 + static_cast<size_t>(step) * 5) % 101) /
          64;
    std::vector<float> gradients = Backward(handle, data, options);
    if (!Reduce(&gradients, comm, rank, step, options)) return 1;
    for (size_t i = 0; i < kCount; ++i) weights[i] -= 0.001f * gradients[i];
    if (options.fault == "exits" && step == 5) _exit(3);
    if (options.fault == "killed" && step == 5) kill(getpid(), SIGKILL);
  }
  ncclBroadcast(weights.data(), weights.data(), kCount, 7, 0, part, nullptr);
  double sum = 0;
  for (const float w : weights) sum += w;
  printf("rank %d: %.17g\n", rank, sum);
  fflush(stdout);
  ncclCommDestroy(part);
  ncclCommDestroy(comm);
  cublasDestroy_v2(handle);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const char* local = getenv("TEST_LOCAL_RANKS");
  Options options{atoi(argv[1]), atoi(argv[1]), atoi(argv[2]), argv[3], 1, 3};
  if (const size_t at = options.fault.find(':'); at != std::string::npos) {
    sscanf(options.fault.c_str() + at, ":%d:%d", &options.fault_rank, &options.fault_step);
    options.fault.resize(at);
  }
  if (local != nullptr) options.ranks = atoi(local);
  ncclUniqueId id;
  ncclGetUniqueId(&id);
  if (options.ranks == 1) return Train(options, id, 0);
  for (int rank = 0; rank < options.ranks; ++rank)
    if (fork() == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      return Train(options, id, rank);
    }
  int status = 0, worst = 0;
  while (wait(&status) > 0)
    worst = std::max(worst, WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
  return worst;
}
