// Tests the framed log: round trips, reopening, a reader parallel to a writer, a full disk.
#include "base/framed_log.h"

#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "tests/base/framed_log_test_util.h"

namespace plumbline {
namespace {

using Result = FramedLogReader::Result;

TEST(FramedLog, GivesBackWhatWasAppended) {
  TempFolder folder;
  const std::string path = folder.File("log");
  WriteLog(path, SamplePayloads());
  const Reading reading = ReadLog(path);
  EXPECT_EQ(reading.payloads, SamplePayloads());
  EXPECT_EQ(reading.end, Result::kEnd);
  EXPECT_TRUE(FramedLogReader::Recognise(ReadFile(path)));
  EXPECT_FALSE(FramedLogReader::Recognise("{\"step\": 1}"));
  EXPECT_FALSE(FramedLogReader::Recognise(""));
}

TEST(FramedLog, CompressesWhatGetsSmaller) {
  TempFolder folder;
  const std::string big(100000, 'z');
  auto packed = FramedLogWriter::Open(folder.File("packed"));
  FramedLogOptions raw_options;
  raw_options.compress = false;
  auto raw = FramedLogWriter::Open(folder.File("raw"), raw_options);
  ASSERT_TRUE(packed.ok() && raw.ok());
  ASSERT_TRUE((*packed)->Append(FrameType::kBatch, big).ok());
  ASSERT_TRUE((*raw)->Append(FrameType::kBatch, big).ok());
  EXPECT_LT((*packed)->size_bytes(), 1000u);
  EXPECT_GT((*raw)->size_bytes(), 100000u);
  EXPECT_EQ(ReadLog(folder.File("packed")).payloads, std::vector<std::string>{big});
  EXPECT_EQ(ReadLog(folder.File("raw")).payloads, std::vector<std::string>{big});
}

TEST(FramedLog, SeveralFramesInPiecesAreOneWrite) {
  TempFolder folder;
  auto writer = FramedLogWriter::Open(folder.File("log"));
  ASSERT_TRUE(writer.ok());
  const std::string big(5000, 'z');
  const std::vector<std::string_view> first = {"a", "", "bc"}, second = {big, "end"};
  const FrameToAppend frames[] = {
      {FrameType::kBatch, first}, {FrameType::kBatch, {}}, {FrameType::kBatch, second}};
  ASSERT_TRUE((*writer)->AppendAll(frames).ok());
  ASSERT_TRUE((*writer)->AppendAll({}).ok());
  ASSERT_TRUE((*writer)->Append(FrameType::kBatch, "single").ok());
  EXPECT_EQ((*writer)->size_bytes(), std::filesystem::file_size(folder.File("log")));
  EXPECT_EQ(ReadLog(folder.File("log")).payloads,
            (std::vector<std::string>{"abc", "", big + "end", "single"}));
}

TEST(FramedLog, SizeIsTheFilesSize) {
  TempFolder folder;
  auto writer = FramedLogWriter::Open(folder.File("log"));
  ASSERT_TRUE(writer.ok());
  for (const std::string& p : SamplePayloads()) {
    ASSERT_TRUE((*writer)->Append(FrameType::kRecordHeader, p).ok());
    EXPECT_EQ((*writer)->size_bytes(), std::filesystem::file_size(folder.File("log")));
  }
  EXPECT_TRUE((*writer)->Sync().ok());
}

TEST(FramedLog, ReopensAndGoesOn) {
  TempFolder folder;
  const std::string path = folder.File("log");
  WriteLog(path, {"one", "two"});
  WriteLog(path, {"three"});
  EXPECT_EQ(ReadLog(path).payloads, (std::vector<std::string>{"one", "two", "three"}));
}

TEST(FramedLog, ReopeningCutsATornTail) {
  TempFolder folder;
  const std::string path = folder.File("log");
  WriteLog(path, {"one", "two"});
  const std::string whole = ReadFile(path);
  WriteLog(path, {std::string(200, 'q')});
  const std::string longer = ReadFile(path);
  for (size_t size = 0; size <= longer.size(); ++size) {
    WriteFile(path, longer.substr(0, size));
    WriteLog(path, {"new"});
    const Reading reading = ReadLog(path);
    ASSERT_EQ(reading.end, Result::kEnd) << size;
    ASSERT_EQ(reading.payloads.back(), "new");
    const size_t kept = reading.payloads.size() - 1;
    ASSERT_EQ(kept, size == longer.size() ? 3u : size >= whole.size() ? 2u : kept) << size;
  }
}

TEST(FramedLog, TreatsATailOfZerosAsTorn) {
  TempFolder folder;
  const std::string path = folder.File("log");
  WriteLog(path, {"one"});
  WriteFile(path, ReadFile(path) + std::string(10000, '\0'));
  const Reading reading = ReadLog(path);
  EXPECT_EQ(reading.end, Result::kTornTail);
  EXPECT_EQ(reading.payloads.size(), 1u);
  WriteLog(path, {"two"});
  EXPECT_EQ(ReadLog(path).payloads, (std::vector<std::string>{"one", "two"}));
}

TEST(FramedLog, RefusesToAppendToADamagedOrForeignFile) {
  TempFolder folder;
  const std::string path = folder.File("log");
  WriteLog(path, {"one", "two"});
  std::string bytes = ReadFile(path);
  bytes[16 + 20] = static_cast<char>(bytes[16 + 20] ^ 1);  // first payload byte
  WriteFile(path, bytes);
  const auto damaged = FramedLogWriter::Open(path);
  EXPECT_EQ(damaged.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(ReadFile(path), bytes) << "left alone";

  WriteFile(folder.File("text"), "a text file of some length");
  EXPECT_EQ(FramedLogWriter::Open(folder.File("text")).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ReadFile(folder.File("text")), "a text file of some length");
  EXPECT_EQ(FramedLogReader::Open(folder.File("text")).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(FramedLogReader::Open(folder.File("absent")).status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_FALSE(FramedLogReader::Open(folder.File("")).ok());
  EXPECT_FALSE(FramedLogWriter::Open(folder.File("no/such/folder")).ok());
}

TEST(FramedLog, BoundsPayloadsOnBothSides) {
  TempFolder folder;
  const std::string path = folder.File("log");
  FramedLogOptions small;
  small.max_payload = 1000;
  {
    auto writer = FramedLogWriter::Open(path, small);
    ASSERT_TRUE(writer.ok());
    EXPECT_TRUE((*writer)->Append(FrameType::kBatch, std::string(1000, 'a')).ok());
    EXPECT_EQ((*writer)->Append(FrameType::kBatch, std::string(1001, 'a')).code(),
              absl::StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(ReadLog(path, small).end, Result::kEnd);
  WriteLog(path, {std::string(5000, 'b')});  // compresses far below 1000 bytes
  const Reading reading = ReadLog(path, small);
  EXPECT_EQ(reading.end, Result::kDamaged);
  EXPECT_EQ(reading.payloads.size(), 1u);
  EXPECT_THAT(reading.error, testing::HasSubstr("a payload of at most 1000 bytes, found 5000"));
}

TEST(FramedLog, AReaderFollowsAWriter) {
  TempFolder folder;
  const std::string path = folder.File("log");
  constexpr int kFrames = 400;
  const auto payload = [](int n) { return std::to_string(n) + std::string(n * 7 % 3000, 'p'); };
  WriteFile(path, "");  // without a header
  auto reader = FramedLogReader::Open(path);
  ASSERT_TRUE(reader.ok()) << reader.status();
  FrameType type;
  std::string got;
  EXPECT_EQ((*reader)->Next(&type, &got), Result::kTornTail);
  const auto write = [&] {
    auto writer = FramedLogWriter::Open(path);
    ASSERT_TRUE(writer.ok());
    for (int n = 0; n < kFrames; ++n) {
      ASSERT_TRUE((*writer)->Append(FrameType::kBatch, payload(n)).ok());
    }
  };
  std::atomic<bool> over = false;
  std::jthread writing([&] {
    write();
    over = true;
  });
  for (int n = 0; n < kFrames;) {
    const bool all_there = over;  // set before the read: nothing comes after it
    const Result result = (*reader)->Next(&type, &got);
    ASSERT_NE(result, Result::kDamaged) << (*reader)->error();
    if (result != Result::kFrame) {
      ASSERT_FALSE(all_there) << "only " << n << " frames";
      std::this_thread::yield();
      continue;
    }
    ASSERT_EQ(got, payload(n));
    ++n;
  }
  writing.join();
  EXPECT_EQ((*reader)->Next(&type, &got), Result::kEnd);
}

// Simulates a full disk with a file size limit: the kernel writes up to it, then refuses.
class SizeLimit {
 public:
  explicit SizeLimit(rlim_t bytes) {
    previous_signal_ = signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &previous_);
    rlimit limit = previous_;
    limit.rlim_cur = bytes;
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~SizeLimit() {
    setrlimit(RLIMIT_FSIZE, &previous_);
    signal(SIGXFSZ, previous_signal_);
  }

 private:
  rlimit previous_{};
  void (*previous_signal_)(int);
};

TEST(FramedLog, AFailedAppendLeavesWholeFramesAndRecovers) {
  TempFolder folder;
  const std::string path = folder.File("log");
  FramedLogOptions raw;
  raw.compress = false;
  auto writer = FramedLogWriter::Open(path, raw);
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE((*writer)->Append(FrameType::kBatch, "kept").ok());
  const uint64_t before = (*writer)->size_bytes();
  {
    const SizeLimit limit(before + 100);
    const absl::Status status = (*writer)->Append(FrameType::kBatch, std::string(5000, 'n'));
    EXPECT_FALSE(status.ok());
    // All of several frames or none, although the first alone would fit.
    const std::string big(5000, 'n');
    const std::string_view small_part = "s", big_part = big;
    const FrameToAppend several[] = {{FrameType::kBatch, {&small_part, 1}},
                                     {FrameType::kBatch, {&big_part, 1}}};
    EXPECT_FALSE((*writer)->AppendAll(several).ok());
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr(path));
    EXPECT_EQ((*writer)->size_bytes(), before);
    EXPECT_EQ(std::filesystem::file_size(path), before);
    EXPECT_EQ(ReadLog(path).end, Result::kEnd);
    EXPECT_TRUE((*writer)->Append(FrameType::kBatch, "fits").ok());
  }
  ASSERT_TRUE((*writer)->Append(FrameType::kBatch, std::string(5000, 'm')).ok());
  EXPECT_EQ(ReadLog(path).payloads,
            (std::vector<std::string>{"kept", "fits", std::string(5000, 'm')}));
}

}  // namespace
}  // namespace plumbline
