// Checks docs/operating.md: health that reports when nothing can be acknowledged, notifications to
// a service manager, a disk that does not fill, a foreign format that is refused before any file is
// changed, and a copy that can be restored.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>

#include "base/crc32c.h"
#include "base/framed_log.h"
#include "plumbline/v1/journal.pb.h"
#include "server/journal/entry.h"
#include "server/journal/segment_rewrite.h"
#include "server/journal/segments.h"
#include "server/process/health.h"
#include "tests/server/doors/support.h"
#include "tests/server/ingest/raw_call.h"
#include "tests/support/files.h"

namespace plumbline::test {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

class Operating : public testing::Test {
 protected:
  std::string Data() const { return folder_.File("data"); }
  std::string Journal() const { return Data() + "/journal"; }
  std::unique_ptr<Plumbd> Start(std::vector<std::string> options = {},
                                std::vector<std::string> environment = {}) const {
    options.insert(options.begin(), {"--data", Data(), "--http", "127.0.0.1:0"});
    return std::make_unique<Plumbd>(std::move(options), std::move(environment));
  }
  // Sends further steps of its ranks; returns once all are held.
  void Send(const Plumbd& server, uint64_t stream, uint64_t first, uint64_t last) const {
    AgentStream agent(server, stream, {source_}, first);
    for (uint64_t step = first; step <= last; ++step) {
      agent.Send(ScalarStep(source_, static_cast<int64_t>(step)), step);
    }
    ASSERT_TRUE(agent.Acknowledged(last));
  }
  // Returns every file in the data directory except the lock, with its bytes.
  std::map<std::string, std::string> Files() const {
    std::map<std::string, std::string> out;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(Data())) {
      const std::string path = entry.path();
      if (entry.is_regular_file() && entry.path().filename() != "lock") out[path] = ReadFile(path);
    }
    return out;
  }

  TempFolder folder_;
  const v1::Source source_ = SourceOf("run");
};

bool GrpcServes(const Plumbd& server) {
  // status: SERVING; the call itself is cancelled once that is read.
  return CallOnce(server.Channel(), "/grpc.health.v1.Health/Check", "").bytes ==
         std::string("\x08\x01", 2);
}

TEST_F(Operating, HealthStatesWhenNothingCanBeAcknowledged) {
  const std::string fault = folder_.Write("fault", "none 0");
  const auto server =
      Start({}, {"ASAN_OPTIONS=verify_asan_link_order=0",
                 std::string("LD_PRELOAD=") + PLUMB_FAULT_LIBRARY, "PLUMB_FAULT_FILE=" + fault});
  ASSERT_FALSE(server->address().empty()) << server->process().errors();
  const std::string http = HttpAddress(*server);
  EXPECT_THAT(HttpAnswer(http, "/healthz"), StartsWith("HTTP/1.1 200"));
  EXPECT_TRUE(GrpcServes(*server)) << server->process().errors();

  folder_.Write("fault.new", "full 0");
  std::filesystem::rename(folder_.File("fault.new"), fault);
  AgentStream agent(*server, 5, {source_});
  agent.Send(ScalarStep(source_, 1), 1);
  std::string stated;
  EXPECT_TRUE(Eventually([&] {
    stated = HttpAnswer(http, "/healthz");
    return stated.find("HTTP/1.1 503") == 0;
  }));
  EXPECT_THAT(stated, HasSubstr("not serving: "));
  EXPECT_TRUE(Eventually([&] { return !GrpcServes(*server); }));
  EXPECT_THAT(HttpAnswer(http, "/metrics"), HasSubstr("plumbline_serving 0\n"));

  folder_.Write("fault.new", "none 0");
  std::filesystem::rename(folder_.File("fault.new"), fault);
  EXPECT_TRUE(agent.Acknowledged(1));
  EXPECT_TRUE(Eventually([&] {
    return HttpAnswer(http, "/healthz").find("HTTP/1.1 200") == 0 && GrpcServes(*server);
  }));
  const std::string metrics = HttpAnswer(http, "/metrics");
  for (const char* name :
       {"plumbline_serving 1\n", "plumbline_disk_free_bytes ", "plumbline_disk_size_bytes ",
        "plumbline_journal_disk_bytes ", "plumbline_checkpoint_age_seconds ",
        "plumbline_checkpoint_behind_entries ", "plumbline_open_step_bytes "}) {
    EXPECT_THAT(metrics, HasSubstr(name));
  }
}

// Tests states that cannot be caused with a real disk or judge.
TEST(Health, NamesTheDiskAndTheCommitThatHangs) {
  std::chrono::nanoseconds writing{0};
  server::Health::Sources sources;
  sources.journal = [] { return absl::OkStatus(); };
  sources.writing = [&] { return writing; };
  sources.judging = [] { return std::chrono::nanoseconds(0); };
  EXPECT_TRUE(server::Health(sources).Serving().ok());
  sources.directory = "/proc";  // a file system without a free byte
  EXPECT_THAT(std::string(server::Health(sources).Serving().message()),
              HasSubstr("the disk of /proc has 0 MiB free"));
  sources.directory = "";
  writing = std::chrono::seconds(11);
  EXPECT_THAT(std::string(server::Health(sources).Serving().message()),
              HasSubstr("a commit of the journal takes 11 s"));
}

TEST(Health, AThreadThatStandsIsNotReportedAsWorking) {
  using std::chrono::milliseconds, std::chrono::seconds;
  const struct {
    absl::Status journal;
    std::chrono::nanoseconds writing, judging;
    bool gets_on;
  } cases[] = {
      {absl::OkStatus(), {}, {}, true},
      {absl::OkStatus(), {}, seconds(59), true},
      {absl::OkStatus(), {}, seconds(61), false},
      {absl::OkStatus(), seconds(61), {}, false},
      // A restart does not fix a disk for which the process waits.
      {absl::UnavailableError("full"), {}, seconds(61), true},
  };
  for (const auto& c : cases) {
    std::atomic<int> stated = 0;
    server::Health::Sources sources;
    sources.journal = [&] { return c.journal; };
    sources.writing = [&] { return c.writing; };
    sources.judging = [&] { return c.judging; };
    sources.gets_on = [&] { ++stated; };
    sources.period = milliseconds(1);
    {
      server::Health health(sources);
      if (c.gets_on) {
        EXPECT_TRUE(Eventually([&] { return stated > 0; }));
      }
      if (!c.gets_on) std::this_thread::sleep_for(milliseconds(50));
    }
    EXPECT_EQ(stated > 0, c.gets_on);
  }
}

// Acts like systemd.
TEST_F(Operating, AServiceManagerLearnsWhenItIsUpThatItWorksAndThatItStops) {
  const std::string path = folder_.File("notify");
  const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  sockaddr_un at{};
  at.sun_family = AF_UNIX;
  path.copy(at.sun_path, sizeof at.sun_path - 1);
  ASSERT_EQ(bind(fd, reinterpret_cast<const sockaddr*>(&at), sizeof at), 0);
  std::vector<std::string> heard;
  const auto hear = [&](const std::string& word) {
    return Eventually([&] {
      char text[256];
      for (ssize_t n; (n = recv(fd, text, sizeof text, 0)) > 0;) {
        heard.emplace_back(text, static_cast<size_t>(n));
      }
      return std::find(heard.begin(), heard.end(), word) != heard.end();
    });
  };
  for (const bool relay : {false, true}) {
    heard.clear();
    const std::vector<std::string> environment = {"NOTIFY_SOCKET=" + path, "WATCHDOG_USEC=400000"};
    Plumbd server(relay ? std::vector<std::string>{"--relay", "127.0.0.1:1"}
                        : std::vector<std::string>{"--data", Data()},
                  environment);
    ASSERT_FALSE(server.address().empty()) << server.process().errors();
    EXPECT_TRUE(hear("READY=1")) << relay;
    if (!relay) {
      EXPECT_TRUE(hear("STATUS=serving"));
    }
    heard.clear();
    EXPECT_TRUE(hear("WATCHDOG=1")) << relay;
    heard.clear();
    EXPECT_TRUE(hear("WATCHDOG=1")) << relay;  // repeatedly
    EXPECT_EQ(server.Stop(), 0);
    EXPECT_TRUE(hear("STOPPING=1")) << relay;
  }
  close(fd);
}

TEST_F(Operating, TheJournalHasABoundByDefaultAndItIsStated) {
  EXPECT_THAT(
      [&] {
        const auto server = Start();
        EXPECT_FALSE(server->address().empty());
        return server->process().errors();
      }(),
      HasSubstr("journal: its newest "));
  const std::string none = folder_.Write("none.toml", "[journal]\nkeep_bytes = 0\n");
  const auto server = Start({"--config", none});
  EXPECT_FALSE(server->address().empty());
  EXPECT_THAT(server->process().errors(), Not(HasSubstr("journal: its newest ")));
}

// Without root's right to raise the limit, the log states how to do it.
TEST_F(Operating, TooFewFilesAreRaisedOrStated) {
  const auto stated = [&](const std::string& limit, int max_streams) {
    const std::string toml = folder_.Write(
        "files.toml", "[ingest]\nmax_streams = " + std::to_string(max_streams) + "\n");
    Process server({"/bin/sh", "-c",
                    "ulimit " + limit +
                        "; exec setpriv --bounding-set=-sys_resource "
                        "--inh-caps=-sys_resource " PLUMBD_PROGRAM " --grpc 127.0.0.1:0 --http off "
                        "--config " +
                        toml});
    server.FirstLine();
    server.Signal(SIGTERM);
    server.Wait();
    return server.errors();
  };
  EXPECT_THAT(stated("-Sn 256", 1000), Not(HasSubstr("the limit of open files")));
  EXPECT_THAT(stated("-n 3000", 5000),
              HasSubstr("the limit of open files is 3000, enough for about 1976 streams, not for "
                        "ingest.max_streams = 5000: raise the hard limit to 6024 (LimitNOFILE="));
}

// Writes a journal of another build, newer or older: its header has another schema.
void Rewrite(const std::string& path, const std::string& schema) {
  auto in = FramedLogReader::Open(path, server::JournalLogOptions());
  ASSERT_TRUE(in.ok()) << in.status();
  const std::string fresh = path + ".rewritten";
  {
    auto out = FramedLogWriter::Open(fresh, server::JournalLogOptions());
    ASSERT_TRUE(out.ok());
    FrameType type;
    std::string payload;
    while ((*in)->Next(&type, &payload) == FramedLogReader::Result::kFrame) {
      if (type == FrameType::kJournalHeader) {
        v1::JournalHeader header;
        ASSERT_TRUE(header.ParseFromString(payload));
        header.set_schema(schema);
        header.set_tool_version("9.8.7");
        payload = header.SerializeAsString();
      }
      ASSERT_TRUE((*out)->Append(type, payload).ok());
    }
    ASSERT_TRUE((*out)->Sync().ok());
  }
  std::filesystem::rename(fresh, path);
}

TEST_F(Operating, AnotherFormatIsRefusedBeforeAnythingIsTouched) {
  {
    const auto server = Start();
    Send(*server, 5, 1, 20);
    server->process().Signal(SIGKILL);
  }
  const auto segments = server::ListSegments(Journal());
  ASSERT_TRUE(segments.ok());
  ASSERT_EQ(segments->size(), 1u);
  const std::string path = segments->front().path;
  // The end of the journal is torn, as after a kill. Code that does not know the format would cut
  // it off.
  const std::string tail = "half a frame of another build";
  const auto refused = [&](const std::string& what) {
    const auto before = Files();
    Process server({PLUMBD_PROGRAM, "--data", Data(), "--grpc", "127.0.0.1:0", "--http", "off"});
    EXPECT_EQ(server.Wait(), 1) << what;
    EXPECT_THAT(server.errors(), HasSubstr("expected the format plumbline.journal/1")) << what;
    EXPECT_THAT(server.errors(), HasSubstr("no file was changed")) << what;
    EXPECT_EQ(Files(), before) << what;
    return server.errors();
  };
  for (const char* schema : {"plumbline.journal/2", "plumbline.journal/0"}) {
    Rewrite(path, schema);
    std::ofstream(path, std::ios::app) << tail;
    EXPECT_THAT(refused(schema), HasSubstr(std::string("found ") + schema + " by plumbd 9.8.7"));
    std::filesystem::resize_file(path, std::filesystem::file_size(path) - tail.size());
  }
  Rewrite(path, "plumbline.journal/1");
  // The container format of a newer build.
  std::string bytes = ReadFile(path), newer = bytes;
  newer[8] = 2;
  const uint32_t crc = Crc32c(newer.data(), 12);
  std::memcpy(newer.data() + 12, &crc, 4);
  std::ofstream(path, std::ios::binary | std::ios::trunc) << newer;
  EXPECT_THAT(refused("version 2"), HasSubstr("found a file of version 2"));
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;

  // With the original build, everything acknowledged exists.
  const auto server = Start();
  ASSERT_FALSE(server->address().empty()) << server->process().errors();
  AgentStream agent(*server, 5, {source_}, 21);
  uint64_t held = 0;
  EXPECT_TRUE(agent.Welcomed(&held));
  EXPECT_EQ(held, 20u);
}

// A checkpoint of another format is skipped and nothing is missing, because the journal has
// everything.
TEST_F(Operating, ACheckpointOfAnotherFormatIsPassedOver) {
  const std::string toml = folder_.Write("fast.toml", "[checkpoint]\nseconds = 0.05\n");
  {
    const auto server = Start({"--config", toml});
    Send(*server, 5, 1, 20);
    EXPECT_EQ(server->Stop(), 0);
  }
  size_t spoilt = 0;
  for (const auto& entry : std::filesystem::directory_iterator(Data() + "/checkpoint")) {
    std::string bytes = ReadFile(entry.path());
    const size_t at = bytes.find("plumbline.checkpoint/");
    ASSERT_NE(at, std::string::npos);
    bytes[at + 21] = '9';
    // The checksums of the frame: of the payload at 12, of the header at 16
    // (base/framed_log_format.h).
    const size_t frame = 16, payload = frame + 20;
    uint32_t size = 0;
    std::memcpy(&size, bytes.data() + frame, 4);
    const uint32_t of_payload = Crc32c(bytes.data() + payload, size);
    std::memcpy(bytes.data() + frame + 12, &of_payload, 4);
    const uint32_t of_header = Crc32c(bytes.data() + frame, 16);
    std::memcpy(bytes.data() + frame + 16, &of_header, 4);
    std::ofstream(entry.path(), std::ios::binary | std::ios::trunc) << bytes;
    ++spoilt;
  }
  ASSERT_GT(spoilt, 0u);
  const auto server = Start({"--config", toml});
  ASSERT_FALSE(server->address().empty()) << server->process().errors();
  EXPECT_TRUE(Eventually([&] {
    const auto run = server->Run("run");
    return run && run->closed_step() == 20;
  }));
  EXPECT_THAT(server->process().errors(), HasSubstr("is not used"));
}

// docs/operating.md, Rollback: packed segments have the same contents, also after a kill and
// without checkpoint and store; `journal.pack = false` writes them back for an older version.
TEST_F(Operating, PackedSegmentsHoldTheSameAndAreWrittenBack) {
  const std::string keys =
      "[checkpoint]\nseconds = 0.05\n[journal]\nsegment_bytes = 4096\ncommit_bytes = 1\n";
  const std::string plain = folder_.Write("plain.toml", keys + "pack = false\n");
  const std::string pack = folder_.Write("pack.toml", keys);
  const auto packed = [&] {
    size_t count = 0;
    const auto segments = server::ListSegments(Journal());
    for (const server::Segment& segment : *segments) {
      const auto is = server::IsPacked(segment);
      count += is.ok() && *is ? 1 : 0;
    }
    return count;
  };
  const auto audit = [&](const Plumbd& server) {
    std::string report = RunToEnd({PLUMB_PROGRAM, "audit", "--server", server.address(), "--run",
                                   "run", "--format", "json"})
                             .output;
    const size_t address = report.find(server.address());  // it changes at each start
    return address == std::string::npos ? report : report.erase(address, server.address().size());
  };
  const auto caught_up = [](const Plumbd& server) {
    return Eventually([&] {
      const auto run = server.Run("run");
      return run && run->closed_step() == 150;
    });
  };
  std::string before;
  {
    const auto server = Start({"--config", plain});
    AgentStream agent(*server, 5, {source_});
    for (int64_t step = 1; step <= 150; ++step) {
      agent.Send(step % 3 == 0 ? LeakingStep(source_, step) : ScalarStep(source_, step),
                 static_cast<uint64_t>(step));
    }
    ASSERT_TRUE(agent.Acknowledged(150));
    ASSERT_TRUE(caught_up(*server));
    before = audit(*server);
    EXPECT_THAT(before, HasSubstr("fingerprint"));
    EXPECT_EQ(packed(), 0u);
    EXPECT_EQ(server->Stop(), 0);
  }
  const size_t segments = server::ListSegments(Journal())->size();
  ASSERT_GT(segments, 3u);
  {
    const auto server = Start({"--config", pack});
    EXPECT_TRUE(Eventually([&] { return packed() == segments - 1; })) << packed();
    ASSERT_TRUE(caught_up(*server));
    EXPECT_EQ(audit(*server), before);
    server->process().Signal(SIGKILL);
    server->process().Wait();
  }
  std::filesystem::remove_all(Data() + "/checkpoint");
  std::filesystem::remove(Data() + "/store.sqlite");
  {
    const auto server = Start({"--config", pack});
    ASSERT_TRUE(caught_up(*server)) << server->process().errors();
    EXPECT_EQ(audit(*server), before);
    EXPECT_THAT(server->process().errors(), Not(HasSubstr("are lost")));
    EXPECT_EQ(server->Stop(), 0);
  }
  const auto server = Start({"--config", plain});
  EXPECT_TRUE(Eventually([&] { return packed() == 0; })) << packed();
  ASSERT_TRUE(caught_up(*server));
  EXPECT_EQ(audit(*server), before);
}

// docs/operating.md, Backup and Restore: checkpoint, then journal, while it runs.
TEST_F(Operating, ACopyOfARunningServerIsRestored) {
  const std::string toml =
      folder_.Write("fast.toml", "[checkpoint]\nseconds = 0.05\n[journal]\nsegment_bytes = 4096\n");
  const auto server = Start({"--config", toml});
  ASSERT_FALSE(server->address().empty()) << server->process().errors();
  Send(*server, 5, 1, 200);
  std::atomic<bool> stop = false;
  std::thread sender([&] {
    AgentStream agent(*server, 6, {SourceOf("other")});
    for (uint64_t step = 1; !stop; ++step) {
      agent.Send(ScalarStep(SourceOf("other"), static_cast<int64_t>(step)), step);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  const std::string backup = folder_.File("backup");
  std::filesystem::create_directory(backup);
  // Like rsync: an old checkpoint, or a segment that is being packed, may vanish during the copy,
  // and the others are copied nevertheless.
  for (const std::string part : {"checkpoint", "journal"}) {
    std::filesystem::create_directory(backup + "/" + part);
    for (const auto& file : std::filesystem::directory_iterator(Data() + "/" + part)) {
      std::error_code gone;
      std::filesystem::copy_file(file.path(),
                                 backup + "/" + part + "/" + file.path().filename().string(), gone);
    }
  }
  stop = true;
  sender.join();

  Plumbd restored({"--data", backup, "--config", toml});
  ASSERT_FALSE(restored.address().empty()) << restored.process().errors();
  EXPECT_TRUE(Eventually([&] {
    const auto run = restored.Run("run");
    return run && run->closed_step() == 200 && restored.Run("other");
  }));
  AgentStream agent(restored, 5, {source_}, 201);
  uint64_t held = 0;
  EXPECT_TRUE(agent.Welcomed(&held));
  EXPECT_EQ(held, 200u);
  EXPECT_THAT(restored.process().errors(), Not(HasSubstr("are lost")));
}

}  // namespace
}  // namespace plumbline::test
