// The lines that the agent prints on the trainer's standard error: where the record is, and the
// first non-finite loss.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "tests/agent/core/observed_run.h"
#include "tests/agent/core/support.h"

namespace plumbline::agent {
namespace {

using namespace testing;  // NOLINT: the tests' own
using ::testing::HasSubstr;

// Records losses and returns what the agent printed.
std::string PrintedWith(const AgentOptions& options, const std::string& series,
                        const std::vector<double>& values) {
  ::testing::internal::CaptureStderr();
  {
    TestRun run(options);
    for (size_t i = 0; i < values.size(); ++i) {
      const auto step = static_cast<int64_t>(i);
      run.run().StepBegin(step);
      EXPECT_EQ(run.run().Scalar(step, series.c_str(), values[i]), PLUMBLINE_OK);
      run.run().StepEnd(step);
    }
    EXPECT_EQ(run.Close(), PLUMBLINE_OK) << run.error();
  }
  return ::testing::internal::GetCapturedStderr();
}

TEST(Printed, ARecordEndsWithItsPlaceAndTheCommandThatJudgesIt) {
  TempFolder dir;
  const AgentOptions options = RecordOptions(dir.path());
  EXPECT_EQ(PrintedWith(options, "loss", {2, 1}), "plumbline: recorded in " + options.record_dir +
                                                      ". To judge it: plumb audit " +
                                                      options.record_dir + "\n");
  AgentOptions spaced = options;
  spaced.record_dir += "/it's a run";
  EXPECT_THAT(PrintedWith(spaced, "loss", {2}),
              HasSubstr("plumb audit '" + options.record_dir + "/it'\\''s a run'\n"));
}

TEST(Printed, OneRankOfAJobNamesTheRecordAndOnlyIfItHasSteps) {
  TempFolder dir;
  AgentOptions options = RecordOptions(dir.path());
  EXPECT_EQ(PrintedWith(options, "loss", {}), "");
  options.rank = 1;
  options.world_size = 2;
  EXPECT_EQ(PrintedWith(options, "loss", {2}), "");
}

TEST(Printed, TheFirstNonFiniteLossIsOneLine) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double inf = std::numeric_limits<double>::infinity();
  TempFolder dir;
  AgentOptions options = RecordOptions(dir.path());
  options.rank = 3;
  options.world_size = 4;
  EXPECT_EQ(PrintedWith(options, "train/Loss", {2, 1, nan, nan, inf}),
            "plumbline: train/Loss is NaN in step 2, rank 3: the first non-finite loss (printed "
            "once). Next: plumb audit " +
                options.record_dir + "\n");
  EXPECT_THAT(PrintedWith(options, "loss", {-inf}), HasSubstr("loss is -inf in step 0"));
  // Other series may be infinite, and a loss scale overflows by design.
  EXPECT_EQ(PrintedWith(options, "grad_norm", {inf, nan}), "");
  EXPECT_EQ(PrintedWith(options, "loss_scale", {inf}), "");
}

}  // namespace
}  // namespace plumbline::agent
