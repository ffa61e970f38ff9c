// Damages the data directory before plumbd starts: frames that were cut, frames with correct
// checksums and false contents, foreign checkpoints. plumbd must start, or report the damage and
// its place. It must not crash, or allocate the amount of memory that a file claims. Fixed seeds;
// PLUMB_LONG=1: for minutes.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "base/framed_log.h"
#include "plumbline/v1/journal.pb.h"
#include "server/journal/checkpoint_file.h"
#include "server/journal/entry.h"
#include "server/journal/journal_reader.h"
#include "server/journal/segment_rewrite.h"
#include "server/journal/segments.h"
#include "tests/server/ingest/message_fuzz.h"
#include "tests/server/support.h"

namespace plumbline::server {
namespace {

namespace fs = std::filesystem;
using test::DamageBytes;
using test::DamageFields;
using test::Rounds;

struct Frame {
  FrameType type;
  std::string payload;
};

std::vector<Frame> ReadFrames(const std::string& path) {
  std::vector<Frame> frames;
  auto reader = FramedLogReader::Open(path, JournalLogOptions());
  Frame frame;
  while (reader.ok() &&
         (*reader)->Next(&frame.type, &frame.payload) == FramedLogReader::Result::kFrame) {
    frames.push_back(frame);
  }
  return frames;
}

void WriteFrames(const std::string& path, const std::vector<Frame>& frames) {
  fs::remove(path);
  auto writer = FramedLogWriter::Open(path, JournalLogOptions());
  ASSERT_TRUE(writer.ok()) << writer.status();
  for (const Frame& frame : frames) ASSERT_TRUE((*writer)->Append(frame.type, frame.payload).ok());
}

template <typename Message>
std::string Lie(std::string_view bytes, std::mt19937& random) {
  Message message;
  message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
  DamageFields(&message, random);
  return message.SerializePartialAsString();
}

std::string LieOf(FrameType type, std::string_view body, std::mt19937& random) {
  switch (type) {
    case FrameType::kJournalHeader:
      return Lie<v1::JournalHeader>(body, random);
    case FrameType::kJournalStreams:
      return Lie<v1::JournalStreams>(body, random);
    case FrameType::kJournalBatch:
      return Lie<v1::Batch>(body, random);
    case FrameType::kJournalSkip:
      return Lie<v1::JournalSkip>(body, random);
    case FrameType::kJournalEvent:
      return Lie<v1::JournalEvent>(body, random);
    default:
      return DamageBytes(std::string(body), random);
  }
}

// Changes the content; the checksum will be correct.
void Damage(Frame* frame, std::mt19937& random) {
  const size_t prefix = IsEntry(frame->type) ? EntryPrefix::kSize : 0;
  if (random() % 4 == 0 || frame->payload.size() < prefix) {
    frame->payload = DamageBytes(frame->payload, random);
    return;
  }
  const std::string_view body = std::string_view(frame->payload).substr(prefix);
  frame->payload = frame->payload.substr(0, prefix) + LieOf(frame->type, body, random);
}

// A data directory with a journal of every kind of entry, and checkpoints.
class DataFuzz : public testing::Test {
 protected:
  void SetUp() override {
    std::ofstream(folder_.File("toml"))
        << "[ingest]\nack_seconds = 0.02\n[journal]\nsync = 'never'\n"
           "[checkpoint]\nbytes = 1\nseconds = 0.05\n";
    test::Plumbd server(Options("good"));
    ASSERT_FALSE(server.address().empty()) << server.process().errors();
    const v1::Source source = test::SourceOf("fuzz");
    test::AgentStream agent(server, 7, {source});
    for (int64_t step = 1; step <= 12; ++step) {
      v1::Batch batch = step % 2 ? test::LeakingStep(source, step) : test::ScalarStep(source, step);
      if (step == 5) batch.mutable_evidence(0)->clear_site();  // refused: a skip
      if (step == 6) {
        v1::SeriesSet& set = *batch.add_series_sets();
        set.set_id(3);
        set.add_sites()->set_op("a");
        set.add_sites()->set_op("b");
        v1::SeriesRows& rows = *batch.add_series();
        rows.set_set(3);
        rows.add_source(0);
        rows.add_step(step);
        rows.add_value(1);
        rows.add_value(2);
      }
      agent.Send(std::move(batch), static_cast<uint64_t>(step));
      ASSERT_TRUE(agent.Acknowledged(static_cast<uint64_t>(step)));
    }
    agent.Send(test::Goodbye(source, 12), 13);
    ASSERT_TRUE(agent.Acknowledged(13));
    ASSERT_TRUE(test::Eventually([&] {
      const auto names = ListCheckpoints(folder_.File("good/checkpoint"));
      return names.ok() && !names->empty() && (*names)[0].entry >= 13;
    }));
    server.process().Signal(SIGKILL);  // without a stop: the files are as after a crash
    server.process().Wait();
  }

  std::vector<std::string> Options(const std::string& data) const {
    return {"--config", folder_.File("toml"), "--data", folder_.File(data), "--log-level", "error"};
  }

  // Starts on a copy that `damage` has changed. plumbd must serve, or end with a message.
  void TryWith(const std::function<void(const std::string& data)>& damage, unsigned seed) {
    fs::remove_all(folder_.File("bad"));
    fs::copy(folder_.File("good"), folder_.File("bad"), fs::copy_options::recursive);
    damage(folder_.File("bad"));
    test::Plumbd server(Options("bad"));
    if (server.address().empty()) {
      const int status = server.process().Wait();
      EXPECT_TRUE(status == 1 || status == 2)
          << "seed " << seed << ": " << status << server.process().errors();
      EXPECT_NE(server.process().errors(), "") << "seed " << seed;
      return;
    }
    ++served_;
    const v1::Source source = test::SourceOf("after");
    {
      test::AgentStream agent(server, 99, {source});
      agent.Send(test::LeakingStep(source, 1), 1);
      EXPECT_TRUE(agent.Acknowledged(1)) << "seed " << seed << server.process().errors();
    }
    EXPECT_EQ(server.Stop(), 0) << "seed " << seed << server.process().errors();
  }

  void TrySegments(const std::function<void(std::vector<Frame>*, std::mt19937&)>& damage);

  // Returns the files of a directory with this ending, in order.
  static std::vector<std::string> Files(const std::string& directory, const std::string& end) {
    std::vector<std::string> files;
    for (const auto& entry : fs::directory_iterator(directory)) {
      if (entry.path().extension() == end) files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end());
    return files;
  }

  test::TempFolder folder_;
  int served_ = 0;
};

// Each round damages every segment's frames; some copies have no checkpoints or store, so that more
// is read again.
void DataFuzz::TrySegments(const std::function<void(std::vector<Frame>*, std::mt19937&)>& damage) {
  const auto rounds = static_cast<unsigned>(Rounds(10, 600));
  for (unsigned seed = 0; seed < rounds; ++seed) {
    TryWith(
        [&](const std::string& data) {
          std::mt19937 random(seed);
          // Without checkpoints everything is judged again.
          if (seed % 2 == 0) fs::remove_all(data + "/checkpoint");
          if (seed % 3 == 0) fs::remove(data + "/store.sqlite");
          for (const std::string& path : Files(data + "/journal", ".plj")) {
            std::vector<Frame> frames = ReadFrames(path);
            ASSERT_FALSE(frames.empty());
            damage(&frames, random);
            WriteFrames(path, frames);
          }
        },
        seed);
  }
  EXPECT_GT(served_, 0);
}

TEST_F(DataFuzz, SegmentsOfTheJournal) {
  TrySegments([](std::vector<Frame>* frames, std::mt19937& random) {
    for (uint32_t i = 0, n = 1 + random() % 4; i < n; ++i) {
      Damage(&(*frames)[random() % frames->size()], random);
    }
  });
}

// The same with packed segments: the newest is never packed, so the test packs them.
TEST_F(DataFuzz, PackedSegments) {
  const auto segments = ListSegments(folder_.File("good/journal"));
  ASSERT_TRUE(segments.ok());
  for (const Segment& segment : *segments) {
    auto reader = JournalReader::Open(folder_.File("good/journal"), segment.first);
    StoredEntry entry;
    uint64_t last = 0;
    while ((*reader)->Next(&entry) != JournalReader::Result::kEnd) last = entry.prefix.number;
    ASSERT_TRUE(RewriteSegment(segment, last, {}).ok());
    fs::rename(RewritePath(segment), segment.path);
  }
  TrySegments([](std::vector<Frame>* frames, std::mt19937& random) {
    for (Frame& frame : *frames) {
      if (frame.type == FrameType::kJournalPacked) Damage(&frame, random);
    }
  });
}

TEST_F(DataFuzz, Checkpoints) {
  const auto rounds = static_cast<unsigned>(Rounds(10, 600));
  for (unsigned seed = 0; seed < rounds; ++seed) {
    TryWith(
        [seed](const std::string& data) {
          std::mt19937 random(seed);
          for (const std::string& path : Files(data + "/checkpoint", ".plc")) {
            std::vector<Frame> frames = ReadFrames(path);
            ASSERT_FALSE(frames.empty());
            for (uint32_t i = 0, n = 1 + random() % 3; i < n; ++i) {
              Frame& frame = frames[random() % frames.size()];
              // The damage is after the name of the part, so that the reader of this part gets it.
              const size_t name = frame.payload.find('\0') + 1;
              frame.payload =
                  frame.payload.substr(0, name) + DamageBytes(frame.payload.substr(name), random);
            }
            WriteFrames(path, frames);
          }
        },
        seed);
  }
  EXPECT_GT(served_, 0);
}

TEST_F(DataFuzz, RawBytes) {
  const auto rounds = static_cast<unsigned>(Rounds(6, 400));
  for (unsigned seed = 0; seed < rounds; ++seed) {
    TryWith(
        [seed](const std::string& data) {
          std::mt19937 random(seed);
          std::vector<std::string> files = Files(data + "/journal", ".plj");
          for (std::string& path : Files(data + "/checkpoint", ".plc")) files.push_back(path);
          for (const char* name : {"store.sqlite", "gaps"}) {
            if (fs::is_regular_file(data + "/" + name)) files.push_back(data + "/" + name);
          }
          const std::string& path = files[random() % files.size()];
          test::WriteFile(path, DamageBytes(test::ReadFile(path), random));
        },
        seed);
  }
  EXPECT_GT(served_, 0);
}

}  // namespace
}  // namespace plumbline::server
