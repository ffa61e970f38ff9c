// Tools for the scenarios: a run, a site, a router call, and REQUIRE.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "plumbline/agent.h"
#include "plumbline/marks.h"
#include "plumbline/steps.h"
#include "plumbline/together.h"

#define REQUIRE(condition)                                                           \
  do {                                                                               \
    if (!(condition)) {                                                              \
      fprintf(stderr, "%s:%d: %s; last error: %s\n", __FILE__, __LINE__, #condition, \
              plumbline_last_error());                                               \
      exit(1);                                                                       \
    }                                                                                \
  } while (false)

namespace scenario {

#if defined(PLUMBLINE_SANITIZED)
inline constexpr bool kLinked = true;
#else
inline constexpr bool kLinked = false;
#endif

// Searches for the library that the façade opens. A program that is linked with the agent does not
// have it.
inline bool AgentIsLoaded() {
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

inline plumbline_run_t* Open(uint32_t every = 0) {
  plumbline_open_options_t options = PLUMBLINE_OPEN_OPTIONS_INIT;
  options.run = "scenario";
  options.record = getenv("SCENARIO_RECORD");
  if (options.record == nullptr) options.record = "/nonexistent";  // the stand-in does not use it
  options.every = every;
  plumbline_run_t* run = nullptr;
  REQUIRE(plumbline_open(&options, &run) == PLUMBLINE_OK);
  REQUIRE(run != nullptr);
  return run;
}

inline plumbline_site_t* Site(plumbline_run_t* run, const char* layer) {
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

inline plumbline_status_t Observe(plumbline_site_t* site) {
  Call call;
  return plumbline_observe_routing_if_due(site, &call.routing);
}

// On a slow machine the agent may have to drop a call, and counts it.
inline bool Taken(plumbline_status_t status) {
  return status == PLUMBLINE_OK || status == PLUMBLINE_DROPPED;
}

// Scenarios of threads, of closing and of forks (scenarios_process.cc).
void Threads();
void CloseUnderFire();
void CloseWhileStuck();
void ForkAfterLoad();
void ForkWhileLoading();
void ForkStorm();
void ForkBeforeOpen();
void NoServer();

// Tensors, reductions and updates (scenarios_tensors.cc).
void Tensors();
void TensorMistakes();
void OlderAgent();
void CppTensors();

}  // namespace scenario
