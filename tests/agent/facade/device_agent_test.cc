// A trainer with CUDA tensors, the façade and the real agent: without a device, and with the fake
// device. The trainer is a separate process that contains no protobuf messages.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <string>

#include "agent/core/run/record_sink.h"
#include "tests/agent/core/support.h"

namespace plumbline::agent {
namespace {

using test::TempFolder;
using testing::Account;
using testing::AccountOf;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::ReadRecord;

class Trainer : public ::testing::Test {
 protected:
  // What the trainer printed; its exit status must be 0.
  std::string Run(const std::string& mode, const std::string& environment) {
    const std::string out = dir_.File("out");
    const std::string command = "env -u PLUMBLINE_CUDA_LIBRARY " + environment +
                                " " DEVICE_TRAINER " " + mode + " " + dir_.path() + " >" + out +
                                " 2>&1";
    const int status = std::system(command.c_str());
    const std::string text = test::ReadFile(out);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status << ": " << text;
    return text;
  }
  Account Recorded() {
    return AccountOf(ReadRecord(RecordPath(dir_.path(), v1::ROLE_TRAINER, 0, 0)));
  }
  void ExpectUnharmed() {
    const Account account = Recorded();
    EXPECT_EQ(account.items, 6u);
    EXPECT_EQ(account.lost_by_cause.at("device-kernels-not-loaded"), 3u);
    EXPECT_EQ(account.complete_through, 2);
    EXPECT_TRUE(account.finished);
  }

  TempFolder dir_;
};

constexpr char kOnce[] = "plumbline: CUDA tensors are not measured: ";

TEST_F(Trainer, WithoutTheDeviceLibraryIsReportedOnce) {
  const std::string out = Run("unavailable", "PLUMBLINE_CUDA_LIBRARY=/nonexistent/libx.so");
  EXPECT_THAT(
      out,
      HasSubstr("observe_routing \"layers.3\": the tensors are on CUDA device 0, which the agent "
                "cannot use: PLUMBLINE_CUDA_LIBRARY cannot be loaded: /nonexistent/libx.so"));
  const size_t first = out.find(kOnce);
  ASSERT_NE(first, std::string::npos) << out;
  EXPECT_EQ(out.find(kOnce, first + 1), std::string::npos) << out;
  ExpectUnharmed();
}

TEST_F(Trainer, WithALibraryOfAnotherBuildIsReportedOnce) {
  const std::string out = Run("unavailable", "PLUMBLINE_CUDA_LIBRARY=libz.so.1");
  EXPECT_THAT(out, HasSubstr("the device library has no plumbline_device_table"));
  ExpectUnharmed();
}

// The real library if it was built, otherwise none; no GPU is visible in either case.
TEST_F(Trainer, WithoutAGpuIsReportedOnce) {
  const std::string out = Run("unavailable", "CUDA_VISIBLE_DEVICES=");
#if defined(HAVE_CUDA_LIBRARY)
  EXPECT_THAT(out, HasSubstr("no CUDA d"));  // driver, or device
  EXPECT_THAT(out, Not(HasSubstr("cannot be loaded")));
#else
  EXPECT_THAT(out, HasSubstr("the device kernels cannot be loaded: "));
  EXPECT_THAT(out, HasSubstr("libplumbline_cuda.so"));
#endif
  ExpectUnharmed();
}

// The only line of a trainer without a problem.
constexpr char kRecorded[] = "plumbline: recorded in .*. To judge it: plumb audit .*\n";

TEST_F(Trainer, ThatExitsGetsWhatTheDeviceFinishesInTime) {
  EXPECT_THAT(Run("exit", "PLUMBLINE_CUDA_LIBRARY=" FAKE_DEVICE),
              ::testing::MatchesRegex(kRecorded));
  const Account account = Recorded();
  EXPECT_EQ(account.items, 3u);
  EXPECT_EQ(account.lost, 0u);
  EXPECT_EQ(account.complete_through, 2);
  EXPECT_TRUE(account.finished);
}

TEST_F(Trainer, ThatForksLosesNothing) {
  EXPECT_THAT(Run("fork", "PLUMBLINE_CUDA_LIBRARY=" FAKE_DEVICE),
              ::testing::MatchesRegex(kRecorded));
  const Account account = Recorded();
  EXPECT_EQ(account.items, 6u);
  EXPECT_EQ(account.lost, 0u);
  EXPECT_EQ(account.complete_through, 5);
}

}  // namespace
}  // namespace plumbline::agent
