// Rewriting segments with damage, disk faults, crashes, and concurrent removal.
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/server/journal/packed_journal.h"

namespace plumbline::server {
namespace {

using testing::HasSubstr;
using testing::Not;

class SegmentPackerFaults : public SegmentPackerTest {};

TEST_F(SegmentPackerFaults, ADamagedSegmentStaysAsItIs) {
  const auto segments = folder_.Segments();
  FlipByte(segments[1].path, 0.5);
  const std::string damaged = ReadFile(segments[1].path);
  const auto reported = Reported(folder_.path());
  ASSERT_NE(reported, reported_);
  EXPECT_EQ(Pack(), static_cast<int>(segments.size()) - 2);
  EXPECT_EQ(ReadFile(segments[1].path), damaged);
  EXPECT_EQ(Reported(folder_.path()), reported);
}

TEST_F(SegmentPackerFaults, ASegmentWithAMissingEntryStaysAsItIs) {
  const auto segments = folder_.Segments();
  // Simulates a cut tail: the last entries are missing.
  std::filesystem::resize_file(segments[1].path, std::filesystem::file_size(segments[1].path) - 5);
  const auto reported = Reported(folder_.path());
  EXPECT_EQ(Pack(), static_cast<int>(segments.size()) - 2);
  EXPECT_EQ(Reported(folder_.path()), reported);
}

TEST_F(SegmentPackerFaults, DamageToAPackedSegmentIsCountedExactly) {
  ASSERT_GT(Pack(), 0);
  const auto segments = folder_.Segments();
  FlipByte(segments[1].path, 0.7);
  const Everything all = ReadJournal(folder_.path());
  ASSERT_EQ(all.lost.size(), 1u);
  EXPECT_EQ(all.lost[0].first, segments[1].first);
  EXPECT_EQ(all.lost[0].last, segments[2].first - 1);
  EXPECT_THAT(all.lost[0].where, HasSubstr(segments[1].path + ": byte "));
  EXPECT_EQ(all.numbers.size() + segments[2].first - segments[1].first, 120u);
}

// A block with correct checksums and false contents.
TEST_F(SegmentPackerFaults, ABlockThatLiesIsALossWithItsPlace) {
  ASSERT_GT(Pack(), 0);
  const auto segments = folder_.Segments();
  auto in = FramedLogReader::Open(segments[1].path, JournalLogOptions());
  ASSERT_TRUE(in.ok());
  auto out = FramedLogWriter::Open(segments[1].path + ".new", JournalLogOptions());
  ASSERT_TRUE(out.ok());
  FrameType type;
  for (std::string payload; (*in)->Next(&type, &payload) == FramedLogReader::Result::kFrame;) {
    if (type == FrameType::kJournalPacked) payload[20] ^= 1;  // where its zstd frame begins
    ASSERT_TRUE((*out)->Append(type, payload).ok());
  }
  std::filesystem::rename(segments[1].path + ".new", segments[1].path);
  const Everything all = ReadJournal(folder_.path());
  ASSERT_EQ(all.lost.size(), 1u);
  EXPECT_EQ(all.lost[0].last - all.lost[0].first + 1, segments[2].first - segments[1].first);
  EXPECT_THAT(all.lost[0].where, HasSubstr("expected a packed block"));
}

// Entries that the next segment has, too: their commit failed half-way.
TEST_F(SegmentPackerFaults, VoidEntriesAreLeftOut) {
  const auto segments = folder_.Segments();
  std::string twice = ReadFile(segments[0].path);
  const std::string next = ReadFile(segments[1].path);
  auto reader = FramedLogReader::Open(segments[1].path, JournalLogOptions());
  FrameType type;
  std::string payload;
  uint64_t start = 0;
  do {
    start = (*reader)->offset();
    ASSERT_EQ((*reader)->Next(&type, &payload), FramedLogReader::Result::kFrame);
  } while (!IsEntry(type));
  twice += next.substr(start, (*reader)->offset() - start);
  WriteFile(segments[0].path, twice);
  ASSERT_EQ(Reported(folder_.path()), reported_);
  EXPECT_EQ(Pack(), static_cast<int>(segments.size()) - 1);
  EXPECT_EQ(Reported(folder_.path()), reported_);
  EXPECT_EQ(Pack(false), static_cast<int>(segments.size()) - 1);
  EXPECT_EQ(Reported(folder_.path()), reported_);
}

TEST_F(SegmentPackerFaults, ADiskThatRefusesChangesNothing) {
  using test::DiskFault;
  const auto before = Files();
  for (const DiskFault fault : {DiskFault::kFull, DiskFault::kSync, DiskFault::kWrite}) {
    test::SetDiskFault(fault);
    EXPECT_EQ(Pack(), 0);
    test::SetDiskFault(DiskFault::kNone);
    EXPECT_EQ(Files(), before);
  }
  EXPECT_GT(Pack(), 0);
  EXPECT_EQ(Reported(folder_.path()), reported_);
}

// The process ends before each call that writes, syncs or renames, in turn.
TEST_F(SegmentPackerFaults, ACrashAnywhereLeavesOneOfBoth) {
  const size_t segments = folder_.Segments().size();
  int crashes = 0;
  for (int nth = 1;; ++nth) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      test::DieAtCall(nth % 9 + 1);
      (void)Pack();
      _exit(0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status));
    ASSERT_EQ(Reported(folder_.path()), reported_) << "after call " << nth % 9 + 1;
    ASSERT_EQ(folder_.Segments().size(), segments);
    if (WEXITSTATUS(status) == 0) break;
    ASSERT_EQ(WEXITSTATUS(status), test::kDiedAtCall);
    ++crashes;
  }
  EXPECT_GE(crashes, 9);
  EXPECT_EQ(Pack(), 0) << "all were packed between the crashes";
  for (const auto& [name, bytes] : Files()) EXPECT_THAT(name, Not(HasSubstr(".rewrite")));
}

TEST_F(SegmentPackerFaults, WhatAFormerProcessDidNotFinishIsRemoved) {
  const auto before = Files();
  WriteFile(RewritePath(folder_.Segments()[1]), "half of it");
  WriteFile(RewritePath({77, SegmentPath(folder_.path(), 77)}), "of one that retention took");
  SegmentPacker packer(Options(), &files_);
  EXPECT_EQ(Files(), before);
}

// Retention removes a segment while it is rewritten: it stays removed.
TEST_F(SegmentPackerFaults, WhatIsTakenMeanwhileStaysGone) {
  const auto segments = folder_.Segments();
  PackerOptions options = Options();
  options.busy = [&] {
    if (std::filesystem::exists(RewritePath(segments[0]))) {
      std::filesystem::remove(segments[0].path);
    }
    return false;
  };
  EXPECT_EQ(SegmentPacker(options, &files_).Round(), static_cast<int>(segments.size()) - 2);
  const auto now = folder_.Segments();
  ASSERT_EQ(now.size(), segments.size() - 1);
  EXPECT_EQ(now[0].first, segments[1].first);
  EXPECT_FALSE(std::filesystem::exists(RewritePath(segments[0])));
}

}  // namespace
}  // namespace plumbline::server
