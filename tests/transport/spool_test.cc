// The spool of one stream: appended batches are read back in order, by its own process or a later
// one, however the first ended.
#include "transport/spool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "base/clock.h"
#include "tests/agent/core/support.h"
#include "tests/transport/support.h"

namespace plumbline::transport {
namespace {

namespace fs = std::filesystem;
using test::TempFolder;
using testing::FullDisk;
using testing::SourceOf;
using testing::StepBatch;

constexpr uint64_t kStream = 0xfeedface12345678;

std::unique_ptr<Spool> NewSpool(const TempFolder& dir, uint64_t bytes = 16 << 20) {
  auto spool = Spool::Create(dir.path(), SourceOf(), kStream, {bytes, "1.2.3"});
  EXPECT_TRUE(spool.ok()) << spool.status();
  return *std::move(spool);
}

// Appends batches 1…n with one item each, as steps.
void Fill(Spool* spool, uint64_t first, uint64_t last, size_t sample_bytes = 0) {
  for (uint64_t n = first; n <= last; ++n) {
    ASSERT_TRUE(spool->Append(n, Seal(StepBatch(static_cast<int64_t>(n), 1, sample_bytes))).ok());
  }
}

std::vector<uint64_t> ReadAll(Spool* spool) {
  std::vector<uint64_t> sequences;
  for (Spool::Read r = spool->Next(); r.kind != Spool::Read::Kind::kEnd; r = spool->Next()) {
    EXPECT_EQ(r.kind, Spool::Read::Kind::kBatch);
    EXPECT_EQ(Parsed(r.batch).evidence(0).step(), static_cast<int64_t>(r.sequence));
    EXPECT_EQ(Parsed(r.batch).stream_id(), 0u) << "as it was sealed";
    sequences.push_back(r.sequence);
  }
  return sequences;
}

std::vector<uint64_t> Range(uint64_t first, uint64_t last) {
  std::vector<uint64_t> out;
  for (uint64_t n = first; n <= last; ++n) out.push_back(n);
  return out;
}

std::string LastSegment(const std::string& path) { return FindSegments(path).back().path; }

// A rank that searches for leftover spools while another process of it starts.
TEST(Spool, IsNotTakenAwayWhileItIsMade) {
  TempFolder dir;
  std::jthread stream_sender([&](std::stop_token stop) {
    while (!stop.stop_requested()) {
      for (const FoundSpool& found : FindSpools(dir.path()))
        EXPECT_FALSE(Spool::Adopt(found.path, {}).ok());
    }
  });
  for (uint64_t stream = 1; stream <= 2000; ++stream) {
    const auto spool = Spool::Create(dir.path(), SourceOf(), stream, {});
    ASSERT_TRUE(spool.ok()) << spool.status();
    ASSERT_TRUE(fs::exists((*spool)->path()));
  }
  stream_sender.request_stop();
  stream_sender.join();
  EXPECT_TRUE(fs::is_empty(dir.path()));
}

TEST(Spool, IsReadBackWhileItGrows) {
  TempFolder dir;
  auto spool = NewSpool(dir);
  Fill(spool.get(), 1, 10);
  EXPECT_EQ(ReadAll(spool.get()), Range(1, 10));
  Fill(spool.get(), 11, 20);
  EXPECT_EQ(ReadAll(spool.get()), Range(11, 20));
  spool->SeekTo(7);
  EXPECT_EQ(ReadAll(spool.get()), Range(7, 20));
}

TEST(Spool, AProcessAdoptsTheSpoolOfADeadOne) {
  TempFolder dir;
  const std::string path = NewSpool(dir)->path();
  EXPECT_FALSE(fs::exists(path)) << "an empty spool has no file";
  {
    auto spool = NewSpool(dir, 2 << 20);
    Fill(spool.get(), 1, 400, 1000);  // several segments
    EXPECT_GT(FindSegments(path).size(), 2u);
    EXPECT_EQ(Spool::Adopt(path, {}).status().code(), absl::StatusCode::kFailedPrecondition);
  }
  auto adopted = Spool::Adopt(path, {});
  ASSERT_TRUE(adopted.ok()) << adopted.status();
  EXPECT_EQ((*adopted)->stream_id(), kStream);
  EXPECT_EQ((*adopted)->source().rank(), 3u);
  EXPECT_EQ((*adopted)->last_sequence(), 400u);
  EXPECT_FALSE((*adopted)->damaged_end());
  EXPECT_EQ(ReadAll(adopted->get()), Range(1, 400));
  (*adopted)->Acknowledge(400);
  adopted->reset();
  EXPECT_FALSE(fs::exists(path));
}

TEST(Spool, SegmentsGoWhenTheyAreAcknowledged) {
  TempFolder dir;
  auto spool = NewSpool(dir, 2 << 20);
  Fill(spool.get(), 1, 400, 1000);
  const size_t before = FindSegments(spool->path()).size();
  const uint64_t bytes = spool->bytes();
  spool->Acknowledge(300);
  EXPECT_LT(FindSegments(spool->path()).size(), before);
  EXPECT_LT(spool->bytes(), bytes);
  uint64_t on_disk = 0;
  for (const FoundSegment& s : FindSegments(spool->path())) on_disk += s.bytes;
  EXPECT_EQ(spool->bytes(), on_disk);
  spool->SeekTo(301);
  EXPECT_EQ(ReadAll(spool.get()), Range(301, 400));
}

TEST(Spool, HasABoundAndReportsIt) {
  TempFolder dir;
  auto spool = NewSpool(dir, 1 << 20);
  uint64_t n = 0;
  bool crowded = false;
  for (;; ++n) {
    const SealedBatch batch = Seal(StepBatch(static_cast<int64_t>(n + 1), 1, 10'000));
    crowded |= spool->Crowded(batch.body->size());
    const absl::Status s = spool->Append(n + 1, batch);
    if (s.ok()) continue;
    EXPECT_EQ(s.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_STREQ(spool->refusal(), "spool-full");
    break;
  }
  EXPECT_TRUE(crowded);
  EXPECT_GT(n, 80u);
  EXPECT_LE(spool->bytes(), 1u << 20);
  EXPECT_EQ(ReadAll(spool.get()), Range(1, n));
  spool->Acknowledge(n / 2);
  EXPECT_TRUE(spool->Append(n + 1, Seal(StepBatch(static_cast<int64_t>(n + 1), 1))).ok());
}

TEST(Spool, ATornTailEndsAtTheLastWholeBatch) {
  TempFolder dir;
  std::string path;
  {
    auto spool = NewSpool(dir);
    path = spool->path();
    Fill(spool.get(), 1, 4);
  }
  const std::string segment = LastSegment(path);
  const auto size = fs::file_size(segment);
  const std::string whole = dir.File("whole");
  fs::copy_file(segment, whole);
  uint64_t longest = 0;
  for (uint64_t bytes = 0; bytes <= size; ++bytes) {
    fs::copy_file(whole, segment, fs::copy_options::overwrite_existing);
    fs::resize_file(segment, bytes);
    auto adopted = Spool::Adopt(path, {});
    if (!adopted.ok()) {  // it does not even have a header
      EXPECT_LT(bytes, 120u) << adopted.status();
      continue;
    }
    EXPECT_FALSE((*adopted)->damaged_end()) << bytes;
    const auto read = ReadAll(adopted->get());
    EXPECT_EQ(read, Range(1, (*adopted)->last_sequence())) << bytes;
    EXPECT_GE(read.size(), longest);
    longest = std::max<uint64_t>(longest, read.size());
    if (read.empty()) break;  // otherwise its destructor would delete it
  }
}

TEST(Spool, DamageCostsItsSegmentAndIsCounted) {
  TempFolder dir;
  std::string path;
  {
    auto spool = NewSpool(dir, 2 << 20);
    path = spool->path();
    Fill(spool.get(), 1, 400, 1000);
  }
  const auto segments = FindSegments(path);
  ASSERT_GT(segments.size(), 2u);
  {
    std::fstream file(segments[1].path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(segments[1].bytes / 2));
    file.put('\x5a').put('\xa5').put('\x5a');
  }
  auto adopted = Spool::Adopt(path, {});
  ASSERT_TRUE(adopted.ok()) << adopted.status();
  uint64_t items = 0, lost = 0;
  for (Spool::Read r = (*adopted)->Next(); r.kind != Spool::Read::Kind::kEnd;
       r = (*adopted)->Next()) {
    if (r.kind == Spool::Read::Kind::kBatch) {
      items += r.batch.items;
      continue;
    }
    lost += r.items;
    EXPECT_EQ(r.through, segments[2].first - 1);
  }
  EXPECT_GT(lost, 0u);
  EXPECT_LT(lost, segments[2].first - segments[1].first);
  EXPECT_EQ(items + lost, 400u);
}

TEST(Spool, AFullDiskRefusesAndIsTriedAgain) {
  TempFolder dir;
  auto spool = NewSpool(dir);
  Fill(spool.get(), 1, 3);
  const uint64_t before = MonotonicNs();
  {
    const FullDisk full(fs::file_size(LastSegment(spool->path())) + 20);
    EXPECT_FALSE(spool->Append(4, Seal(StepBatch(4, 1))).ok());
    EXPECT_STREQ(spool->refusal(), "spool-write");
  }
  const bool appended = spool->Append(4, Seal(StepBatch(4, 1))).ok();
  if (MonotonicNs() - before < 1'000'000'000) {  // otherwise the machine was suspended
    EXPECT_FALSE(appended) << "not within the same second";
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  Fill(spool.get(), appended ? 5 : 4, 6);
  EXPECT_EQ(ReadAll(spool.get()), Range(1, 6));
}

TEST(Spool, StatesTheSeriesSetsOfWhatWasDeleted) {
  TempFolder dir;
  std::string path;
  {
    auto spool = NewSpool(dir, 2 << 20);
    path = spool->path();
    v1::Batch batch = StepBatch(1, 1);
    batch.add_series_sets()->set_id(77);
    ASSERT_TRUE(spool->Append(1, Seal(batch)).ok());
    Fill(spool.get(), 2, 400, 1000);
    spool->Acknowledge(300);
  }
  auto adopted = Spool::Adopt(path, {});
  ASSERT_TRUE(adopted.ok());
  ASSERT_EQ((*adopted)->series_sets().size(), 1);
  EXPECT_EQ((*adopted)->series_sets().Get(0).id(), 77u);
}

// It holds names, losses and raw rows, and a trainer's umask is chosen for checkpoints.
TEST(Spool, IsItsOwnersAloneWhateverTheUmask) {
  TempFolder dir;
  const mode_t mask = umask(0);
  auto spool = NewSpool(dir, 2 << 20);
  Fill(spool.get(), 1, 400, 1000);  // some segments
  umask(mask);
  ASSERT_GT(FindSegments(spool->path()).size(), 1u);
  const auto mode = [](const std::string& path) {
    struct stat info {};
    EXPECT_EQ(stat(path.c_str(), &info), 0) << path;
    return info.st_mode & 0777u;
  };
  EXPECT_EQ(mode(spool->path()), 0700u);
  size_t files = 0;
  for (const auto& entry : fs::directory_iterator(spool->path())) {
    EXPECT_EQ(mode(entry.path()), 0600u) << entry.path();
    ++files;
  }
  EXPECT_EQ(files, FindSegments(spool->path()).size() + 1);  // and the lock
}

TEST(Spool, AnUnusableDirectoryIsAnErrorThatNamesIt) {
  TempFolder dir;
  std::ofstream(dir.File("file")) << "x";
  const auto spool = Spool::Create(dir.File("file"), SourceOf(), kStream, {});
  ASSERT_FALSE(spool.ok());
  EXPECT_THAT(std::string(spool.status().message()), ::testing::HasSubstr(dir.File("file")));
}

}  // namespace
}  // namespace plumbline::transport
