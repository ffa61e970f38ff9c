#include "tests/agent/facade/scenarios.h"

#include <cmath>
#include <cstddef>
#include <string>
#include <utility>

#include "agent/agent_table.h"
#include "tests/agent/facade/scenario_kit.h"

// Deep binding must keep the agent's library of this name apart from the trainer's function.
extern "C" __attribute__((visibility("default"), used)) const char* test_dependency_owner() {
  return "trainer";
}

namespace scenario {
namespace {

// The rank can be set late, before anything is recorded.
void SetRank() {
  plumbline_run_t* run = Open();
  plumbline_site_t* site = Site(run, "layers.3");
  REQUIRE(plumbline_set_rank(nullptr, 0, 1) == PLUMBLINE_INVALID_ARGUMENT);
  REQUIRE(plumbline_set_rank(run, 8, 8) == PLUMBLINE_INVALID_ARGUMENT);
  REQUIRE(plumbline_set_rank(run, -1, 8) == PLUMBLINE_INVALID_ARGUMENT);
  REQUIRE(strstr(plumbline_last_error(), "rank -1 of world size 8") != nullptr);
  REQUIRE(plumbline_set_rank(run, 3, 8) == PLUMBLINE_OK);
  REQUIRE(plumbline_step_begin(run, 0) == PLUMBLINE_OK);
  REQUIRE(Observe(site) == PLUMBLINE_OK);
  REQUIRE(plumbline_set_rank(run, 4, 8) == PLUMBLINE_FAILED_PRECONDITION);
  REQUIRE(strstr(plumbline_last_error(), "already recorded evidence as rank 3 of 8") != nullptr);
  REQUIRE(plumbline_step_end(run) == PLUMBLINE_OK);
  REQUIRE(plumbline_close(run, 60000) == PLUMBLINE_OK);
  REQUIRE(plumbline_set_rank(run, 4, 8) == PLUMBLINE_DISABLED);
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
  REQUIRE(plumbline_close(run, 60000) == PLUMBLINE_OK);
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
  REQUIRE(!AgentIsLoaded() || kLinked);
  REQUIRE(plumbline_step_end(run) == PLUMBLINE_OK);
  REQUIRE(AgentIsLoaded() || kLinked);
  // No close: the exit handler ends the run.
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
  REQUIRE(plumbline_charge(nullptr, 1) == PLUMBLINE_INVALID_ARGUMENT);
  REQUIRE(plumbline_look(nullptr, 1) == PLUMBLINE_INVALID_ARGUMENT);
  REQUIRE(plumbline_look(run, 0) == PLUMBLINE_INVALID_ARGUMENT);
  REQUIRE(plumbline_look(run, 1) == PLUMBLINE_FAILED_PRECONDITION);  // between two steps
  uint64_t sum = 0, size = 1;
  const void* nowhere = nullptr;
  REQUIRE(plumbline_checksums(&nowhere, &size, 1, &sum) == PLUMBLINE_INVALID_ARGUMENT);
  REQUIRE(plumbline_checksums(nullptr, &size, 1, &sum) == PLUMBLINE_INVALID_ARGUMENT);
  REQUIRE(plumbline_square_sums(nullptr, &size, 1, nullptr) == PLUMBLINE_INVALID_ARGUMENT);
  const float* no_tensor = nullptr;
  float kept = 0;
  REQUIRE(plumbline_moved(&no_tensor, &size, &size, 1, &kept, nullptr) ==
          PLUMBLINE_INVALID_ARGUMENT);
  REQUIRE(plumbline_moved(&no_tensor, &size, &size, 1, nullptr, nullptr) ==
          PLUMBLINE_INVALID_ARGUMENT);
  REQUIRE(!AgentIsLoaded());  // mistakes do not load the agent
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
  REQUIRE(plumbline_close(run, 60000) == PLUMBLINE_OK);
}

// During the capture of a graph every site is due, and the step does not advance.
void Capturing() {
  plumbline_run_t* run = Open(4);
  plumbline_site_t* site = Site(run, "a");
  void* stream = reinterpret_cast<void*>(uintptr_t{7});
  REQUIRE(plumbline_capture_begin(nullptr, stream) == PLUMBLINE_INVALID_ARGUMENT);
  REQUIRE(plumbline_capture_end(nullptr) == PLUMBLINE_INVALID_ARGUMENT);
  REQUIRE(plumbline_capture_end(run) == PLUMBLINE_FAILED_PRECONDITION);
  REQUIRE(plumbline_capture_begin(run, stream) == PLUMBLINE_OK);
  REQUIRE(run->step == PLUMBLINE_CAPTURING);
  REQUIRE(plumbline_due(site));
  REQUIRE(Observe(site) == PLUMBLINE_OK);
  REQUIRE(plumbline_capture_begin(run, stream) == PLUMBLINE_FAILED_PRECONDITION);
  REQUIRE(plumbline_step_begin(run, 0) == PLUMBLINE_FAILED_PRECONDITION);
  REQUIRE(plumbline_step_end(run) == PLUMBLINE_FAILED_PRECONDITION);
  REQUIRE(plumbline_scalar(run, "loss", 1) ==
          PLUMBLINE_FAILED_PRECONDITION);  // no step during a capture
  REQUIRE(plumbline_capture_end(run) == PLUMBLINE_OK);
  REQUIRE(run->step == PLUMBLINE_NO_STEP);
  REQUIRE(plumbline_step_begin(run, 0) == PLUMBLINE_OK);
  REQUIRE(plumbline_step_end(run) == PLUMBLINE_OK);
  REQUIRE(plumbline_step_begin(run, 1) == PLUMBLINE_OK);
  REQUIRE(!plumbline_due(site));
  REQUIRE(Observe(site) == PLUMBLINE_NOT_DUE);
  REQUIRE(plumbline_capture_begin(run, nullptr) == PLUMBLINE_OK);
  REQUIRE(Observe(site) == PLUMBLINE_OK);
  REQUIRE(plumbline_scalar(run, "loss", 2) == PLUMBLINE_OK);
  REQUIRE(plumbline_capture_end(run) == PLUMBLINE_OK);
  REQUIRE(run->step == 1);
  REQUIRE(Observe(site) == PLUMBLINE_NOT_DUE);
  REQUIRE(plumbline_step_end(run) == PLUMBLINE_OK);
  REQUIRE(plumbline_capture_begin(run, stream) == PLUMBLINE_OK);
  REQUIRE(plumbline_close(run, 60000) == PLUMBLINE_OK);
  REQUIRE(plumbline_capture_begin(run, stream) == PLUMBLINE_DISABLED);
  REQUIRE(plumbline_capture_end(run) == PLUMBLINE_DISABLED);
}

// The first calls do not load the agent. After it is loaded, the calls from begin to end are passed
// to it.
void Together() {
  plumbline_run_t* run = Open(4);
  plumbline_site_t* site = Site(run, "a");
  REQUIRE(plumbline_together_begin(nullptr) == PLUMBLINE_INVALID_ARGUMENT);
  REQUIRE(plumbline_together_end(nullptr) == PLUMBLINE_INVALID_ARGUMENT);
  REQUIRE(plumbline_together_begin(run) == PLUMBLINE_NOT_DUE);
  REQUIRE(plumbline_together_end(run) == PLUMBLINE_NOT_DUE);
  REQUIRE(!AgentIsLoaded());
  REQUIRE(plumbline_step_begin(run, 0) == PLUMBLINE_OK);
  REQUIRE(Observe(site) == PLUMBLINE_OK);
  REQUIRE(plumbline_together_begin(run) == PLUMBLINE_OK);
  REQUIRE(plumbline_together_end(run) == PLUMBLINE_OK);
  REQUIRE(plumbline_close(run, 60000) == PLUMBLINE_OK);
  REQUIRE(plumbline_together_begin(run) == PLUMBLINE_DISABLED);
  REQUIRE(plumbline_together_end(run) == PLUMBLINE_DISABLED);
}

// The memory belongs to the run, and remains when the run is closed.
void Marks() {
  plumbline_run_t* run = Open();
  plumbline_marks_t *marks = nullptr, *again = nullptr;
  REQUIRE(plumbline_marks(nullptr, &marks) == PLUMBLINE_INVALID_ARGUMENT);
  REQUIRE(plumbline_marks(run, nullptr) == PLUMBLINE_INVALID_ARGUMENT);
  REQUIRE(strstr(plumbline_last_error(), "marks is NULL") != nullptr);
  REQUIRE(plumbline_marks(run, &marks) == PLUMBLINE_OK && marks != nullptr);
  REQUIRE(plumbline_step_begin(run, 0) == PLUMBLINE_OK);
  plumbline_mark(marks, PLUMBLINE_STAGE_FORWARD);
  plumbline_mark(marks, PLUMBLINE_STAGE_NONE);
  REQUIRE(plumbline_step_end(run) == PLUMBLINE_OK);
  REQUIRE(plumbline_marks(run, &again) == PLUMBLINE_OK && again == marks);
  REQUIRE(plumbline_close(run, 60000) == PLUMBLINE_OK);
  for (int i = 0; i < 2 * PLUMBLINE_MARKS; ++i) plumbline_mark(marks, PLUMBLINE_STAGE_DATA);
  REQUIRE(marks->lost == PLUMBLINE_MARKS);
  REQUIRE(plumbline_marks(run, &again) == PLUMBLINE_DISABLED && again == nullptr);
}

// Mistakes are refused and named. An agent without steps (the test agent) is an older one.
void Steps() {
  plumbline_run_t* run = Open();
  const char* const names[] = {"loss", "\xff"};
  plumbline_steps_t* steps = nullptr;
  REQUIRE(plumbline_steps(nullptr, names, 1, &steps) == PLUMBLINE_INVALID_ARGUMENT);
  REQUIRE(plumbline_steps(run, names, 1, nullptr) == PLUMBLINE_INVALID_ARGUMENT);
  REQUIRE(strstr(plumbline_last_error(), "steps is NULL") != nullptr);
  REQUIRE(plumbline_steps(run, nullptr, 1, &steps) == PLUMBLINE_INVALID_ARGUMENT);
  REQUIRE(plumbline_steps(run, names, PLUMBLINE_STEP_SERIES + 1, &steps) ==
          PLUMBLINE_INVALID_ARGUMENT);
  REQUIRE(strstr(plumbline_last_error(), "expected at most 12") != nullptr);
  REQUIRE(plumbline_steps(run, names, 2, &steps) == PLUMBLINE_INVALID_ARGUMENT);
  REQUIRE(strstr(plumbline_last_error(), "the name 1") != nullptr);
  REQUIRE(plumbline_steps(run, names, 1, &steps) == PLUMBLINE_UNAVAILABLE && steps == nullptr);
  REQUIRE(plumbline_close(run, 60000) == PLUMBLINE_OK);
  REQUIRE(plumbline_steps(run, names, 1, &steps) == PLUMBLINE_DISABLED && steps == nullptr);
}

// Callers built with an older or a newer header.
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
  REQUIRE(plumbline_close(run, 60000) == PLUMBLINE_OK);
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

// The agent is not available, for a reason that the caller of the scenario sets.
void Unavailable() {
  plumbline_run_t* run = Open();
  plumbline_site_t* site = Site(run, "layers.3");
  for (int64_t step = 0; step < 3; ++step) {
    REQUIRE(plumbline_step_begin(run, step) == (step == 0 ? PLUMBLINE_OK : PLUMBLINE_UNAVAILABLE));
    REQUIRE(plumbline_scalar(run, "loss", 1) == PLUMBLINE_UNAVAILABLE);
    REQUIRE(Observe(site) == PLUMBLINE_NOT_DUE);  // from now on it costs one branch
    Call call;
    REQUIRE(plumbline_observe_routing(site, &call.routing) == PLUMBLINE_UNAVAILABLE);
    REQUIRE(strlen(plumbline_last_error()) > 10);
    REQUIRE(plumbline_step_end(run) == PLUMBLINE_UNAVAILABLE);
  }
  REQUIRE(plumbline_flush(run, 1000) == PLUMBLINE_UNAVAILABLE);
  REQUIRE(plumbline_close(run, 60000) == PLUMBLINE_UNAVAILABLE);
}

void OpenRefused() {
  plumbline_run_t* run = Open();
  plumbline_site_t* site = Site(run, "layers.3");
  REQUIRE(plumbline_step_begin(run, 0) == PLUMBLINE_OK);
  REQUIRE(Observe(site) == PLUMBLINE_INVALID_ARGUMENT);
  REQUIRE(strstr(plumbline_last_error(), "record directory") != nullptr);
  REQUIRE(Observe(site) == PLUMBLINE_NOT_DUE);
  REQUIRE(plumbline_scalar(run, "loss", 1) == PLUMBLINE_INVALID_ARGUMENT);
  REQUIRE(plumbline_close(run, 60000) == PLUMBLINE_INVALID_ARGUMENT);
}

// The C++ API, as a trainer uses it.
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
constexpr Scenario kScenarios[] = {{"set-rank", SetRank},
                                   {"loads-on-first-due-call", LoadsOnFirstDueCall},
                                   {"loads-at-first-step-end", LoadsAtFirstStepEnd},
                                   {"mistakes", Mistakes},
                                   {"sizes", Sizes},
                                   {"capturing", Capturing},
                                   {"together", Together},
                                   {"marks", Marks},
                                   {"steps", Steps},
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
                                   {"tensors", Tensors},
                                   {"tensor-mistakes", TensorMistakes},
                                   {"older-agent", OlderAgent},
                                   {"cpp-tensors", CppTensors},
                                   {"cpp-api", CppApi},
                                   {"open-only", OpenOnly}};

}  // namespace
}  // namespace scenario

int RunScenario(const char* name) {
#if defined(PLUMBLINE_SANITIZED)
  // A sanitizer does not allow the program to open an agent library: this program is linked with
  // one.
  REQUIRE(plumbline_link_agent(&plumbline_agent_table) == PLUMBLINE_OK);
#endif
  for (const scenario::Scenario& entry : scenario::kScenarios) {
    if (strcmp(entry.name, name) == 0) {
      entry.run();
      return 0;
    }
  }
  fprintf(stderr, "no scenario \"%s\"\n", name);
  return 1;
}
