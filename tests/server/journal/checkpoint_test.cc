// Checkpoint files: complete or absent.
#include <gmock/gmock.h>

#include <filesystem>

#include "server/journal/checkpoint_file.h"
#include "server/judge/checkpoint_pieces.h"
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

// A checkpoint in pieces, as a copy of the process sends it, gives the same result for all cuts.
TEST_F(CheckpointFileTest, PiecesMakeTheSameFile) {
  Checkpoint checkpoint = At(5, std::string(3000, 'e'));
  checkpoint.parts["big"].resize(5u << 20, 'y');
  std::string sent;
  CheckpointSender sender([&](std::string_view bytes) { sent.append(bytes); });
  sender.Head(checkpoint.entry, checkpoint.event, checkpoint.unix_ns);
  for (const auto& [name, bytes] : checkpoint.parts) {
    sender.Part(name, std::string_view(bytes).substr(0, bytes.size() / 3));
    sender.Part(name, std::string_view(bytes).substr(bytes.size() / 3));
  }
  for (const size_t cut : {size_t{4099}, size_t{65536}, sent.size()}) {
    CheckpointWriter writer(folder_.path(), "0.1.0");
    CheckpointReceiver receiver(&writer);
    for (size_t at = 0; at < sent.size(); at += cut)
      receiver.Take(std::string_view(sent).substr(at, cut));
    EXPECT_TRUE(receiver.whole());
    ASSERT_TRUE(writer.Finish().ok());
    const auto read = ReadCheckpoint((*ListCheckpoints(folder_.path()))[0].path);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->entry, 5u);
    EXPECT_EQ(read->event, 8u);
    EXPECT_EQ(read->unix_ns, 42);
    EXPECT_EQ(read->parts, checkpoint.parts);
  }
  CheckpointWriter writer(folder_.path(), "0.1.0");
  CheckpointReceiver receiver(&writer);
  receiver.Take(std::string_view(sent).substr(0, sent.size() - 1));
  EXPECT_FALSE(receiver.whole());
}

TEST_F(CheckpointFileTest, OneThatIsNotFinishedLeavesNothing) {
  ASSERT_TRUE(Write(5).ok());
  {
    CheckpointWriter writer(folder_.path(), "0.1.0");
    writer.Head(9, 9, 1);
    writer.Part("engine", "half");
  }
  const auto list = ListCheckpoints(folder_.path());
  ASSERT_THAT(*list, SizeIs(1));
  EXPECT_EQ((*list)[0].entry, 5u);
  EXPECT_FALSE(std::filesystem::exists(folder_.path() + "/unfinished"));
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
