// Disk faults that plumbd must survive: a journal whose end is lost, files that may not grow, and
// files that other users can read.
#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "audit/live/doctor_batch.h"
#include "tests/server/http_support.h"
#include "tests/server/support.h"

namespace plumbline::test {
namespace {

namespace fs = std::filesystem;
using testing::AnyOf;
using testing::HasSubstr;
using testing::StartsWith;

// Returns all facts about the findings: incidents, their sites, their counts.
std::string Found(const Plumbd& server) {
  std::string all, text;
  for (const v1::Incident& incident : server.Incidents("run")) {
    google::protobuf::TextFormat::PrintToString(incident, &text);
    all += text + "\n";
  }
  for (const v1::IncidentStatus& status : server.Statuses("run")) {
    google::protobuf::TextFormat::PrintToString(status, &text);
    all += text + "\n";
  }
  return all;
}

class DurableLossTest : public testing::Test {
 protected:
  void TearDown() override {
    if (HasFailure() && server_)
      ADD_FAILURE() << "plumbd printed:\n" << server_->process().errors();
  }
  std::string Data() const { return folder_.File("data"); }
  std::string Journal() const { return Data() + "/journal"; }
  void Start(std::vector<std::string> options = {}) {
    options.insert(options.begin(),
                   {"--data", Data(), "--http", "127.0.0.1:0", "--grace", "60", "--config",
                    folder_.Write("plumbd.toml", "[checkpoint]\nseconds = 0.05\n")});
    server_ = std::make_unique<Plumbd>(std::move(options));
    ASSERT_FALSE(server_->address().empty()) << server_->process().errors();
  }
  void Kill() {
    server_->process().Signal(SIGKILL);
    server_->process().Wait();
  }
  // Sends steps `first` to `last` of one rank, each with a leak in a different layer.
  void Leak(uint64_t stream, uint64_t first, uint64_t last) {
    AgentStream agent(*server_, stream, {source_}, first);
    for (uint64_t step = first; step <= last; ++step) {
      const std::string layer = "layers." + std::to_string(step);
      ASSERT_TRUE(agent.Send(LeakingStep(source_, static_cast<int64_t>(step), layer), step));
    }
    ASSERT_TRUE(agent.Acknowledged(last));
    ASSERT_TRUE(Judged(last));
  }
  bool Judged(uint64_t steps) {
    return Eventually([&] {
      const auto run = server_->Run("run");
      return run && run->evidence() == steps && run->closed_step() >= static_cast<int64_t>(steps);
    });
  }
  // Returns true once a checkpoint contains this batch.
  bool HasCheckpoint(uint64_t batches) {
    return Eventually([&] {
      std::error_code error;
      for (const auto& file : fs::directory_iterator(Data() + "/checkpoint", error)) {
        const std::string name = file.path().filename();
        if (name.size() == 45 && std::stoull(name.substr(0, 20)) >= batches) return true;
      }
      return false;
    });
  }
  // Returns the names of segments, in order.
  std::vector<std::string> Segments() const {
    std::vector<std::string> names;
    for (const auto& file : fs::directory_iterator(Journal())) {
      if (file.path().extension() == ".plj") names.push_back(file.path().filename());
    }
    std::sort(names.begin(), names.end());
    return names;
  }
  uint64_t Metric(const std::string& name) {
    const std::string all = HttpAnswer(HttpAddress(*server_), "/metrics");
    const size_t at = all.find("\n" + name + " ");
    return at == std::string::npos ? 0 : std::stoull(all.substr(at + name.size() + 2));
  }

  TempFolder folder_;
  std::unique_ptr<Plumbd> server_;
  const v1::Source source_ = SourceOf("run");
};

// The host lost unwritten data, or a copy was cut short. The checkpoint has more than the journal,
// with various other files missing.
class LostEnd : public DurableLossTest, public testing::WithParamInterface<const char*> {};

TEST_P(LostEnd, ACheckpointBeyondTheJournalsEndIsKept) {
  const std::string what = GetParam();
  Start();
  Leak(61, 1, 12);
  fs::copy(Journal(), folder_.File("journal"), fs::copy_options::recursive);
  Leak(61, 13, 24);
  ASSERT_TRUE(HasCheckpoint(24));
  const std::string before = Found(*server_);
  ASSERT_NE(before.find("layers.24"), std::string::npos);
  Kill();
  fs::remove_all(Journal());
  if (what != "journal") fs::copy(folder_.File("journal"), Journal(), fs::copy_options::recursive);
  if (what == "store") fs::remove(Data() + "/store.sqlite");

  Start();
  EXPECT_EQ(Found(*server_), before);
  const auto run = server_->Run("run");
  ASSERT_TRUE(run);
  EXPECT_EQ(run->evidence(), 24u);
  EXPECT_EQ(run->closed_step(), 24);
  // Reported in the log, in the list of gaps, and in the metrics.
  EXPECT_THAT(server_->process().errors(), HasSubstr("are lost"));
  ASSERT_EQ(run->gaps_size(), 1);
  EXPECT_THAT(run->gaps(0).reason(), HasSubstr("the findings are kept, the evidence is lost"));
  EXPECT_GE(Metric("plumbline_journal_lost_entries_total"), what == "journal" ? 24u : 12u);

  // The stream continues where it was judged, in entries with unused numbers.
  {
    AgentStream agent(*server_, 61, {source_}, 25);
    uint64_t held = 0;
    ASSERT_TRUE(agent.Welcomed(&held));
    EXPECT_EQ(held, 24u);
  }
  Leak(61, 25, 26);
  EXPECT_EQ(server_->Info().dropped().at("skipped-batches"), 0u);
  const std::string then = Found(*server_);
  Kill();
  ASSERT_FALSE(Segments().empty());
  EXPECT_GT(std::stoull(Segments().back().substr(0, 20)), 24u);

  // The next start finds the same gap and no other.
  Start();
  ASSERT_TRUE(Judged(26));
  EXPECT_EQ(Found(*server_), then);
  EXPECT_EQ(server_->Run("run")->gaps_size(), 1);
  EXPECT_THAT(
      RunToEnd({PLUMB_PROGRAM, "audit", "--server", server_->address(), "--run", "run"}).output,
      HasSubstr("the evidence is lost"));
}

INSTANTIATE_TEST_SUITE_P(Without, LostEnd, testing::Values("end", "journal", "store"),
                         [](const auto& value) { return std::string(value.param); });

// An unreadable checkpoint proves the loss too; only the state in it is lost.
TEST_F(DurableLossTest, ADamagedCheckpointBeyondTheJournalsEndUsesItsNumbersUp) {
  Start();
  Leak(62, 1, 6);
  fs::copy(Journal(), folder_.File("journal"), fs::copy_options::recursive);
  Leak(62, 7, 12);
  ASSERT_TRUE(HasCheckpoint(12));
  Kill();
  fs::remove_all(Journal());
  fs::copy(folder_.File("journal"), Journal(), fs::copy_options::recursive);
  for (const auto& file : fs::directory_iterator(Data() + "/checkpoint")) {
    fs::resize_file(file.path(), fs::file_size(file.path()) - 1);
  }
  Start();
  ASSERT_TRUE(Judged(6));
  EXPECT_EQ(server_->Run("run")->gaps_size(), 1);
  AgentStream agent(*server_, 62, {source_}, 13);
  uint64_t held = 0;
  ASSERT_TRUE(agent.Welcomed(&held));
  EXPECT_EQ(held, 6u);
  agent.Send(LeakingStep(source_, 13), 13);
  ASSERT_TRUE(agent.Acknowledged(13));
  EXPECT_GT(std::stoull(Segments().back().substr(0, 20)), 12u);
}

// Entries before the checkpoint are not read when plumbd starts; their loss is reported
// nevertheless.
class LostAfter : public DurableLossTest, public testing::WithParamInterface<const char*> {
 protected:
  // Damages a segment that no replay reads.
  void Damage(const std::string& what, const std::vector<std::string>& segments) const {
    const std::string middle = Journal() + "/" + segments[segments.size() / 3];
    if (what == "first") fs::remove(Journal() + "/" + segments[0]);
    if (what == "missing") fs::remove(middle);
    if (what == "cut") fs::resize_file(middle, fs::file_size(middle) / 2);
    if (what == "emptied") fs::resize_file(middle, 0);
    if (what == "overwritten") {
      std::fstream file(middle, std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(static_cast<std::streamoff>(fs::file_size(middle) / 3));
      file << std::string(600, 'x');
    }
  }
};

TEST_P(LostAfter, ASegmentThatIsGoneIsStatedAtTheStartAndTheRestAudited) {
  const std::string what = GetParam();
  const auto start = [&] {
    server_ = std::make_unique<Plumbd>(std::vector<std::string>{
        "--data", Data(), "--http", "127.0.0.1:0", "--config",
        folder_.Write("small.toml",
                      "[checkpoint]\nseconds = 0.05\n[journal]\nsegment_bytes = 4096\n"
                      "commit_bytes = 1\npack = false\n")});
    ASSERT_FALSE(server_->address().empty()) << server_->process().errors();
  };
  start();
  Leak(67, 1, 60);
  ASSERT_TRUE(HasCheckpoint(60));
  const std::string before = Found(*server_);
  Kill();
  const std::vector<std::string> segments = Segments();
  ASSERT_GE(segments.size(), 6u);
  Damage(what, segments);

  for (int round = 0; round < 2; ++round) {  // the second one knows the gap already
    start();
    EXPECT_TRUE(Eventually([&] { return server_->Run("run")->gaps_size() == 1; }));
    ASSERT_TRUE(server_->Run("run"));
    ASSERT_EQ(server_->Run("run")->gaps_size(), 1);
    EXPECT_THAT(server_->Run("run")->gaps(0).reason(), HasSubstr("journal-damaged: entries "));
    EXPECT_TRUE(Eventually([&] { return Metric("plumbline_journal_lost_entries_total") > 0; }));
    EXPECT_LT(Metric("plumbline_journal_lost_entries_total"), 60u);
    EXPECT_THAT(server_->process().errors(), HasSubstr("are lost"));
    // The findings stay.
    EXPECT_EQ(Found(*server_), before);
    Process audit({PLUMB_PROGRAM, "audit", "--server", server_->address(), "--run", "run"});
    EXPECT_EQ(audit.Wait(), 2) << audit.errors();  // not all of it could be read
    EXPECT_THAT(audit.output(), HasSubstr("journal-damaged: entries "));
    const uint64_t left = 60 - Metric("plumbline_journal_lost_entries_total");
    EXPECT_THAT(audit.output(), HasSubstr("\n" + std::to_string(left) + " findings ("));
    Kill();
  }
}

INSTANTIATE_TEST_SUITE_P(TheCheckpoint, LostAfter,
                         testing::Values("first", "missing", "cut", "emptied", "overwritten"),
                         [](const auto& value) { return std::string(value.param); });

// The first audit reports the gap with the rest, whether the start has detected it or not.
TEST_F(DurableLossTest, AnAuditListsTheDamageThatItFindsItself) {
  const std::string config =
      folder_.Write("small.toml",
                    "[checkpoint]\nseconds = 0.05\n[journal]\n"
                    "segment_bytes = 4096\ncommit_bytes = 1\npack = false\n");
  server_ = std::make_unique<Plumbd>(
      std::vector<std::string>{"--data", Data(), "--http", "127.0.0.1:0", "--config", config});
  Leak(68, 1, 40);
  ASSERT_GE(Segments().size(), 4u);
  fs::remove(Journal() + "/" + Segments()[1]);
  for (int round = 0; round < 2; ++round) {
    Process audit({PLUMB_PROGRAM, "audit", "--server", server_->address(), "--run", "run"});
    EXPECT_EQ(audit.Wait(), 2) << audit.errors();
    EXPECT_THAT(audit.output(), HasSubstr("journal-damaged: entries "));
    const uint64_t left = 40 - Metric("plumbline_journal_lost_entries_total");
    EXPECT_LT(left, 40u);
    EXPECT_THAT(audit.output(), HasSubstr("\n" + std::to_string(left) + " findings ("));
  }
}

void LimitFiles(const Process& process, rlim_t bytes) {
  rlimit limit{};
  ASSERT_EQ(prlimit(process.pid(), RLIMIT_FSIZE, nullptr, &limit), 0);
  limit.rlim_cur = std::min(bytes, limit.rlim_max);
  ASSERT_EQ(prlimit(process.pid(), RLIMIT_FSIZE, &limit, nullptr), 0);
}

TEST_F(DurableLossTest, ALimitOnFileSizesIsAFullDisk) {
  Start();
  Leak(63, 1, 2);
  const std::string http = HttpAddress(*server_);
  LimitFiles(server_->process(), 1000);  // bytes: no commit fits
  AgentStream agent(*server_, 63, {source_}, 3);
  ASSERT_TRUE(agent.Send(LeakingStep(source_, 3), 3));
  EXPECT_TRUE(Eventually([&] { return HttpAnswer(http, "/healthz").find("HTTP/1.1 503") == 0; }));
  // The operator finds the reason and the fix in the usual places.
  const std::string health = HttpAnswer(http, "/healthz");
  EXPECT_THAT(health, HasSubstr("is larger than the file size limit of this process, 1000 "
                                "bytes (ulimit -f, LimitFSIZE= of the unit)"));
  EXPECT_THAT(server_->process().errors(), HasSubstr("is larger than the file size limit"));
  EXPECT_TRUE(server_->process().running());
  EXPECT_LT(agent.acknowledged(), 3u);
  LimitFiles(server_->process(), RLIM_INFINITY);
  EXPECT_TRUE(agent.Acknowledged(3));
  EXPECT_TRUE(Eventually([&] { return HttpAnswer(http, "/healthz").find("HTTP/1.1 200") == 0; }));
  ASSERT_TRUE(Judged(3));
  Kill();
  Start();
  ASSERT_TRUE(Judged(3));
}

// If a file may not grow, the journal continues in another one.
TEST_F(DurableLossTest, TheJournalGoesOnInAnotherFileWhereOneMayNotGrow) {
  Start();
  constexpr rlim_t kLimit = 3u << 20;
  LimitFiles(server_->process(), kLimit);
  AgentStream agent(*server_, 64, {source_});
  v1::Batch batch = ScalarStep(source_, 0);
  batch.mutable_evidence(0)->mutable_site()->set_layer(std::string(200, 'x'));
  for (int i = 1; i < 5000; ++i) *batch.add_evidence() = batch.evidence(0);  // about 1 MB
  constexpr uint64_t kBatches = 6;
  for (uint64_t s = 1; s <= kBatches; ++s) {
    ASSERT_TRUE(agent.Send(batch, s));
    ASSERT_TRUE(agent.Acknowledged(s));
  }
  EXPECT_GE(Segments().size(), 2u);
  for (const std::string& name : Segments()) {
    EXPECT_LE(fs::file_size(Journal() + "/" + name), kLimit);
  }
  EXPECT_EQ(Metric("plumbline_journal_failures_total"), 0u);
}

// Returns the paths in `directory`, with itself, that others than their owner may use.
std::vector<std::string> OpenToOthers(const std::string& directory) {
  std::vector<std::string> open;
  const auto look = [&](const std::string& path) {
    struct stat info {};
    if (lstat(path.c_str(), &info) == 0 && (info.st_mode & 077) != 0) open.push_back(path);
  };
  look(directory);
  for (const auto& entry : fs::recursive_directory_iterator(directory)) look(entry.path());
  return open;
}

TEST_F(DurableLossTest, NoOtherMayReadWhatIsKept) {
  const mode_t mask = umask(0);  // the worst umask that plumbd could be started with
  Start({"--grpc", "unix:" + folder_.File("data/socket")});
  umask(mask);
  // The journal, which is opened first, creates the socket's folder.
  ASSERT_TRUE(fs::exists(Data() + "/socket")) << server_->process().errors();
  Leak(65, 1, 3);
  ASSERT_TRUE(HasCheckpoint(3));
  EXPECT_THAT(OpenToOthers(Data()), testing::IsEmpty());
  Kill();

  // Files that an earlier process left open are closed; files of others are unchanged, and so is
  // their folder.
  for (const auto& entry : fs::recursive_directory_iterator(Data())) {
    fs::permissions(entry.path(), fs::perms::others_read, fs::perm_options::add);
  }
  folder_.Write("data/theirs", "text");
  fs::permissions(Data(), fs::perms::others_exec, fs::perm_options::add);
  fs::remove(Data() + "/socket");
  Start();
  EXPECT_THAT(OpenToOthers(Data()), testing::UnorderedElementsAre(Data(), Data() + "/theirs"));
  EXPECT_THAT(server_->process().errors(), HasSubstr("were accessible to other users"));
}

// The owner of an existing folder sets its permissions.
TEST_F(DurableLossTest, AFolderThatWasThereKeepsItsRights) {
  fs::create_directories(Data());
  fs::permissions(Data(), fs::perms(0755));
  Start();
  EXPECT_EQ(fs::status(Data()).permissions(), fs::perms(0755));
  EXPECT_THAT(OpenToOthers(Data()), testing::ElementsAre(Data()));
  EXPECT_THAT(server_->process().errors(), HasSubstr("other users may list this existing folder"));
}

// After a flood no other line may come: a timer reports what was left out.
TEST_F(DurableLossTest, OmittedLinesAreReported) {
  Start();
  AgentStream agent(*server_, 66, {source_});
  v1::Batch bad = ScalarStep(source_, 0);
  bad.mutable_evidence(0)->set_source(7);
  for (uint64_t s = 1; s <= 200; ++s) ASSERT_TRUE(agent.Send(bad, s));
  ASSERT_TRUE(agent.Acknowledged(200));
  EXPECT_TRUE(Eventually([&] {
    return server_->process().errors().find("similar lines were not logged") != std::string::npos;
  }));
}

}  // namespace
}  // namespace plumbline::test
