// Checkpoint files: whole or not there.
#include <gmock/gmock.h>

#include "server/journal/checkpoint_file.h"
#include "tests/server/faults/disk_faults.h"
#include "tests/server/journal/support.h"

namespace plumbline::server {
namespace {

using testing::SizeIs;

Checkpoint At(uint64_t entry, const std::string& text) {
  Checkpoint checkpoint;
  checkpoint.entry = entry;
  checkpoint.event = entry + 3;
  checkpoint.unix_ns = 42;
  checkpoint.parts = {{"engine", text}, {"server", ""}, {"big", std::string(40u << 20, 'z')}};
  return checkpoint;
}

class CheckpointFileTest : public testing::Test {
 protected:
  ~CheckpointFileTest() override { test::SetDiskFault(test::DiskFault::kNone); }
  absl::Status Write(uint64_t entry) {
    return WriteCheckpoint(folder_.path(), "0.1.0", At(entry, std::string(300, 'e')));
  }
  JournalFolder folder_;
};

TEST_F(CheckpointFileTest, GivesBackWhatWasWritten) {
  ASSERT_TRUE(Write(5).ok());
  const auto list = ListCheckpoints(folder_.path());
  ASSERT_THAT(*list, SizeIs(1));
  const auto read = ReadCheckpoint((*list)[0].path);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->entry, 5u);
  EXPECT_EQ(read->event, 8u);
  EXPECT_EQ(read->unix_ns, 42);
  EXPECT_EQ(read->parts, At(5, std::string(300, 'e')).parts);
}

TEST_F(CheckpointFileTest, KeepsTheTwoNewest) {
  for (const uint64_t entry : {7, 8, 9, 10}) ASSERT_TRUE(Write(entry).ok());
  const auto list = ListCheckpoints(folder_.path());
  ASSERT_THAT(*list, SizeIs(2));
  EXPECT_EQ((*list)[0].entry, 10u);
  EXPECT_EQ((*list)[1].entry, 9u);
}

TEST_F(CheckpointFileTest, ACutOrDamagedFileIsNone) {
  Checkpoint small = At(5, "text");
  small.parts.erase("big");
  ASSERT_TRUE(WriteCheckpoint(folder_.path(), "0.1.0", small).ok());
  const std::string path = (*ListCheckpoints(folder_.path()))[0].path;
  const std::string whole = ReadFile(path);
  for (size_t size = 0; size < whole.size(); ++size) {
    WriteFile(path, whole.substr(0, size));
    ASSERT_FALSE(ReadCheckpoint(path).ok()) << size;
    std::string bad = whole;
    bad[size] = static_cast<char>(bad[size] ^ 4);
    WriteFile(path, bad);
    const auto read = ReadCheckpoint(path);
    ASSERT_FALSE(read.ok()) << size;
  }
}

TEST_F(CheckpointFileTest, ADiskThatRefusesLeavesTheOlderOnes) {
  ASSERT_TRUE(Write(5).ok());
  for (const auto fault :
       {test::DiskFault::kFull, test::DiskFault::kSync, test::DiskFault::kWrite}) {
    test::SetDiskFault(fault);
    EXPECT_FALSE(Write(6).ok());
    test::SetDiskFault(test::DiskFault::kNone);
    const auto list = ListCheckpoints(folder_.path());
    ASSERT_FALSE(list->empty());
    EXPECT_TRUE(ReadCheckpoint(list->back().path).ok());
    EXPECT_EQ(list->back().entry, 5u);
  }
  ASSERT_TRUE(Write(7).ok());
}

}  // namespace
}  // namespace plumbline::server
