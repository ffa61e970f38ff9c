// The trainer's lines in declarations, the step of the next measurement, and a loop that writes its
// steps faster than they are read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>

#include "agent/core/sites/losses.h"
#include "plumbline/steps.h"
#include "tests/agent/core/observed_run.h"
#include "tests/agent/core/support.h"

namespace plumbline::agent {
namespace {

using namespace testing;  // NOLINT: the tests' own

std::map<std::string, std::string> LinesIn(const std::string& dir) {
  std::map<std::string, std::string> lines;
  for (const v1::Batch& batch : ReadRecord(FirstRecord(dir))) {
    for (const v1::SiteDeclaration& declared : batch.declarations())
      lines[declared.site().op()] = declared.file() + ":" + std::to_string(declared.line());
  }
  return lines;
}

plumbline::SourceLine Called(plumbline::SourceLine at = plumbline::SourceLine::Here()) {
  return at;
}

// As Run::Scalar and Run::TensorSite of the C++ header.
TEST(Lines, ADefaultArgumentIsTheLineOfTheCaller) {
  const plumbline::SourceLine here = Called();
  EXPECT_EQ(here.line, uint32_t{__LINE__ - 1});
  EXPECT_THAT(here.file, ::testing::EndsWith("lines_test.cc"));
}

TEST(Lines, TheFirstReportOfASiteCounts) {
  const TempFolder dir;
  TestRun run(RecordOptions(dir.path()));
  run.run().StepBegin(0);
  run.run().Scalar(0, "loss", 1, {"train.py", 7});
  run.run().Scalar(0, "loss", 2, {"other.py", 8});
  run.run().Scalar(0, "plain", 3);
  run.run().StepEnd(0);
  uint64_t due = 0;
  const plumbline_agent_site_t weight{
      sizeof(weight), PLUMBLINE_KIND_TENSOR, "w", "weight", 0, &due, "model.py", 41};
  // An older façade's struct ends before the line.
  plumbline_agent_site_t older = weight;
  older.op = "older";
  older.size = offsetof(plumbline_agent_site_t, file);
  void* made = nullptr;
  plumbline_error_t error;
  ASSERT_EQ(run.run().DeclareSite(weight, &made, &error), PLUMBLINE_OK);
  ASSERT_EQ(run.run().DeclareSite(older, &made, &error), PLUMBLINE_OK);
  ASSERT_EQ(run.Close(), PLUMBLINE_OK);
  std::map<std::string, std::string> lines = LinesIn(dir.path());
  EXPECT_EQ(lines["loss"], "train.py:7");
  EXPECT_EQ(lines["plain"], ":0");
  EXPECT_EQ(lines["weight"], "model.py:41");
  EXPECT_EQ(lines["older"], ":0");
}

TEST(Lines, AFileIsBoundedAndValid) {
  const TempFolder dir;
  TestRun run(RecordOptions(dir.path()));
  run.run().StepBegin(0);
  run.run().Scalar(0, "long", 1, {std::string(9000, '/') + "end.py", 1});
  std::string wide;
  while (wide.size() < 1000) wide += "\xE2\x82\xAC";  // three bytes each: 256 is within one
  run.run().Scalar(0, "wide", 1, {wide, 2});
  run.run().Scalar(0, "bad", 1, {"a\xFF\x80.py", 3});
  run.run().StepEnd(0);
  ASSERT_EQ(run.Close(), PLUMBLINE_OK);
  std::map<std::string, std::string> lines = LinesIn(dir.path());
  EXPECT_EQ(lines["long"], std::string(250, '/') + "end.py:1");
  EXPECT_EQ(lines["wide"], wide.substr(0, 255) + ":2");
  EXPECT_EQ(lines["bad"], "a\\xff\\x80.py:3");
}

std::vector<int64_t> NextLooksIn(const std::string& dir) {
  std::vector<int64_t> looks;
  for (const v1::Batch& batch : ReadRecord(FirstRecord(dir))) {
    for (const v1::Progress& progress : batch.progress())
      looks.push_back(progress.has_next_look() ? progress.next_look() : -1);
  }
  return looks;
}

// A measurement that was due and did not come leaves the next look in the past.
TEST(NextLook, IsOfTheCadenceUnlessTheTrainersSidePlansIt) {
  for (const bool planned : {false, true}) {
    const TempFolder dir;
    AgentOptions options = RecordOptions(dir.path());
    options.every = 4;
    TestRun run(options);
    RouterCall call(32, 8, 2);
    run.RoutingSite("l");
    for (int64_t step = 0; step < 40; ++step) {
      run.run().StepBegin(step);
      if (step <= 8 && run.Due("l", step)) run.Observe("l", step, call);
      if (planned && step == 8) run.run().NextLook(500);
      run.run().StepEnd(step);
    }
    ASSERT_EQ(run.Close(), PLUMBLINE_OK);
    EXPECT_EQ(NextLooksIn(dir.path()).back(), planned ? 500 : 12);
  }
  const TempFolder dir;
  TestRun scalars(RecordOptions(dir.path()));
  scalars.run().StepBegin(0);
  scalars.run().Scalar(0, "loss", 1);
  scalars.run().StepEnd(0);
  ASSERT_EQ(scalars.Close(), PLUMBLINE_OK);
  EXPECT_EQ(NextLooksIn(dir.path()).back(), -1) << "nothing is measured";
}

// A loop that overwrites steps before they are read loses the oldest ones, and no others.
TEST(Steps, ThatWereOverwrittenAreCountedAndTheOthersAreKept) {
  const TempFolder dir;
  Recorded recorded(dir.path());
  const auto steps = std::make_unique<plumbline_steps_t>();
  constexpr int64_t kWritten = 3000;
  for (int64_t step = 0; step < kWritten; ++step) {
    plumbline_step_facts_t& facts = steps->facts[step % PLUMBLINE_STEPS];
    facts = {step, static_cast<uint64_t>(step) + 1, 1, 0, {static_cast<double>(step)}};
  }
  steps->written = kWritten;
  const char* const names[] = {"loss"};
  ASSERT_EQ(recorded.run->Steps(names, steps.get()), PLUMBLINE_OK);
  std::map<int64_t, double> seen;
  for (const v1::Evidence& e : recorded.Close(dir.path())) {
    if (e.has_scalar()) seen[e.step()] = e.scalar().value();
  }
  EXPECT_EQ(seen.size(), size_t{PLUMBLINE_STEPS});
  EXPECT_EQ(seen.begin()->first, kWritten - PLUMBLINE_STEPS);
  for (const auto& [step, value] : seen) EXPECT_EQ(value, static_cast<double>(step));
  EXPECT_EQ(recorded.account.lost_by_cause,
            (std::map<std::string, uint64_t>{
                {LossCauseName(LossCause::kRingFull), kWritten - PLUMBLINE_STEPS}}));
}

}  // namespace
}  // namespace plumbline::agent
