// One rank of a trainer in lock step with others on this host, watched through the C ABI:
//
//   lockstep_trainer RUN RANK WORLD STEPS STEP_MS BARRIER [NAN_AT]
//
// BARRIER is a file of WORLD int64: the newest step that each rank has completed; the largest int64
// for a rank that is no longer awaited. The environment gives server, record and spool. Each step
// reports a value and a tensor, which has a NaN on one rank in every 20th step. With NAN_AT each
// step also reports a loss, which is NaN on rank 0 in that step.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "plumbline/plumbline.h"

namespace {

using Done = std::atomic<int64_t>;
static_assert(sizeof(Done) == sizeof(int64_t) && Done::is_always_lock_free);

void Sleep(int64_t ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

int64_t Slowest(const Done* done, int world) {
  int64_t slowest = done[0];
  for (int i = 1; i < world; ++i) slowest = std::min<int64_t>(slowest, done[i]);
  return slowest;
}

struct Job {
  int rank, world;
  int64_t steps, step_ms;
  Done* done;
  bool losses;
  int64_t nan_at;
};

bool Train(plumbline_run_t* run, const Job& job) {
  constexpr int64_t kElements = 64, kFault = 20;
  plumbline_site_t* site = nullptr;
  if (plumbline_site(run, PLUMBLINE_KIND_TENSOR, "layers.0", "hidden", &site) < 0) return false;
  float values[kElements];
  int64_t shape[] = {kElements};
  DLTensor tensor{};
  tensor.data = values;
  tensor.device.device_type = static_cast<decltype(tensor.device.device_type)>(PLUMBLINE_DL_CPU);
  tensor.ndim = 1;
  tensor.dtype = {PLUMBLINE_DL_FLOAT, 32, 1};
  tensor.shape = shape;
  plumbline_tensor_t observed = PLUMBLINE_TENSOR_INIT;
  observed.values = &tensor;
  observed.role = "activation";
  for (int64_t step = 0; step < job.steps; ++step) {
    for (int64_t i = 0; i < kElements; ++i)
      values[i] = static_cast<float>(i + 1) / static_cast<float>(step + 2);
    if (step % kFault == 7 && step / kFault % job.world == job.rank) values[3] = NAN;
    plumbline_step_begin(run, step);
    plumbline_scalar(run, "of_rank", job.rank + static_cast<double>(step) / 4096);
    if (job.losses) plumbline_scalar(run, "loss", step == job.nan_at && job.rank == 0 ? NAN : 2.0);
    plumbline_observe_tensor_if_due(site, &observed);
    plumbline_step_end(run);
    job.done[job.rank] = step;
    Sleep(job.step_ms);
    while (Slowest(job.done, job.world) < step) Sleep(1);
  }
  return true;
}

int Fail(const char* what) {
  std::fprintf(stderr, "%s: %s\n", what, plumbline_last_error());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 7 && argc != 8) return 2;
  Job job{std::atoi(argv[2]),
          std::atoi(argv[3]),
          std::atoll(argv[4]),
          std::atoll(argv[5]),
          nullptr,
          argc == 8,
          argc == 8 ? std::atoll(argv[7]) : -1};
  const int fd = open(argv[6], O_RDWR | O_CLOEXEC);
  void* shared = mmap(nullptr, static_cast<size_t>(job.world) * sizeof(Done),
                      PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (fd < 0 || shared == MAP_FAILED) return 2;
  job.done = static_cast<Done*>(shared);
  plumbline_open_options_t options = PLUMBLINE_OPEN_OPTIONS_INIT;
  options.run = argv[1];
  options.rank = job.rank;
  options.world_size = job.world;
  options.attempt = 0;
  options.every = 1;
  options.budget = 1;
  plumbline_run_t* run = nullptr;
  if (plumbline_open(&options, &run) != PLUMBLINE_OK) return Fail("open");
  if (!Train(run, job)) return Fail("train");
  if (plumbline_close(run, 240'000) != PLUMBLINE_OK) return Fail("close");
  return 0;
}
