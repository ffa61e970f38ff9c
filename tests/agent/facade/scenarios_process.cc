// Scenarios of threads, of closing and of forks.
#include <dlfcn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/agent/facade/scenario_kit.h"
#include "tests/support/eventually.h"

namespace scenario {
namespace {

std::string NextToLog(const char* suffix) {
  return std::string(getenv("PLUMBLINE_TEST_LOG")) + suffix;
}

// Waits until another thread is at the point where the stand-in agent was made slow.
void AwaitBusy() {
  const std::string busy = NextToLog(".busy");
  REQUIRE(plumbline::test::Eventually([&] { return access(busy.c_str(), F_OK) == 0; }));
}

}  // namespace

void Threads() {
  plumbline_run_t* run = Open();
  std::vector<plumbline_site_t*> sites;
  for (int i = 0; i < 8; ++i) sites.push_back(Site(run, ("layers." + std::to_string(i)).c_str()));
  REQUIRE(plumbline_step_begin(run, 0) == PLUMBLINE_OK);
  std::vector<std::thread> threads;
  std::atomic<int> failures{0};
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {  // the first calls compete to load the agent
      for (int n = 0; n < 200; ++n) {
        if (!Taken(Observe(sites[static_cast<size_t>((i + n) % 8)]))) ++failures;
        if (!Taken(plumbline_scalar(run, "loss", n))) ++failures;
        plumbline_site_t* own = nullptr;
        const std::string name = "own." + std::to_string(i) + "." + std::to_string(n % 10);
        if (plumbline_site(run, 1, name.c_str(), nullptr, &own) != PLUMBLINE_OK) ++failures;
        if (plumbline_observe_routing(sites[0], nullptr) != PLUMBLINE_INVALID_ARGUMENT ||
            strstr(plumbline_last_error(), "routing") == nullptr) {
          ++failures;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  REQUIRE(failures == 0);
  REQUIRE(plumbline_step_end(run) == PLUMBLINE_OK);
  REQUIRE(plumbline_close(run, 60000) == PLUMBLINE_OK);
}

// Close while other threads observe: they get OK or DISABLED, and no freed memory is used.
void CloseUnderFire() {
  for (int round = 0; round < 8; ++round) {
    plumbline_run_t* run = Open();
    plumbline_site_t* site = Site(run, "layers.3");
    REQUIRE(plumbline_step_begin(run, 0) == PLUMBLINE_OK);
    std::atomic<bool> stop{false};
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i) {
      threads.emplace_back([&] {
        Call call;
        while (!stop) {
          const plumbline_status_t s = plumbline_observe_routing(site, &call.routing);
          if (!Taken(s) && s != PLUMBLINE_DISABLED) ++wrong;
        }
      });
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    REQUIRE(plumbline_close(run, 60000) == PLUMBLINE_OK);
    stop = true;
    for (std::thread& thread : threads) thread.join();
    REQUIRE(wrong == 0);
  }
}

void CloseWhileStuck() {
  plumbline_run_t* run = Open();
  plumbline_site_t* site = Site(run, "layers.3");
  REQUIRE(plumbline_step_begin(run, 0) == PLUMBLINE_OK);
  REQUIRE(plumbline_scalar(run, "loss", 1) == PLUMBLINE_OK);
  std::thread observer([&] { Observe(site); });  // inside the agent until it is released
  AwaitBusy();
  REQUIRE(plumbline_close(run, 20) == PLUMBLINE_DEADLINE_EXCEEDED);
  std::ofstream(NextToLog(".go")).put('\n');
  observer.join();
}

// If a server does not answer, the trainer loses only the time limit of close.
void NoServer() {
  plumbline_run_t* run = Open();
  plumbline_site_t* site = Site(run, "layers.3");
  for (int64_t step = 0; step < 50; ++step) {
    REQUIRE(plumbline_step_begin(run, step) == PLUMBLINE_OK);
    REQUIRE(Taken(Observe(site)));
    REQUIRE(plumbline_step_end(run) == PLUMBLINE_OK);
  }
  const auto before = std::chrono::steady_clock::now();
  REQUIRE(plumbline_flush(run, 100) == PLUMBLINE_DEADLINE_EXCEEDED);
  REQUIRE(plumbline_close(run, 500) == PLUMBLINE_DEADLINE_EXCEEDED);
  REQUIRE(std::chrono::steady_clock::now() - before < std::chrono::seconds(30));
}

// All calls in a child, which must return at once.
int ChildCalls(plumbline_run_t* run, plumbline_site_t* site) {
  Call call;
  uint64_t span = 0;
  plumbline_site_t* other = nullptr;
  plumbline_run_t* second = nullptr;
  const bool silent = plumbline_observe_routing(site, &call.routing) == PLUMBLINE_DISABLED &&
                      plumbline_scalar(run, "loss", 1) == PLUMBLINE_DISABLED &&
                      plumbline_span_begin(run, "data", nullptr, &span) == PLUMBLINE_DISABLED &&
                      plumbline_span_end(run, 1) == PLUMBLINE_DISABLED &&
                      plumbline_step_begin(run, 100) == PLUMBLINE_DISABLED &&
                      plumbline_step_end(run) == PLUMBLINE_DISABLED &&
                      plumbline_site(run, 1, "child", nullptr, &other) == PLUMBLINE_DISABLED &&
                      other != nullptr && !plumbline_due(other) &&
                      plumbline_observe_routing(other, &call.routing) == PLUMBLINE_DISABLED &&
                      plumbline_flush(run, 60000) == PLUMBLINE_DISABLED &&
                      plumbline_open(nullptr, &second) == PLUMBLINE_DISABLED &&
                      plumbline_close(run, 60000) == PLUMBLINE_DISABLED;
  return silent ? 0 : 1;
}

void WaitFor(pid_t child) {
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

void ForkAfterLoad() {
  plumbline_run_t* run = Open();
  plumbline_site_t* site = Site(run, "layers.3");
  REQUIRE(plumbline_step_begin(run, 0) == PLUMBLINE_OK);
  REQUIRE(Observe(site) == PLUMBLINE_OK);
  const pid_t child = fork();
  if (child == 0) {
    if (plumbline_due(site)) _exit(2);  // one branch
    exit(ChildCalls(run, site));        // with exit handlers and static destructors
  }
  WaitFor(child);
  // A bare clone, which no pthread_atfork handler sees.
  const auto bare = static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, 0));
  if (bare == 0) _exit(ChildCalls(run, site));
  WaitFor(bare);
  REQUIRE(Observe(site) == PLUMBLINE_OK);  // the parent continues
  REQUIRE(plumbline_step_end(run) == PLUMBLINE_OK);
  REQUIRE(plumbline_close(run, 60000) == PLUMBLINE_OK);
}

// Another thread is inside dlopen for 400 ms more. The fork waits, so that the child's loader is in
// a complete state.
void ForkWhileLoading() {
  plumbline_run_t* run = Open();
  plumbline_site_t* site = Site(run, "layers.3");
  REQUIRE(plumbline_step_begin(run, 0) == PLUMBLINE_OK);
  std::thread loader([&] { REQUIRE(Observe(site) == PLUMBLINE_OK); });
  AwaitBusy();
  const pid_t child = fork();
  if (child == 0) {
    if (ChildCalls(run, site) != 0) _exit(2);
    if (getenv("PLUMBLINE_TEST_LOADED") == nullptr) _exit(4);  // forked into a half-loaded library
    // The child may load its own libraries.
    exit(dlopen("libz.so.1", RTLD_NOW) != nullptr || dlerror() != nullptr ? 0 : 3);
  }
  WaitFor(child);
  loader.join();
  REQUIRE(plumbline_step_end(run) == PLUMBLINE_OK);
  REQUIRE(plumbline_close(run, 60000) == PLUMBLINE_OK);
}

// Forks one child after another while the agent loads and connects, and some more afterwards.
void ForkStorm() {
  plumbline_run_t* run = Open();
  plumbline_site_t* site = Site(run, "layers.3");
  REQUIRE(plumbline_step_begin(run, 0) == PLUMBLINE_OK);
  std::atomic<bool> loaded{false};
  std::thread loader([&] {
    REQUIRE(Observe(site) == PLUMBLINE_OK);
    loaded = true;
  });
  int after = 0;
  for (int n = 0; after < 6; ++n) {
    if (loaded) ++after;
    const pid_t child = fork();
    if (child == 0) {
      alarm(60);  // a child that hangs fails
      const int status = ChildCalls(run, site);
      if (n % 2 == 0) _exit(status);
      exit(status);
    }
    WaitFor(child);
  }
  loader.join();
  REQUIRE(Observe(site) == PLUMBLINE_OK);
  REQUIRE(plumbline_step_end(run) == PLUMBLINE_OK);
  REQUIRE(plumbline_close(run, 60000) == PLUMBLINE_OK);
}

// A launcher that forks its ranks before it opens a run: each child is a separate trainer.
void ForkBeforeOpen() {
  const pid_t child = fork();
  if (child == 0) {
    plumbline_run_t* run = Open();
    REQUIRE(plumbline_step_begin(run, 0) == PLUMBLINE_OK);
    REQUIRE(Observe(Site(run, "layers.3")) == PLUMBLINE_OK);
    REQUIRE(plumbline_close(run, 60000) == PLUMBLINE_OK);
    exit(0);
  }
  WaitFor(child);
}

}  // namespace scenario
