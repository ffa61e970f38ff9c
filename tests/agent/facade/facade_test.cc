// The façade with a stand-in agent. Each scenario runs in its own process: this program, started
// again with --scenario=NAME.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "plumbline/plumbline.h"
#include "tests/agent/facade/process.h"
#include "tests/agent/facade/scenarios.h"
#include "tests/support/files.h"

namespace {

using plumbline::test::Environment;
using plumbline::test::Outcome;
using ::testing::HasSubstr;
using ::testing::Not;

Outcome Spawn(const std::string& scenario, Environment extra = {}) {
  extra.emplace("PLUMBLINE_AGENT_LIBRARY", TEST_AGENT);
  return plumbline::test::SpawnScenario(scenario, extra);
}

// With a sanitizer the agent library is not loaded and the stand-in is linked, so these tests are
// left out.
#if defined(PLUMBLINE_SANITIZED)
#define AGENT_LIBRARY_TEST(name) [[maybe_unused]] void name()
#else
#define AGENT_LIBRARY_TEST(name) TEST(Facade, name)
#endif

void ExpectOk(const Outcome& outcome) { EXPECT_EQ(outcome.status, 0) << outcome.output; }

TEST(Facade, LoadsTheAgentOnTheFirstDueCall) {
  const Outcome o = Spawn("loads-on-first-due-call");
  ExpectOk(o);
  EXPECT_EQ(o.output, "");
  const std::string routing =
      " top_k=2 logits=1 function=0 capacity=0:0 groups=0:0:0 pool=0 flatten=0 bias=0 "
      "scores=2:32[4,3]650";
  EXPECT_THAT(
      o.calls,
      ::testing::ElementsAre(
          "open run=scenario server= record=/nonexistent attempt=0 role=1 rank=0/1 every=2 "
          "budget=0.000000",
          "site layers.3/routing kind=1 step=0", "site layers.4/routing kind=1 step=0",
          "step_begin 0", "routing layers.3/routing step=0" + routing,
          "routing layers.3/routing step=0" + routing, "site layers.5/routing kind=1 step=0",
          "routing layers.5/routing step=0" + routing, "step_end 0", "step_begin 1",
          "scalar step=1 loss=nan", "scalar step=1 loss=-inf", "step_end 1", "step_begin 2",
          "routing layers.3/routing step=2" + routing, "span_begin step=2 checkpoint checkpoint #1",
          "span_end #1", "step_end 2", "flush 5000", "close"));
}

TEST(Facade, StepsAloneAreReportedAndExitSendsGoodbye) {
  const Outcome o = Spawn("loads-at-first-step-end");
  ExpectOk(o);
  ASSERT_EQ(o.calls.size(), 4u);
  EXPECT_EQ(o.calls[1], "step_begin 7");
  EXPECT_EQ(o.calls[2], "step_end 7");
  EXPECT_EQ(o.calls[3], "close");
}

TEST(Facade, ARankThatIsKnownLateIsTaken) {
  const Outcome o = Spawn("set-rank");
  ExpectOk(o);
  ASSERT_FALSE(o.calls.empty());
  EXPECT_THAT(o.calls[0], HasSubstr(" rank=3/8 "));
}

TEST(Facade, MistakesAreNamedAndHarmless) { ExpectOk(Spawn("mistakes")); }

TEST(Facade, OlderAndNewerCallersAreUnderstood) {
  const Outcome o = Spawn("sizes");
  ExpectOk(o);
  for (const std::string& call : o.calls) EXPECT_THAT(call, Not(HasSubstr("mode=")));
}

TEST(Facade, WhatIsCapturedArrivesAsThat) {
  const Outcome o = Spawn("capturing");
  ExpectOk(o);
  EXPECT_EQ(o.output, "");
  std::vector<std::string> calls;
  for (const std::string& call : o.calls) {
    const size_t values = call.find(" top_k=");
    calls.push_back(call.substr(0, values));
  }
  ASSERT_GT(calls.size(), 2u);
  calls.erase(calls.begin(), calls.begin() + 2);  // open, site
  EXPECT_THAT(calls,
              ::testing::ElementsAre("capture_begin 7", "routing a/routing step=-3", "step_begin 0",
                                     "step_end 0", "step_begin 1", "capture_begin 0",
                                     "routing a/routing step=-3", "scalar step=1 loss=2",
                                     "step_end 1", "capture_begin 7", "close"));
}

TEST(Facade, WhatLeavesTogetherIsTheAgents) {
  const Outcome o = Spawn("together");
  ExpectOk(o);
  EXPECT_EQ(o.output, "");
  ASSERT_EQ(o.calls.size(), 7u);
  EXPECT_EQ(o.calls[4], "together_begin");
  EXPECT_EQ(o.calls[5], "together_end");
  EXPECT_EQ(o.calls[6], "close");
}

TEST(Facade, MarksOfTheLoopAreHandedToTheAgent) {
  const Outcome o = Spawn("marks");
  ExpectOk(o);
  EXPECT_EQ(o.output, "");
  EXPECT_THAT(o.calls,
              ::testing::ElementsAre(::testing::StartsWith("open "), "marks", "step_begin 0",
                                     "mark 1", "mark 0", "step_end 0", "marks", "close"));
}

TEST(Facade, StepsThatTheLoopWritesItselfAreRefusedByNameWhereTheyAreMistaken) {
  const Outcome o = Spawn("steps");
  ExpectOk(o);
}

TEST(Facade, ObservationsOfEveryKindArrive) {
  const Outcome o = Spawn("tensors");
  ExpectOk(o);
  EXPECT_EQ(o.output, "");
  EXPECT_THAT(
      o.calls,
      ::testing::ElementsAre(
          ::testing::StartsWith("open "), "site w/tensor kind=2 step=1",
          "site grads/sum kind=3 step=1", "site w/update kind=4 step=1",
          "site policy/logits kind=6 step=1", "site up/matmul kind=5 step=1", "step_begin 1",
          "tensor w/tensor step=1 target=4 role=weight replicas=dp values=2:32[2,3]91",
          "reduction grads/sum step=1 op=1 wire=3 count=6 rank=1/4 sequence=7:1 prescale=0.25 "
          "postscale=0 channels=2 chunk=64 variable=0 ring=3210 group=dp algorithm=ring "
          "transport=gloo input=2:32[2,3]91 output=2:32[2,3]91",
          "update w/update step=1 optimizer=ema lr=nan beta2=nan eps=nan decay=0.999 eps_dtype=0 "
          "count=0 before=2:32[2,3]91 after=2:32[2,3]91 intended=2:32[2,3]91",
          "matmul up/matmul step=1 declared=2 library=cuBLAS 12.4 a=2:32[2,3]91 b=2:32[2,3]91 "
          "d=2:32[2,3]91",
          "logits policy/logits step=1 mode=1 temperature=nan train=2:32[2,3]91 "
          "rollout=2:32[2,3]91",
          "step_end 1", "step_begin 2", "step_end 2", "step_begin 3", "close"));
}

TEST(Facade, MistakesWithTensorsAreNamedAndHarmless) { ExpectOk(Spawn("tensor-mistakes")); }

TEST(Facade, TensorsFromCpp) {
  const Outcome o = Spawn("cpp-tensors");
  ExpectOk(o);
  EXPECT_EQ(std::count(o.calls.begin(), o.calls.end(), "together_begin"), 1);
  EXPECT_EQ(std::count(o.calls.begin(), o.calls.end(), "together_end"), 1);
  std::vector<std::string> seen;
  for (const std::string& call : o.calls) {
    if (call.find("step=3") == std::string::npos || call.rfind("site ", 0) == 0) continue;
    seen.push_back(call.substr(0, call.find(" op=")) + "|" +
                   call.substr(std::min(call.size(), call.find(" input="))));
  }
  EXPECT_THAT(seen, ::testing::ElementsAre(
                        "tensor layers.3.w/weight step=3 target=4 role=weight "
                        "values=2:32[2,3]91|",
                        "update layers.3.w/update step=3 optimizer=sgd lr=0.1 beta2=nan eps=nan "
                        "decay=nan eps_dtype=0 count=0 before=2:32[2,3]91 after=2:32[2,3]91 "
                        "intended=2:32[2,3]91|",
                        "matmul up/matmul step=3 declared=0 input_format=e4m3 a=2:32[2,3]91 "
                        "b=2:32[2,3]91 d=2:32[2,3]91 scale=0.5 a_scale=1:8[2,1]380 "
                        "b_scale=1:8[2,1]380 block=32 tiles=128,2 scale_format=e8m0 "
                        "output_rounding=stochastic|",
                        // Elements 3 and 5 of 1 ... 6, before and after doubling.
                        "reduction gradients/sum step=3| input=2:32[2]16 output=2:32[2]32 "
                        "offsets=1:64[2]13",
                        "reduction deep/sum step=3| input=2:32[]0 output=2:32[]0"));
}

AGENT_LIBRARY_TEST(OlderAgentKeepsWorking) {
  const Outcome o = Spawn("older-agent", {{"PLUMBLINE_AGENT_LIBRARY", OLDER_AGENT}});
  ExpectOk(o);
  EXPECT_EQ(o.output, "");
  EXPECT_THAT(o.calls, ::testing::Contains(HasSubstr("routing layers.3/routing step=0")));
  for (const std::string& call : o.calls) EXPECT_THAT(call, Not(HasSubstr("kind=2")));
}

TEST(Facade, DisabledLoadsNothing) {
  const Outcome o = Spawn("disabled", {{"PLUMBLINE_DISABLE", "1"}});
  ExpectOk(o);
  EXPECT_TRUE(o.calls.empty());
  EXPECT_EQ(o.output, "");
}

AGENT_LIBRARY_TEST(MissingAgentIsOneWarning) {
  const Outcome o = Spawn("unavailable", {{"PLUMBLINE_AGENT_LIBRARY", "/nonexistent/agent.so"}});
  ExpectOk(o);
  EXPECT_THAT(o.output, HasSubstr("/nonexistent/agent.so"));
  EXPECT_EQ(std::count(o.output.begin(), o.output.end(), '\n'), 1) << o.output;
}

AGENT_LIBRARY_TEST(AgentOfAnotherBuildIsRefused) {
  const Outcome o = Spawn("unavailable", {{"PLUMBLINE_AGENT_LIBRARY", OTHER_VERSION_AGENT}});
  ExpectOk(o);
  EXPECT_THAT(o.output, HasSubstr("table version 2"));
}

TEST(Facade, RefusedOpenIsOneWarning) {
  const Outcome o = Spawn("open-refused", {{"PLUMBLINE_TEST_AGENT", "open-fails"}});
  ExpectOk(o);
  EXPECT_THAT(o.output, HasSubstr("record directory cannot be written to"));
  EXPECT_EQ(std::count(o.output.begin(), o.output.end(), '\n'), 1) << o.output;
}

TEST(Facade, ManyThreads) {
  const Outcome o = Spawn("threads", {{"PLUMBLINE_TEST_AGENT", "slow-load"}});
  ExpectOk(o);
  EXPECT_EQ(std::count_if(o.calls.begin(), o.calls.end(),
                          [](const std::string& c) { return c.rfind("open ", 0) == 0; }),
            1);
  EXPECT_EQ(std::count_if(o.calls.begin(), o.calls.end(),
                          [](const std::string& c) { return c.rfind("routing ", 0) == 0; }),
            1600);
  EXPECT_EQ(std::count_if(o.calls.begin(), o.calls.end(),
                          [](const std::string& c) { return c.rfind("site ", 0) == 0; }),
            88);
}

TEST(Facade, CloseWhileOthersObserve) { ExpectOk(Spawn("close-under-fire")); }

TEST(Facade, CloseDoesNotWaitForAStuckCall) {
  ExpectOk(Spawn("close-while-stuck", {{"PLUMBLINE_TEST_AGENT", "slow-observe"}}));
}

TEST(Facade, ForkedChildrenReturnAtOnce) {
  const Outcome o = Spawn("fork-after-load");
  ExpectOk(o);
  EXPECT_EQ(std::count(o.calls.begin(), o.calls.end(), "close"), 1);
  // A run that a child opens is disabled, with a message.
  EXPECT_THAT(o.output, HasSubstr("this process was forked from a process with an open run"));
}

TEST(Facade, ManyForksWhileTheAgentLoads) {
  ExpectOk(Spawn("fork-storm", {{"PLUMBLINE_TEST_AGENT", "slow-load"}}));
}

TEST(Facade, CppApi) {
  const Outcome o = Spawn("cpp-api");
  ExpectOk(o);
  ASSERT_FALSE(o.calls.empty());
  EXPECT_EQ(o.calls.back(), "close");
  EXPECT_EQ(std::count(o.calls.begin(), o.calls.end(), "scalar step=0 loss=inf"), 1);
  EXPECT_EQ(std::count(o.calls.begin(), o.calls.end(), "span_end #3"), 1);
}

// Deep binding would abort a program that contains a sanitizer's runtime.
AGENT_LIBRARY_TEST(StaysOutOfSanitizedProcesses) {
  const Outcome o = Spawn("unavailable", {{"LD_PRELOAD", FAKE_SANITIZER}});
  ExpectOk(o);
  EXPECT_THAT(o.output, HasSubstr("AddressSanitizer"));
}

// Without settings the agent is found in the library's directory, also through a symbolic link.
AGENT_LIBRARY_TEST(FindsTheAgentNextToItself) {
  namespace fs = std::filesystem;
  const plumbline::test::TempFolder folder;
  const fs::path root = folder.path();
  fs::create_directories(root / "lib");
  fs::create_directories(root / "links");
  fs::copy_file(FACADE_LIBRARY, root / "lib/libplumbline.so");
  fs::copy_file(TEST_AGENT, root / "lib/libplumbline_agent.so");
  fs::create_symlink(root / "lib/libplumbline.so", root / "links/libplumbline.so");
  for (const char* place : {"lib", "links"}) {
    const Outcome o =
        Spawn("loads-on-first-due-call",
              {{"PLUMBLINE_AGENT_LIBRARY", ""}, {"LD_LIBRARY_PATH", (root / place).string()}});
    ExpectOk(o);
    EXPECT_FALSE(o.calls.empty()) << place;
  }
}

AGENT_LIBRARY_TEST(ForkWhileTheAgentLoads) {
  ExpectOk(Spawn("fork-while-loading", {{"PLUMBLINE_TEST_AGENT", "slow-load"}}));
}

TEST(Facade, ChildrenForkedBeforeOpenAreTrainers) { ExpectOk(Spawn("fork-before-open")); }

TEST(Facade, OptionsComeFromTheEnvironment) {
  const Outcome o = Spawn("open-only", {{"PLUMBLINE_RUN", "exp1"},
                                        {"PLUMBLINE_SERVER", "127.0.0.1:7433"},
                                        {"PLUMBLINE_RECORD", "runs/exp1"},
                                        {"PLUMBLINE_BUDGET", "0.01"},
                                        {"PLUMBLINE_EVERY", "4"},
                                        {"TORCHELASTIC_RESTART_COUNT", "2"},
                                        {"RANK", "3"},
                                        {"WORLD_SIZE", "8"},
                                        {"SLURM_PROCID", "1"},
                                        {"SLURM_NTASKS", "2"}});
  ExpectOk(o);
  ASSERT_FALSE(o.calls.empty()) << o.output;
  EXPECT_EQ(o.calls[0],
            "open run=exp1 server=127.0.0.1:7433 record=runs/exp1 attempt=2 role=1 rank=3/8 "
            "every=4 budget=0.010000");
}

TEST(Facade, TheSpoolIsNamedOrTurnedOff) {
  Environment named = {{"PLUMBLINE_SERVER", "127.0.0.1:7433"}, {"PLUMBLINE_SPOOL", "/var/spool/p"}};
  EXPECT_THAT(Spawn("open-only", named).calls[0], HasSubstr("budget=0.000000 spool=/var/spool/p"));
  named["PLUMBLINE_SPOOL"] = "off";
  EXPECT_TRUE(Spawn("open-only", named).calls[0].ends_with(" spool="));
}

TEST(Facade, LaunchersInTheirOrder) {
  const Environment record = {{"PLUMBLINE_RECORD", "r"}};
  Environment slurm = record;
  slurm["SLURM_PROCID"] = "1";
  slurm["SLURM_NTASKS"] = "2";
  slurm["OMPI_COMM_WORLD_RANK"] = "5";
  slurm["OMPI_COMM_WORLD_SIZE"] = "6";
  slurm["RANK"] = "0";  // without WORLD_SIZE: not set by torchrun
  EXPECT_THAT(Spawn("open-only", slurm).calls[0], HasSubstr("rank=1/2"));
  Environment mpi = record;
  mpi["OMPI_COMM_WORLD_RANK"] = "5";
  mpi["OMPI_COMM_WORLD_SIZE"] = "6";
  EXPECT_THAT(Spawn("open-only", mpi).calls[0], HasSubstr("rank=5/6"));
  EXPECT_THAT(Spawn("open-only", record).calls[0], HasSubstr("rank=0/1"));
}

TEST(Facade, WrongEnvironmentIsNamed) {
  const Environment base = {{"PLUMBLINE_RECORD", "r"}, {"WORLD_SIZE", "8"}};
  auto with = [&](const char* name, const char* value) {
    Environment e = base;
    e[name] = value;
    return Spawn("open-only", e).output;
  };
  EXPECT_THAT(with("RANK", "three"), HasSubstr("RANK is \"three\"; expected an integer"));
  EXPECT_THAT(with("RANK", "8"), HasSubstr("rank 8 of world size 8"));
  EXPECT_THAT(with("PLUMBLINE_BUDGET", "1.5"), HasSubstr("PLUMBLINE_BUDGET"));
  EXPECT_THAT(with("PLUMBLINE_BUDGET", "nan"), HasSubstr("PLUMBLINE_BUDGET"));
  EXPECT_THAT(with("PLUMBLINE_ATTEMPT", "-1"), HasSubstr("PLUMBLINE_ATTEMPT"));
  EXPECT_THAT(Spawn("open-only", {}).output, HasSubstr("neither server nor record"));
}

TEST(Facade, StatusNames) {
  EXPECT_STREQ(plumbline_status_name(PLUMBLINE_OK), "ok");
  EXPECT_STREQ(plumbline_status_name(PLUMBLINE_UNAVAILABLE), "unavailable");
  EXPECT_STREQ(plumbline_status_name(1234), "unknown-status");
}

#if !defined(PLUMBLINE_SANITIZED)
// If an allocator is preloaded, static initialisers and later calls of the agent's libraries must
// use it.
class Allocator : public ::testing::TestWithParam<const char*> {};

TEST_P(Allocator, AgentSharesTheProcessHeap) {
  ASSERT_TRUE(std::filesystem::exists(GetParam()))
      << GetParam() << " is missing; tools/setup installs it";
  const Outcome o = Spawn("threads", {{"LD_PRELOAD", GetParam()}});
  ExpectOk(o);
  EXPECT_EQ(o.output, "");
}

INSTANTIATE_TEST_SUITE_P(Preloaded, Allocator, ::testing::ValuesIn(plumbline::test::kAllocators));
#endif

}  // namespace

int main(int argc, char** argv) { return plumbline::test::RunScenarioOrTests(argc, argv); }
