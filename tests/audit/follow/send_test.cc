// plumb audit --send: plumbd judges a run that has no probe.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstdio>

#include "tests/audit/follow/growing_file.h"
#include "tests/server/support.h"
#include "tests/support/process.h"

namespace plumbline::audit {
namespace {

using namespace testing;  // NOLINT: the builders
using test::Eventually;
using test::Plumbd;
using test::Process;
using test::TempFolder;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

bool HasIncident(const Plumbd& server, const std::string& rule) {
  return !server.Incidents("exp1", rule).empty();
}

// Waits for the incident and returns the time that it took.
double SecondsTo(const Plumbd& server, const std::string& rule) {
  const auto begin = Clock::now();
  EXPECT_TRUE(Eventually([&] { return HasIncident(server, rule); })) << rule;
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

std::vector<std::string> Following(const std::string& log, const std::string& address) {
  return {PLUMB_PROGRAM, "audit", log, "--follow", "--send", address, "--run", "exp1"};
}

// If it were sent again, it would be refused again.
TEST(Send, ANameThatIsTooLongEndsItAtOnce) {
  const TempFolder dir;
  const Plumbd server;
  ASSERT_FALSE(server.address().empty());
  const std::string log = dir.Write("train.log", HealthyIterations(1, 20));
  for (const bool follow : {false, true}) {
    std::vector<std::string> command = {
        PLUMB_PROGRAM, "audit", log, "--send", server.address(), "--run", std::string(600, 'n')};
    if (follow) command.push_back("--follow");
    Process plumb(command);
    EXPECT_EQ(plumb.Wait(), 2) << plumb.errors();
    EXPECT_THAT(plumb.errors(), HasSubstr(server.address() + " refused all of it: hello: "));
    EXPECT_THAT(plumb.errors(), HasSubstr("600"));
    EXPECT_THAT(plumb.errors(), HasSubstr("512"));
  }
}

TEST(Send, FaultsInALogBecomeIncidents) {
  const TempFolder dir;
  const Plumbd server;
  ASSERT_FALSE(server.address().empty());
  const std::string log = dir.Write("train.log", HealthyIterations(1, 200));
  Process plumb(Following(log, server.address()));
  EXPECT_TRUE(Eventually([&] {
    const auto run = server.Run("exp1");
    return run && run->closed_step() == 199;
  }));
  EXPECT_FALSE(HasIncident(server, "health/*"));
  // Each in the order in which it is written. A rate may return within 100 steps.
  Append(log, HealthyIterations(200, 205) + Iteration(205, "nan"));
  std::printf("a loss that is NaN: %.2f s\n", SecondsTo(server, "health/loss-non-finite"));
  Append(log, HealthyIterations(206, 230) + Iteration(230, "7.5"));
  std::printf("a spike: %.2f s\n", SecondsTo(server, "health/loss-spike"));
  std::string dead;
  for (int64_t step = 231; step < 345; ++step)
    dead += Iteration(step, HealthyLoss(step), "0.000000E+00");
  Append(log, dead);
  std::printf("a rate of zero: %.2f s\n", SecondsTo(server, "health/learning-rate"));
  plumb.Signal(SIGINT);
  EXPECT_EQ(plumb.Wait(), 1) << plumb.errors();
  const auto run = server.Run("exp1");
  ASSERT_TRUE(run);
  EXPECT_EQ(run->closed_step(), 344);
  EXPECT_EQ(run->ranks_finished(), 1u);
  EXPECT_EQ(run->lost(), 0u);
  EXPECT_EQ(run->late(), 0u);
  EXPECT_EQ(run->samples(), 5u * 344u);
}

// Validations that end long after their step, in a separate file: sent late and still judged.
TEST(Send, ValidationsThatComeLate) {
  const TempFolder dir;
  const Plumbd server;
  const auto at = [](int64_t step, double loss) {
    return "{\"step\": " + std::to_string(step) + ", \"eval/loss\": " + std::to_string(loss) +
           "}\n";
  };
  std::string train;  // of the same format: --run names one run of them
  for (int64_t step = 1; step < 900; ++step)
    train += "{\"step\": " + std::to_string(step) + ", \"loss\": " + HealthyLoss(step) + "}\n";
  dir.Write("train.jsonl", train);
  std::string early;
  for (int64_t step = 10; step <= 400; step += 10)
    early += at(step, 3 + 0.01 * std::sin(static_cast<double>(step)));
  const std::string evaluations = dir.Write("eval.jsonl", early);
  Process plumb(Following(dir.path(), server.address()));
  EXPECT_TRUE(Eventually([&] {
    const auto run = server.Run("exp1");
    return run && run->closed_step() == 899;
  }));
  EXPECT_FALSE(HasIncident(server, "health/*"));
  std::string late;
  for (int64_t step = 410; step <= 440; step += 10) late += at(step, 9);
  Append(evaluations, late);
  EXPECT_TRUE(Eventually([&] { return HasIncident(server, "health/loss-spike"); }));
  plumb.Signal(SIGINT);
  plumb.Wait();
}

TEST(Send, AFinishedFileAlone) {
  const TempFolder dir;
  const Plumbd server;
  const std::string log = dir.Write("train.log", HealthyIterations(1, 100) + Iteration(100, "nan"));
  const test::Ended ended =
      test::RunToEnd({PLUMB_PROGRAM, "audit", log, "--send", server.address(), "--run", "exp1"});
  EXPECT_EQ(ended.status, 1) << ended.errors;
  EXPECT_THAT(ended.output, HasSubstr("health/loss-non-finite"));
  EXPECT_TRUE(Eventually([&] { return HasIncident(server, "health/loss-non-finite"); }));
}

// It continues to follow, reports the state, and sends everything later.
TEST(Send, AServerThatIsAway) {
  const TempFolder dir;
  std::string address;
  {
    const Plumbd first;
    address = first.address();
  }
  const std::string log = dir.Write("train.log", HealthyIterations(1, 100));
  Process plumb(Following(log, address));
  EXPECT_TRUE(Eventually([&] {
    return plumb.errors().find("The data are sent when a server accepts") != std::string::npos;
  }));
  Append(log, Iteration(100, "nan"));
  EXPECT_TRUE(
      Eventually([&] { return plumb.output().find("loss-non-finite") != std::string::npos; }));
  const auto server = Plumbd::At(address);
  ASSERT_FALSE(server->address().empty());
  EXPECT_TRUE(Eventually([&] { return HasIncident(*server, "health/loss-non-finite"); }));
  plumb.Signal(SIGINT);
  EXPECT_EQ(plumb.Wait(), 1) << plumb.errors();
  EXPECT_EQ(server->Run("exp1")->samples(), 500u);
}

TEST(Send, NoServerEverAnswers) {
  const TempFolder dir;
  std::string address;
  {
    const Plumbd first;
    address = first.address();
  }
  const std::string log = dir.Write("train.log", HealthyIterations(1, 100));
  Process plumb(Following(log, address));
  EXPECT_TRUE(
      Eventually([&] { return plumb.errors().find("no server answers at") != std::string::npos; }));
  plumb.Signal(SIGINT);
  EXPECT_EQ(plumb.Wait(), 2);
  EXPECT_THAT(plumb.errors(), HasSubstr("did not receive all"));
}

// Killed, and started again: the server receives the missing data.
TEST(Send, StartedAgain) {
  const TempFolder dir;
  const Plumbd server;
  const std::string log = dir.Write("train.log", HealthyIterations(1, 100));
  {
    Process plumb(Following(log, server.address()));
    EXPECT_TRUE(Eventually([&] {
      const auto run = server.Run("exp1");
      return run && run->closed_step() == 99;
    }));
    plumb.Signal(SIGKILL);
    plumb.Wait();
  }
  Append(log, HealthyIterations(100, 150));
  Process plumb(Following(log, server.address()));
  EXPECT_TRUE(Eventually([&] { return server.Run("exp1")->closed_step() == 149; }));
  plumb.Signal(SIGINT);
  EXPECT_EQ(plumb.Wait(), 0) << plumb.errors();
  EXPECT_EQ(server.Run("exp1")->samples(), 5u * 149u);
  EXPECT_EQ(server.Run("exp1")->late(), 0u);
}

}  // namespace
}  // namespace plumbline::audit
