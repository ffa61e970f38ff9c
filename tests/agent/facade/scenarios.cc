#include "tests/agent/facade/scenarios.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "agent/agent_table.h"
#include "plumbline/agent.h"

// Deep binding must keep the agent's library of this name apart from the trainer's function.
extern "C" __attribute__((visibility("default"), used)) const char* test_dependency_owner() {
  return "trainer";
}

#define REQUIRE(condition)                                                           \
  do {                                                                               \
    if (!(condition)) {                                                              \
      fprintf(stderr, "%s:%d: %s; last error: %s\n", __FILE__, __LINE__, #condition, \
              plumbline_last_error());                                               \
      exit(1);                                                                       \
    }                                                                                \
  } while (false)

namespace {

#if defined(PLUMBLINE_SANITIZED)
constexpr bool kLinked = true;
#else
constexpr bool kLinked = false;
#endif

// Looks for the library that the façade opens; a program linked with the agent has none.
bool AgentIsLoaded() {
  FILE* maps = fopen("/proc/self/maps", "r");
  char line[4096];
  bool found = false;
  while (fgets(line, sizeof(line), maps) != nullptr) {
    found = found || strstr(line, "test_agent") != nullptr ||
            strstr(line, "libplumbline_agent") != nullptr;
  }
  fclose(maps);
  return found;
}

plumbline_run_t* Open(uint32_t every = 0) {
  plumbline_open_options_t options = PLUMBLINE_OPEN_OPTIONS_INIT;
  options.run = "scenario";
  options.record = getenv("SCENARIO_RECORD");
  if (options.record == nullptr) options.record = "/nonexistent";  // the stand-in does not look
  options.every = every;
  plumbline_run_t* run = nullptr;
  REQUIRE(plumbline_open(&options, &run) == PLUMBLINE_OK);
  REQUIRE(run != nullptr);
  return run;
}

plumbline_site_t* Site(plumbline_run_t* run, const char* layer) {
  plumbline_site_t* site = nullptr;
  REQUIRE(plumbline_site(run, PLUMBLINE_KIND_ROUTING, layer, nullptr, &site) == PLUMBLINE_OK);
  return site;
}

// A [4,3] f32 router call.
struct Call {
  float values[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  int64_t shape[2] = {4, 3};
  int64_t strides[2] = {3, 1};
  DLTensor scores{};
  plumbline_routing_t routing = PLUMBLINE_ROUTING_INIT;

  Call() {
    scores.data = values;
    scores.device.device_type = static_cast<decltype(scores.device.device_type)>(PLUMBLINE_DL_CPU);
    scores.ndim = 2;
    scores.dtype = {PLUMBLINE_DL_FLOAT, 32, 1};
    scores.shape = shape;
    scores.strides = strides;
    routing.scores = &scores;
    routing.scores_are_logits = 1;
    routing.top_k = 2;
  }
};

plumbline_status_t Observe(plumbline_site_t* site) {
  Call call;
  return plumbline_observe_routing_if_due(site, &call.routing);
}

// The agent on a slow machine may have to drop, and counts it.
bool Taken(plumbline_status_t status) {
  return status == PLUMBLINE_OK || status == PLUMBLINE_DROPPED;
}

void LoadsOnFirstDueCall() {
  plumbline_run_t* run = Open(2);
  plumbline_site_t* site = Site(run, "layers.3");
  REQUIRE(Site(run, "layers.3") == site);
  REQUIRE(Site(run, "layers.4") != site);
  REQUIRE(site->next_due == 0);
  REQUIRE(run->step == PLUMBLINE_NO_STEP);
  REQUIRE(Observe(site) == PLUMBLINE_FAILED_PRECONDITION);
  REQUIRE(strstr(plumbline_last_error(), "layers.3") != nullptr);
  REQUIRE(plumbline_step_begin(run, 0) == PLUMBLINE_OK);
  REQUIRE(run->step == 0);
  REQUIRE(!AgentIsLoaded());
  REQUIRE(Observe(site) == PLUMBLINE_OK);
  REQUIRE(AgentIsLoaded() || kLinked);
  REQUIRE(Observe(site) == PLUMBLINE_OK);  // all calls of a due step are due
  plumbline_site_t* late = Site(run, "layers.5");
  REQUIRE(Observe(late) == PLUMBLINE_OK);
  REQUIRE(plumbline_step_end(run) == PLUMBLINE_OK);
  REQUIRE(run->step == PLUMBLINE_NO_STEP);
  REQUIRE(site->next_due == 2);
  REQUIRE(plumbline_step_begin(run, 1) == PLUMBLINE_OK);
  REQUIRE(Observe(site) == PLUMBLINE_NOT_DUE);
  Call call;
  REQUIRE(plumbline_observe_routing(site, &call.routing) == PLUMBLINE_NOT_DUE);
  REQUIRE(plumbline_scalar(run, "loss", std::nan("")) == PLUMBLINE_OK);
  REQUIRE(plumbline_scalar(run, "loss", -INFINITY) == PLUMBLINE_OK);
  REQUIRE(plumbline_step_begin(run, 2) == PLUMBLINE_OK);  // ends step 1 first
  REQUIRE(Observe(site) == PLUMBLINE_OK);
  uint64_t span = 0;
  REQUIRE(plumbline_span_begin(run, "checkpoint", nullptr, &span) == PLUMBLINE_OK && span != 0);
  REQUIRE(plumbline_span_end(run, span) == PLUMBLINE_OK);
  REQUIRE(plumbline_step_end(run) == PLUMBLINE_OK);
  REQUIRE(plumbline_flush(run, 5000) == PLUMBLINE_OK);
  REQUIRE(plumbline_close(run, 2000) == PLUMBLINE_OK);
  REQUIRE(site->next_due == PLUMBLINE_NEVER);
  REQUIRE(Observe(site) == PLUMBLINE_NOT_DUE);
  REQUIRE(plumbline_observe_routing(site, &call.routing) == PLUMBLINE_DISABLED);
  REQUIRE(plumbline_scalar(run, "loss", 1) == PLUMBLINE_DISABLED);
  REQUIRE(plumbline_step_begin(run, 3) == PLUMBLINE_DISABLED);
  REQUIRE(plumbline_close(run, 0) == PLUMBLINE_DISABLED);
}

void LoadsAtFirstStepEnd() {
  plumbline_run_t* run = Open();
  REQUIRE(plumbline_step_begin(run, 7) == PLUMBLINE_OK);
  REQUIRE(!AgentIsLoaded());
  REQUIRE(plumbline_step_end(run) == PLUMBLINE_OK);
  REQUIRE(AgentIsLoaded() || kLinked);
  // No close: the exit handler says goodbye.
}

void Mistakes() {
  plumbline_run_t* run = Open();
  plumbline_site_t* site = nullptr;
  REQUIRE(plumbline_open(nullptr, nullptr) == PLUMBLINE_INVALID_ARGUMENT);
  REQUIRE(plumbline_site(nullptr, 1, "a", nullptr, &site) == PLUMBLINE_INVALID_ARGUMENT);
  REQUIRE(plumbline_site(run, 99, "a", nullptr, &site) == PLUMBLINE_INVALID_ARGUMENT);
  REQUIRE(plumbline_site(run, 1, "", nullptr, &site) == PLUMBLINE_INVALID_ARGUMENT);
  REQUIRE(plumbline_site(run, 1, "a\xff", nullptr, &site) == PLUMBLINE_INVALID_ARGUMENT);
  REQUIRE(plumbline_site(run, 1, "a\xe2\x82", nullptr, &site) == PLUMBLINE_INVALID_ARGUMENT);
  REQUIRE(plumbline_site(run, 1, "\xed\xa0\x80", nullptr, &site) == PLUMBLINE_INVALID_ARGUMENT);
  REQUIRE(plumbline_site(run, 1, std::string(513, 'x').c_str(), nullptr, &site) ==
          PLUMBLINE_INVALID_ARGUMENT);
  REQUIRE(plumbline_site(run, 1, "couche \xe2\x82\xac", nullptr, &site) == PLUMBLINE_OK);
  REQUIRE(plumbline_observe_routing(nullptr, nullptr) == PLUMBLINE_INVALID_ARGUMENT);
  REQUIRE(plumbline_observe_routing(site, nullptr) == PLUMBLINE_INVALID_ARGUMENT);
  REQUIRE(plumbline_step_end(run) == PLUMBLINE_FAILED_PRECONDITION);
  REQUIRE(plumbline_step_begin(run, -1) == PLUMBLINE_INVALID_ARGUMENT);
  REQUIRE(plumbline_step_begin(nullptr, 0) == PLUMBLINE_INVALID_ARGUMENT);
  REQUIRE(plumbline_scalar(run, "loss", 1) == PLUMBLINE_FAILED_PRECONDITION);
  REQUIRE(!AgentIsLoaded());  // mistakes load nothing
  REQUIRE(plumbline_step_begin(run, 5) == PLUMBLINE_OK);
  REQUIRE(plumbline_step_begin(run, 5) == PLUMBLINE_FAILED_PRECONDITION);
  REQUIRE(plumbline_step_begin(run, 4) == PLUMBLINE_FAILED_PRECONDITION);
  REQUIRE(plumbline_scalar(run, nullptr, 1) == PLUMBLINE_INVALID_ARGUMENT);
  REQUIRE(plumbline_scalar(run, "", 1) == PLUMBLINE_INVALID_ARGUMENT);
  uint64_t span = 9;
  REQUIRE(plumbline_span_begin(run, "lunch", nullptr, &span) == PLUMBLINE_INVALID_ARGUMENT);
  REQUIRE(span == 0);
  REQUIRE(strstr(plumbline_last_error(), "lunch") != nullptr);
  REQUIRE(plumbline_span_end(run, 0) == PLUMBLINE_INVALID_ARGUMENT);
  Call call;
  call.routing.top_k = 0;
  REQUIRE(plumbline_observe_routing(site, &call.routing) == PLUMBLINE_INVALID_ARGUMENT);
  REQUIRE(strstr(plumbline_last_error(), "top_k") != nullptr);
  REQUIRE(plumbline_close(run, 2000) == PLUMBLINE_OK);
}

// Callers built against an older or a newer header.
void Sizes() {
  plumbline_run_t* run = Open();
  plumbline_site_t* site = Site(run, "a");
  REQUIRE(plumbline_step_begin(run, 0) == PLUMBLINE_OK);
  Call call;
  call.routing.mode = "eval";
  call.routing.size = offsetof(plumbline_routing_t, mode);  // an older caller: mode is not read
  REQUIRE(plumbline_observe_routing(site, &call.routing) == PLUMBLINE_OK);
  struct {
    plumbline_routing_t routing;
    uint64_t later = 0;
  } newer{Call().routing};
  newer.routing.scores = &call.scores;
  newer.routing.size = sizeof(newer);
  REQUIRE(plumbline_observe_routing(site, &newer.routing) == PLUMBLINE_OK);
  newer.later = 1;
  REQUIRE(plumbline_observe_routing(site, &newer.routing) == PLUMBLINE_INVALID_ARGUMENT);
  call.routing.size = 0;
  REQUIRE(plumbline_observe_routing(site, &call.routing) == PLUMBLINE_INVALID_ARGUMENT);
  plumbline_open_options_t options = PLUMBLINE_OPEN_OPTIONS_INIT;
  options.size = 3;
  plumbline_run_t* other = nullptr;
  REQUIRE(plumbline_open(&options, &other) == PLUMBLINE_INVALID_ARGUMENT);
  REQUIRE(plumbline_close(run, 2000) == PLUMBLINE_OK);
}

void Disabled() {
  plumbline_run_t* run = nullptr;
  REQUIRE(plumbline_open(nullptr, &run) == PLUMBLINE_DISABLED);
  REQUIRE(run != nullptr);
  plumbline_site_t* site = Site(run, "layers.3");
  REQUIRE(site->next_due == PLUMBLINE_NEVER);
  REQUIRE(plumbline_step_begin(run, 0) == PLUMBLINE_DISABLED);
  REQUIRE(!plumbline_due(site));
  REQUIRE(Observe(site) == PLUMBLINE_NOT_DUE);
  Call call;
  REQUIRE(plumbline_observe_routing(site, &call.routing) == PLUMBLINE_DISABLED);
  REQUIRE(plumbline_scalar(run, "loss", 1) == PLUMBLINE_DISABLED);
  uint64_t span = 9;
  REQUIRE(plumbline_span_begin(run, "data", nullptr, &span) == PLUMBLINE_DISABLED && span == 0);
  REQUIRE(plumbline_step_end(run) == PLUMBLINE_DISABLED);
  REQUIRE(plumbline_flush(run, 1000) == PLUMBLINE_DISABLED);
  REQUIRE(plumbline_close(run, 1000) == PLUMBLINE_DISABLED);
  REQUIRE(!AgentIsLoaded());
}

// The agent cannot be had; the driver decides why.
void Unavailable() {
  plumbline_run_t* run = Open();
  plumbline_site_t* site = Site(run, "layers.3");
  for (int64_t step = 0; step < 3; ++step) {
    REQUIRE(plumbline_step_begin(run, step) == (step == 0 ? PLUMBLINE_OK : PLUMBLINE_UNAVAILABLE));
    REQUIRE(plumbline_scalar(run, "loss", 1) == PLUMBLINE_UNAVAILABLE);
    REQUIRE(Observe(site) == PLUMBLINE_NOT_DUE);  // it costs a branch from now on
    Call call;
    REQUIRE(plumbline_observe_routing(site, &call.routing) == PLUMBLINE_UNAVAILABLE);
    REQUIRE(strlen(plumbline_last_error()) > 10);
    REQUIRE(plumbline_step_end(run) == PLUMBLINE_UNAVAILABLE);
  }
  REQUIRE(plumbline_flush(run, 1000) == PLUMBLINE_UNAVAILABLE);
  REQUIRE(plumbline_close(run, 1000) == PLUMBLINE_OK);
}

void OpenRefused() {
  plumbline_run_t* run = Open();
  plumbline_site_t* site = Site(run, "layers.3");
  REQUIRE(plumbline_step_begin(run, 0) == PLUMBLINE_OK);
  REQUIRE(Observe(site) == PLUMBLINE_INVALID_ARGUMENT);
  REQUIRE(strstr(plumbline_last_error(), "record directory") != nullptr);
  REQUIRE(Observe(site) == PLUMBLINE_NOT_DUE);
  REQUIRE(plumbline_scalar(run, "loss", 1) == PLUMBLINE_INVALID_ARGUMENT);
  REQUIRE(plumbline_close(run, 1000) == PLUMBLINE_OK);
}

void Threads() {
  plumbline_run_t* run = Open();
  std::vector<plumbline_site_t*> sites;
  for (int i = 0; i < 8; ++i) sites.push_back(Site(run, ("layers." + std::to_string(i)).c_str()));
  REQUIRE(plumbline_step_begin(run, 0) == PLUMBLINE_OK);
  std::vector<std::thread> threads;
  std::atomic<int> failures{0};
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {  // the first calls race for loading the agent
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
  REQUIRE(plumbline_close(run, 2000) == PLUMBLINE_OK);
}

// Close while others observe: they see OK or DISABLED, and nothing is used after it was freed.
void CloseUnderFire() {
  for (int round = 0; round < 20; ++round) {
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
    REQUIRE(plumbline_close(run, 5000) == PLUMBLINE_OK);
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
  std::thread observer([&] { Observe(site); });  // 500 ms inside the agent
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  REQUIRE(plumbline_close(run, 20) == PLUMBLINE_DEADLINE_EXCEEDED);
  observer.join();
}

// A server that does not answer costs the trainer nothing but the time that close was given.
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

// All calls of a child, which must return at once.
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
  REQUIRE(Observe(site) == PLUMBLINE_OK);  // the parent goes on
  REQUIRE(plumbline_step_end(run) == PLUMBLINE_OK);
  REQUIRE(plumbline_close(run, 2000) == PLUMBLINE_OK);
}

// Another thread is inside dlopen for 400 ms; the fork waits, so that the child's loader is whole.
void ForkWhileLoading() {
  plumbline_run_t* run = Open();
  plumbline_site_t* site = Site(run, "layers.3");
  REQUIRE(plumbline_step_begin(run, 0) == PLUMBLINE_OK);
  std::thread loader([&] { REQUIRE(Observe(site) == PLUMBLINE_OK); });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  const pid_t child = fork();
  if (child == 0) {
    if (ChildCalls(run, site) != 0) _exit(2);
    if (getenv("PLUMBLINE_TEST_LOADED") == nullptr) _exit(4);  // forked into a half-loaded library
    // The child may load libraries of its own.
    exit(dlopen("libz.so.1", RTLD_NOW) != nullptr || dlerror() != nullptr ? 0 : 3);
  }
  WaitFor(child);
  loader.join();
  REQUIRE(plumbline_step_end(run) == PLUMBLINE_OK);
  REQUIRE(plumbline_close(run, 2000) == PLUMBLINE_OK);
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
  REQUIRE(plumbline_close(run, 5000) == PLUMBLINE_OK);
}

// The C++ API, written as a trainer would.
void CppApi() {
  {
    plumbline::Run empty;
    REQUIRE(empty.StepBegin(0) == PLUMBLINE_DISABLED);
    REQUIRE(!empty.RoutingSite("a").Due());
    plumbline::Span span(empty, "data");
    REQUIRE(span.status() == PLUMBLINE_DISABLED);
    plumbline::Run refused(plumbline::RunOptions{.run = "r"});
    REQUIRE(refused.status() == PLUMBLINE_INVALID_ARGUMENT);
  }
  plumbline::Run opened(plumbline::RunOptions{.run = "cpp", .record = "/nonexistent", .every = 2});
  plumbline::Run run = std::move(opened);
  REQUIRE(run.status() == PLUMBLINE_OK);
  REQUIRE(opened.handle() == nullptr);  // NOLINT: moved from on purpose
  const plumbline::Site gate = run.RoutingSite("layers.3");
  REQUIRE(gate.handle() == run.RoutingSite("layers.3", "routing").handle());
  Call call;
  for (int64_t i = 0; i < 3; ++i) {
    plumbline::Step step(run, i);
    REQUIRE(step.status() == PLUMBLINE_OK);
    plumbline::Span span(run, "forward");
    REQUIRE(gate.Due() == (i % 2 == 0));
    REQUIRE(gate.ObserveRouting(call.routing) == (i % 2 == 0 ? PLUMBLINE_OK : PLUMBLINE_NOT_DUE));
    REQUIRE(run.Scalar("loss", 1.0 / static_cast<double>(i)) == PLUMBLINE_OK);
  }
  REQUIRE(run.Flush(1000) == PLUMBLINE_OK);
}

// A launcher that forks its ranks before anything was opened: each child is a trainer of its own.
void ForkBeforeOpen() {
  const pid_t child = fork();
  if (child == 0) {
    plumbline_run_t* run = Open();
    REQUIRE(plumbline_step_begin(run, 0) == PLUMBLINE_OK);
    REQUIRE(Observe(Site(run, "layers.3")) == PLUMBLINE_OK);
    REQUIRE(plumbline_close(run, 2000) == PLUMBLINE_OK);
    exit(0);
  }
  WaitFor(child);
}

void OpenOnly() {
  plumbline_run_t* run = nullptr;
  const plumbline_status_t status = plumbline_open(nullptr, &run);
  if (status < 0) {
    printf("%s: %s\n", plumbline_status_name(status), plumbline_last_error());
    return;
  }
  plumbline_step_begin(run, 0);
  plumbline_step_end(run);
  plumbline_close(run, 1000);
}

struct Scenario {
  const char* name;
  void (*run)();
};
constexpr Scenario kScenarios[] = {{"loads-on-first-due-call", LoadsOnFirstDueCall},
                                   {"loads-at-first-step-end", LoadsAtFirstStepEnd},
                                   {"mistakes", Mistakes},
                                   {"sizes", Sizes},
                                   {"disabled", Disabled},
                                   {"unavailable", Unavailable},
                                   {"open-refused", OpenRefused},
                                   {"threads", Threads},
                                   {"close-under-fire", CloseUnderFire},
                                   {"close-while-stuck", CloseWhileStuck},
                                   {"fork-after-load", ForkAfterLoad},
                                   {"fork-while-loading", ForkWhileLoading},
                                   {"fork-before-open", ForkBeforeOpen},
                                   {"fork-storm", ForkStorm},
                                   {"no-server", NoServer},
                                   {"cpp-api", CppApi},
                                   {"open-only", OpenOnly}};

}  // namespace

int RunScenario(const char* name) {
#if defined(PLUMBLINE_SANITIZED)
  // A sanitizer does not allow an agent library to be opened: this program is linked with one.
  REQUIRE(plumbline_link_agent(&plumbline_agent_table) == PLUMBLINE_OK);
#endif
  for (const Scenario& scenario : kScenarios) {
    if (strcmp(scenario.name, name) == 0) {
      scenario.run();
      return 0;
    }
  }
  fprintf(stderr, "no scenario \"%s\"\n", name);
  return 1;
}
