// Runs during which plumbd dies, or that it cannot judge: the others continue, and a person
// decides.
#include "server/judge/quarantine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/server/chaos_agents.h"
#include "tests/server/judge/audited.h"

namespace plumbline::test {
namespace {

using server::JudgingMark;
using server::Quarantine;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

// ---- the run during which a process died --------------------------------------------------------

class QuarantineTest : public testing::Test {
 protected:
  Quarantine Open() const {
    return Quarantine(folder_.path(), [] { return int64_t{7}; });
  }
  // Acts like a process that crashes while a thread judges each of `runs`; the first one's thread
  // crashes.
  void Crash(const std::vector<std::pair<std::string, uint64_t>>& runs,
             int signal = SIGSEGV) const {
    const pid_t child = fork();
    if (child == 0) {
      Quarantine quarantine = Open();
      quarantine.NoteCrashes();
      for (size_t i = runs.size(); i-- > 0;) {
        std::thread([&, i] {
          Quarantine::At(runs[i].second, false);
          quarantine.Begin(runs[i].first);
          if (i == 0) raise(signal);
        }).join();
      }
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == signal) << status;
  }
  // Acts like a process that ends while it judges `run`.
  void Die(const std::string& run, uint64_t entry, bool replaying) const {
    const pid_t child = fork();
    if (child == 0) {
      Quarantine quarantine = Open();
      quarantine.At(entry, replaying);
      if (!run.empty()) quarantine.Begin(run);
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
  }
  // Acts like a process that ends while it judges several runs, each on a separate thread.
  void DieOverSeveral(const std::vector<std::pair<std::string, uint64_t>>& runs) const {
    const pid_t child = fork();
    if (child == 0) {
      Quarantine quarantine = Open();
      for (const auto& [run, entry] : runs) {
        std::thread([&quarantine, run = run, entry = entry] {
          Quarantine::At(entry, false);
          quarantine.Begin(run);
        }).join();
      }
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
  }
  std::vector<std::string> Held() const {
    std::vector<std::string> names;
    for (const auto& run : Open().List()) names.push_back(run.run());
    return names;
  }

  TempFolder folder_;
};

TEST_F(QuarantineTest, OneDeathIsNotEnough) {
  Die("bad", 17, false);
  EXPECT_THAT(Held(), ElementsAre());
}

TEST_F(QuarantineTest, ThreeDeathsInARowAtOneEntryPutTheRunThere) {
  Die("bad", 17, false);
  Die("bad", 17, true);
  Die("bad", 17, true);  // not opened in between: that would count as a normal end
  ASSERT_THAT(Held(), ElementsAre("bad"));
  const Quarantine quarantine = Open();
  EXPECT_TRUE(quarantine.Holds("bad"));
  EXPECT_FALSE(quarantine.Holds("good"));
  EXPECT_EQ(quarantine.Find("bad")->entry(), 17u);
  EXPECT_THAT(quarantine.Find("bad")->reason(),
              HasSubstr("died repeatedly while it judged entry 17"));
  EXPECT_TRUE(quarantine.MayWrite("bad").ok());
}

// Killed twice from outside, by chance while it judged the same entry.
TEST_F(QuarantineTest, TwoUnobservedDeathsAreChance) {
  Die("busy", 17, true);
  Die("busy", 17, true);
  EXPECT_THAT(Held(), ElementsAre());
}

TEST_F(QuarantineTest, TwoCrashesAtOneEntryPutTheRunThere) {
  for (const int signal : {SIGSEGV, SIGABRT}) Crash({{"bad", 17}}, signal);
  ASSERT_THAT(Held(), ElementsAre("bad"));
  EXPECT_THAT(Open().Find("bad")->reason(), HasSubstr("crashed repeatedly"));
}

// If several were judged at the same time, the crashed thread shows which one it was.
TEST_F(QuarantineTest, OnlyTheOneWhoseThreadCrashedIsHeld) {
  for (int i = 0; i < 2; ++i) Crash({{"bad", 17}, {"innocent", 12}});
  EXPECT_THAT(Held(), ElementsAre("bad"));
}

TEST_F(QuarantineTest, ACrashOfAThreadThatJudgesNothingIsNobodys) {
  for (int i = 0; i < 4; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      Quarantine quarantine = Open();
      quarantine.NoteCrashes();
      quarantine.At(17, true);
      quarantine.Begin("innocent");
      std::thread([] { abort(); }).join();
    }
    waitpid(child, nullptr, 0);
  }
  EXPECT_THAT(Held(), ElementsAre());
}

TEST_F(QuarantineTest, WhoIsKilledElsewhereEachTimeIsNotHeld) {
  for (uint64_t entry = 1; entry <= 20; ++entry) Die("busy", entry, false);
  EXPECT_THAT(Held(), ElementsAre());
}

TEST_F(QuarantineTest, ADeathOverAnotherRunOrOverNothingIsNoRow) {
  Die("bad", 17, false);
  Die("other", 17, true);
  Die("bad", 17, true);
  Die("", 0, false);
  Die("bad", 17, true);
  EXPECT_THAT(Held(), ElementsAre());
}

TEST_F(QuarantineTest, ARunInReplayIsHeldAfterFourDeathsInARow) {
  for (const uint64_t entry : {90, 41, 43}) Die("bad", entry, true);
  Die("bad", 40, true);
  EXPECT_THAT(Held(), ElementsAre("bad"));
}

// A server that is killed from outside still progresses. The quarantine is not opened in between,
// because that would count as a process that ended normally.
TEST_F(QuarantineTest, ADeathFurtherOnThanAllBeforeItDoesNotCount) {
  for (uint64_t entry = 10; entry <= 40; entry += 2) Die("bad", entry, true);
  EXPECT_THAT(Held(), ElementsAre());
  for (const uint64_t entry : {10, 20, 30, 29, 12}) Die("bad", entry, true);
  EXPECT_THAT(Held(), ElementsAre());
  for (const uint64_t entry : {10, 20, 30, 29, 12, 25}) Die("bad", entry, true);
  EXPECT_THAT(Held(), ElementsAre("bad"));
}

TEST_F(QuarantineTest, OneThatIsDroppedStaysDroppedAndIsRefused) {
  {
    Quarantine quarantine = Open();
    quarantine.At(5, false);
    quarantine.Failed("bad", "std::bad_alloc");
    EXPECT_TRUE(absl::IsNotFound(quarantine.Drop("good")));
    EXPECT_TRUE(quarantine.Drop("bad").ok());
  }
  const Quarantine quarantine = Open();
  EXPECT_TRUE(quarantine.Holds("bad"));
  EXPECT_EQ(quarantine.waiting(), 0u);
  EXPECT_TRUE(absl::IsFailedPrecondition(quarantine.MayWrite("bad")));
}

TEST_F(QuarantineTest, OneThatWasJudgedAgainIsBackUntilItIsReleased) {
  {
    Quarantine quarantine = Open();
    quarantine.Failed("bad", "std::bad_alloc");
    quarantine.Rejoin("bad");
    EXPECT_FALSE(quarantine.Holds("bad"));
  }
  EXPECT_THAT(Held(), ElementsAre("bad"));  // no checkpoint contains it yet
  {
    Quarantine quarantine = Open();
    quarantine.Rejoin("bad");
    EXPECT_TRUE(quarantine.Release("bad").ok());
  }
  EXPECT_THAT(Held(), ElementsAre());
}

// Several runs were judged at the same time, so any of them may be the cause.
TEST_F(QuarantineTest, NoProcessIsHeldForADeathThatMayHaveBeenOverAnother) {
  for (int i = 0; i < 6; ++i) DieOverSeveral({{"bad", 17}, {"innocent", 12}});
  EXPECT_THAT(Held(), ElementsAre());
}

TEST_F(QuarantineTest, WhoEndsTheProcessAloneAfterwardsIsHeldAndTheOthersAreNot) {
  DieOverSeveral({{"bad", 17}, {"innocent", 12}});
  Die("bad", 17, true);
  Die("bad", 17, true);
  Die("bad", 17, true);  // not opened in between: that would count as a normal end
  EXPECT_THAT(Held(), ElementsAre("bad"));
  Die("innocent", 12, true);
  EXPECT_THAT(Held(), ElementsAre("bad"));
}

TEST_F(QuarantineTest, EachThreadReportsWhatItJudges) {
  Quarantine quarantine = Open();
  const std::string only = "mine";
  Quarantine::Only(&only);
  Quarantine::At(3, false);
  EXPECT_FALSE(quarantine.Begin("theirs"));
  ASSERT_TRUE(quarantine.Begin("mine"));
  std::thread([&] {
    Quarantine::At(9, false);
    ASSERT_TRUE(quarantine.Begin("theirs"));
    quarantine.End();
    quarantine.Failed("theirs", "std::bad_alloc");
  }).join();
  quarantine.End();
  Quarantine::Only(nullptr);
  EXPECT_EQ(quarantine.Find("theirs")->entry(), 9u);
}

TEST_F(QuarantineTest, AFileThatIsDamagedIsSetAside) {
  { Open().Failed("bad", "std::bad_alloc"); }
  std::string bytes = ReadFile(folder_.File("quarantine"));
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  WriteFile(folder_.File("quarantine"), bytes);
  EXPECT_THAT(Held(), ElementsAre());
  EXPECT_EQ(ReadFile(folder_.File("quarantine.damaged")), bytes);
}

TEST_F(QuarantineTest, ADirectoryInItsPlaceIsSetAside) {
  std::filesystem::create_directory(folder_.File("quarantine"));
  EXPECT_THAT(Held(), ElementsAre());
  EXPECT_TRUE(std::filesystem::is_directory(folder_.File("quarantine.damaged")));
}

TEST_F(QuarantineTest, AMarkIsThereAfterAnyNameAndNoneIsTooLong) {
  const std::string longest(server::JudgingMarkPage::kNameBytes + 5, 'x');
  Die(longest, 3, true);
  Die(longest, 3, true);
  EXPECT_FALSE(Open().Holds(longest));  // the name is cut, and matches no run
}

// ---- a real plumbd ---------------------------------------------------------------------------

class QuarantinedRun : public testing::Test {
 protected:
  void Start() {
    server_ = std::make_unique<Plumbd>(
        std::vector<std::string>{"--data", folder_.File("data"), "--grace", "600"},
        std::vector<std::string>{"ASAN_OPTIONS=verify_asan_link_order=0",
                                 std::string("LD_PRELOAD=") + PLUMB_FAULT_LIBRARY,
                                 "PLUMB_JUDGE_FAULT=" + folder_.File("fault")});
  }
  void SetFault(const std::string& fault) const { std::ofstream(folder_.File("fault")) << fault; }
  static uint64_t StreamOf(const std::string& run) { return run == "bad" ? 2 : 1; }
  // Sends steps `first` to `last`; returns true if all of them are held.
  bool Send(const std::string& run, uint64_t first, uint64_t last) const {
    const v1::Source source = SourceOf(run);
    AgentStream agent(*server_, StreamOf(run), {source}, first);
    for (uint64_t step = first; step <= last; ++step)
      agent.Send(LeakingStep(source, static_cast<int64_t>(step)), step);
    return agent.Acknowledged(last);
  }
  int64_t ClosedStep(const std::string& run) const {
    const auto info = server_->Run(run);
    return info ? info->closed_step() : -1;
  }
  bool Judged(const std::string& run, int64_t step) const {
    return Eventually([&] { return ClosedStep(run) == step; });
  }
  std::vector<v1::Incident> Leaks(const std::string& run) const {
    return server_->Incidents(run, "causality/moe-future-leak");
  }
  Ended Plumb(std::vector<std::string> words) const {
    words.insert(words.begin(), PLUMB_PROGRAM);
    words.insert(words.end(), {"--server", server_->address()});
    return RunToEnd(words);
  }
  // Lets plumbd die during the run "bad", of which nothing was judged before, until it is held:
  // `deaths` times.
  void DieOver(const std::string& fault = "die", int signal = SIGKILL, int deaths = 3) {
    Start();
    ASSERT_TRUE(Send("good", 1, 3));
    ASSERT_TRUE(Judged("good", 3));
    SetFault(fault + " bad");
    {
      const v1::Source source = SourceOf("bad");
      AgentStream agent(*server_, StreamOf("bad"), {source}, 1);
      agent.Send(LeakingStep(source, 1), 1);
      EXPECT_EQ(server_->process().Wait(), 128 + signal);
    }
    for (int death = 2; death <= deaths; ++death) {
      Start();
      EXPECT_EQ(server_->process().Wait(), 128 + signal);
    }
    Start();
    ASSERT_FALSE(server_->address().empty()) << server_->process().errors();
  }

  TempFolder folder_;
  std::unique_ptr<Plumbd> server_;
};

TEST_F(QuarantinedRun, IsKeptAndNotJudgedWhileOthersAre) {
  DieOver();
  ASSERT_TRUE(Eventually([&] { return server_->Run("bad").has_value(); }));
  EXPECT_TRUE(server_->Run("bad")->has_quarantined());
  EXPECT_TRUE(Judged("good", 3));
  EXPECT_TRUE(Send("bad", 2, 5));  // it is acknowledged as before
  EXPECT_TRUE(Send("good", 4, 6));
  EXPECT_TRUE(Judged("good", 6));
  EXPECT_EQ(ClosedStep("bad"), -1);
  EXPECT_THAT(Leaks("bad"), testing::IsEmpty());
  EXPECT_EQ(Leaks("good").size(), 1u);
  const auto reported = server_->Incidents("bad", "meta/data-loss");
  ASSERT_EQ(reported.size(), 1u);
  EXPECT_EQ(reported[0].finding().cause().id(), "quarantined");

  const Ended runs = Plumb({"runs"});
  EXPECT_EQ(runs.status, 0) << runs.errors;
  EXPECT_THAT(runs.output, HasSubstr("quarantined"));
  EXPECT_THAT(runs.output, HasSubstr("died repeatedly while it judged entry"));
  EXPECT_THAT(Plumb({"runs", "bad", "--format", "json"}).output,
              HasSubstr("\"state\":\"quarantined\""));
  EXPECT_EQ(Plumb({"runs", "--retry", "good"}).status, 2);
}

TEST_F(QuarantinedRun, IsHeldAtTheSecondCrashOfTheThreadThatJudgesIt) {
  DieOver("crash", SIGSEGV, 2);
  ASSERT_TRUE(Eventually([&] { return server_->Run("bad").has_value(); }));
  EXPECT_TRUE(server_->Run("bad")->has_quarantined());
  EXPECT_THAT(Plumb({"runs"}).output, HasSubstr("crashed repeatedly while it judged entry"));
}

TEST_F(QuarantinedRun, IsJudgedAgainFromItsOldestEntryOnceTheCauseIsFixed) {
  DieOver();
  EXPECT_TRUE(Send("bad", 2, 5));
  // Nothing was fixed: plumbd dies once more, and the run is in quarantine again.
  EXPECT_EQ(Plumb({"runs", "--retry", "bad"}).status, 2);
  EXPECT_EQ(server_->process().Wait(), 128 + SIGKILL);
  Start();
  ASSERT_FALSE(server_->address().empty()) << server_->process().errors();
  EXPECT_TRUE(Send("bad", 6, 7));

  SetFault("none");
  const Ended retried = Plumb({"runs", "--retry", "bad"});
  EXPECT_EQ(retried.status, 0) << retried.errors;
  EXPECT_EQ(retried.output, "run bad: judged again\n");
  EXPECT_FALSE(server_->Run("bad")->has_quarantined());
  EXPECT_TRUE(Judged("bad", 7));
  EXPECT_TRUE(Send("bad", 8, 9));
  EXPECT_TRUE(Judged("bad", 9));

  // The run has no trace of the quarantine, also after a restart.
  const auto check = [&] {
    Findings expected = FindingsOfJournal(folder_.File("data") + "/journal");
    Findings found;
    EXPECT_TRUE(Eventually([&] {
      found = FindingsOf(*server_);
      return found == expected;
    })) << found.size()
        << " findings, expected " << expected.size();
    EXPECT_EQ(found.size(), 3u);  // two leaks, and the quarantine
  };
  check();
  server_->process().Signal(SIGKILL);
  server_->process().Wait();
  Start();
  EXPECT_TRUE(Judged("bad", 9));
  EXPECT_FALSE(server_->Run("bad")->has_quarantined());
  check();
}

// The quarantine's incident does not follow from evidence, so the journal must hold it: while the
// run is held, once it has been judged again, and after restarts with a checkpoint and without.
TEST_F(QuarantinedRun, IsReportedByAnAuditAsItIsLive) {
  DieOver();
  ASSERT_TRUE(Eventually([&] { return HasCause(FoundLive(*server_, "bad"), "quarantined"); }));
  EXPECT_TRUE(HasCause(FoundByAudit(*server_, "bad"), "quarantined"));
  EXPECT_FALSE(HasCause(FoundByAudit(*server_, "good"), "quarantined")) << "is another run's";
  SetFault("none");
  ASSERT_EQ(Plumb({"runs", "--retry", "bad"}).status, 0);
  {
    const v1::Source source = SourceOf("bad");
    AgentStream agent(*server_, StreamOf("bad"), {source}, 2);
    agent.Send(LeakingStep(source, 2), 2);
    agent.Send(Goodbye(source, 2), 3);
    ASSERT_TRUE(agent.Acknowledged(3));
  }
  ASSERT_TRUE(IsOver(*server_, "bad"));
  const FoundIncidents live = FoundLive(*server_, "bad");
  EXPECT_GE(live.size(), 2u);
  EXPECT_TRUE(HasCause(live, "quarantined"));
  EXPECT_EQ(FoundByAudit(*server_, "bad"), live);
  for (const bool without_checkpoint : {false, true}) {
    server_->process().Signal(SIGKILL);
    server_->process().Wait();
    if (without_checkpoint) std::filesystem::remove_all(folder_.File("data/checkpoint"));
    Start();
    EXPECT_TRUE(Eventually([&] { return FoundLive(*server_, "bad") == live; }));
    EXPECT_EQ(FoundByAudit(*server_, "bad"), live);
  }
}

TEST_F(QuarantinedRun, ThatIsDroppedIsRefusedForGood) {
  DieOver();
  const Ended dropped = Plumb({"runs", "--drop", "bad"});
  EXPECT_EQ(dropped.status, 0) << dropped.errors;
  EXPECT_THAT(server_->process().errors(), HasSubstr("dropped by"));
  for (const bool restarted : {false, true}) {
    if (restarted) {
      server_->Stop();
      Start();
    }
    AgentStream agent(*server_, 3, {SourceOf("bad")});
    const grpc::Status status = agent.Ended();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
    EXPECT_THAT(status.error_message(), HasSubstr("was dropped by an operator"));
    EXPECT_THAT(Plumb({"runs", "bad"}).output, HasSubstr("dropped"));
    EXPECT_EQ(Plumb({"runs", "--retry", "bad"}).status, 2);
  }
  EXPECT_TRUE(Send("good", 4, 5));
  EXPECT_TRUE(Judged("good", 5));
}

TEST_F(QuarantinedRun, OfWhichMemoryRunsOutDoesNotEndTheServer) {
  Start();
  EXPECT_TRUE(Send("bad", 1, 2));
  EXPECT_TRUE(Judged("bad", 2));
  SetFault("memory bad");
  EXPECT_TRUE(Send("bad", 3, 4));
  EXPECT_TRUE(Send("good", 1, 2));
  EXPECT_TRUE(Judged("good", 2));
  ASSERT_TRUE(Eventually([&] { return server_->Run("bad")->has_quarantined(); }));
  EXPECT_THAT(server_->Run("bad")->quarantined().reason(), HasSubstr("bad_alloc"));

  const Ended still = Plumb({"runs", "--retry", "bad"});
  EXPECT_EQ(still.status, 2);
  EXPECT_THAT(still.errors, HasSubstr("still in quarantine"));
  SetFault("none");
  EXPECT_EQ(Plumb({"runs", "--retry", "bad"}).status, 0);
  EXPECT_TRUE(Judged("bad", 4));
  EXPECT_TRUE(server_->process().running());
}

}  // namespace
}  // namespace plumbline::test
