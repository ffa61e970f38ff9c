// A plumbd that hashes ids on receipt, and one whose journal lost its samples to retention.
#include "transport/redact.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "audit/live/doctor_batch.h"
#include "server/journal/journal_reader.h"
#include "server/journal/segment_packer.h"
#include "server/samples/sample_retention.h"
#include "tests/server/support.h"

namespace plumbline::test {
namespace {

using server::JournalReader;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr int32_t kFirstSequence = 0x5b4a3927;

// Returns a step that leaks, with recognisable ids.
v1::Batch RecognisableStep(const v1::Source& source, int64_t step) {
  v1::Batch batch = LeakingStep(source, step);
  v1::RoutingSample& sample = *batch.mutable_evidence(0)->mutable_routing()->mutable_sample();
  std::string* data = sample.mutable_sequence_id()->mutable_data();
  for (size_t i = 0; i + 4 <= data->size(); i += 4) {
    int32_t id;
    std::memcpy(&id, data->data() + i, 4);
    id += kFirstSequence;
    std::memcpy(data->data() + i, &id, 4);
  }
  *sample.mutable_pool_id() = sample.sequence_id();
  return batch;
}

bool HoldsRawId(const std::string& bytes) {
  return bytes.find(std::string(reinterpret_cast<const char*>(&kFirstSequence), 4)) !=
         std::string::npos;
}

class RedactingServerTest : public ::testing::Test {
 protected:
  void Start(const std::string& config) {
    folder_.Write("plumbd.toml", config);
    server_ = nullptr;
    server_ = std::make_unique<Plumbd>(std::vector<std::string>{
        "--data", folder_.File("data"), "--config", folder_.File("plumbd.toml")});
    ASSERT_FALSE(server_->address().empty()) << server_->process().errors();
  }
  std::string WithKey() {
    const std::string path = folder_.Write("redact.key", "0123456789abcdef0123\n");
    std::filesystem::permissions(path, std::filesystem::perms(0600));
    return "[redact]\nids = true\nkey_file = \"" + path + "\"\n";
  }
  // `one_by_one`: each is a separate commit.
  void SendSteps(int64_t steps, bool one_by_one = false) {
    const v1::Source source = SourceOf("run");
    AgentStream agent(*server_, 11, {source});
    for (int64_t step = 0; step < steps; ++step)
      ASSERT_TRUE(agent.Send(RecognisableStep(source, step), static_cast<uint64_t>(step) + 1) &&
                  (!one_by_one || agent.Acknowledged(static_cast<uint64_t>(step) + 1)));
    ASSERT_TRUE(agent.Acknowledged(static_cast<uint64_t>(steps)));
    ASSERT_TRUE(Eventually([&] {
      const auto run = server_->Run("run");
      return run && run->closed_step() >= steps - 1;
    }));
    agent.Finish();
  }
  // Returns rule, level and count of each incident.
  std::vector<std::string> Incidents() {
    std::vector<std::string> out;
    for (const v1::Incident& i : server_->Incidents("run"))
      out.push_back(i.finding().rule() + " " + std::to_string(i.finding().level()) + " " +
                    i.finding().fingerprint() + " " + std::to_string(i.count()));
    std::sort(out.begin(), out.end());
    return out;
  }
  // Returns every entry of the journal, unpacked.
  std::string Journal() {
    std::string all;
    auto reader = JournalReader::Open(folder_.File("data/journal"), 1);
    EXPECT_TRUE(reader.ok()) << reader.status();
    server::StoredEntry entry;
    for (;;) {
      const auto result = (*reader)->Next(&entry);
      if (result == JournalReader::Result::kEnd) return all;
      if (result == JournalReader::Result::kEntry) all += entry.payload;
    }
  }
  std::string RawFiles(const std::string& below) {
    std::string all;
    for (const auto& file : std::filesystem::recursive_directory_iterator(folder_.File(below)))
      if (file.is_regular_file()) all += ReadFile(file.path());
    return all;
  }

  const TempFolder folder_;
  std::unique_ptr<Plumbd> server_;
};

TEST_F(RedactingServerTest, KeepsHashesAloneAndFindsTheSame) {
  Start("");
  SendSteps(4);
  const auto raw = Incidents();
  ASSERT_FALSE(raw.empty());
  EXPECT_EQ(server_->Stop(), 0);
  EXPECT_TRUE(HoldsRawId(Journal())) << "without redaction the ids are there";
  std::filesystem::remove_all(folder_.File("data"));

  Start(WithKey());
  SendSteps(4);
  EXPECT_EQ(Incidents(), raw);
  EXPECT_EQ(server_->Stop(), 0);
  EXPECT_FALSE(HoldsRawId(Journal()));
  EXPECT_FALSE(HoldsRawId(RawFiles("data")));
  // A restart judges the same, from the checkpoint and from the journal alone.
  Start(WithKey());
  EXPECT_EQ(Incidents(), raw);
  EXPECT_EQ(server_->Stop(), 0);
  std::filesystem::remove_all(folder_.File("data/checkpoint"));
  Start(WithKey());
  EXPECT_TRUE(Eventually([&] { return Incidents() == raw; }));
}

// Ids that an agent has hashed are not hashed again, so they join with ids that others hashed with
// the same key.
TEST_F(RedactingServerTest, LeavesWhatAnAgentHashed) {
  Start(WithKey());
  const v1::Source source = SourceOf("run");
  const transport::Redactor agents("the key of the agents");
  v1::Batch batch = RecognisableStep(source, 0);
  ASSERT_EQ(agents.Redact(&batch), 1u);
  const std::string hashes = batch.evidence(0).routing().sample().sequence_id().data();
  AgentStream agent(*server_, 11, {source});
  ASSERT_TRUE(agent.Send(batch, 1));
  ASSERT_TRUE(agent.Acknowledged(1));
  agent.Finish();
  EXPECT_EQ(server_->Stop(), 0);
  EXPECT_NE(Journal().find(hashes), std::string::npos);
}

TEST_F(RedactingServerTest, AKeyThatCannotBeOneStopsTheStart) {
  const std::string path = folder_.Write("short.key", "hunter2\n");
  std::filesystem::permissions(path, std::filesystem::perms(0600));
  folder_.Write("plumbd.toml", "[redact]\nids = true\nkey_file = \"" + path + "\"\n");
  const Plumbd server({"--config", folder_.File("plumbd.toml")});
  EXPECT_EQ(server.address(), "");
  const std::string errors = const_cast<Plumbd&>(server).process().errors();
  EXPECT_THAT(errors, HasSubstr("redact.key_file"));
  EXPECT_THAT(errors, HasSubstr("has 7 bytes; expected at least 16"));
  EXPECT_THAT(errors, ::testing::Not(HasSubstr("hunter2")));
}

// ---- samples that are too old ------------------------------------------------------------------

// Rewrites every segment except the newest without samples, as two checks with this distance would.
void RemoveSamples(const std::string& journal, const server::NeededSamples& needed,
                   server::Counters* counters) {
  server::SampleRetentionOptions samples;
  samples.keep = std::chrono::nanoseconds(1);
  samples.needed = [&] { return needed; };
  samples.unix_ns = [] { return int64_t{4102444800} * 1'000'000'000; };  // the year 2100
  samples.second_look = {};
  server::PackerOptions options;
  options.directory = journal;
  options.settled = [] { return JournalReader::kAll; };
  options.editor = std::make_shared<server::SampleRetention>(samples, counters);
  Mutex files;
  server::SegmentPacker packer(options, &files);
  EXPECT_GT(packer.Round(), 0);
}

constexpr char kSmallSegments[] = "[journal]\nsegment_bytes = 4096\n[ingest]\nack_batches = 1\n";

TEST_F(RedactingServerTest, AJournalWithoutOldSamplesGivesTheSameFindings) {
  Start(kSmallSegments);
  SendSteps(20, true);
  const auto found = Incidents();
  ASSERT_FALSE(found.empty());
  server::NeededSamples needed;
  for (const v1::Incident& i : server_->Incidents("run")) needed.Add(i.finding());
  EXPECT_EQ(server_->Stop(), 0);

  // No samples are needed, because the checkpoint holds the judged state.
  server::Counters counters;
  std::filesystem::copy(folder_.File("data"), folder_.File("copy"),
                        std::filesystem::copy_options::recursive);
  RemoveSamples(folder_.File("data/journal"), {}, &counters);
  EXPECT_GT(counters.samples_expired, 6u);
  Start(kSmallSegments);
  EXPECT_EQ(Incidents(), found) << "what was judged stays judged";
  EXPECT_EQ(server_->Stop(), 0);
  // Without a checkpoint the steps are judged by their summaries, without invented findings.
  std::filesystem::remove_all(folder_.File("data/checkpoint"));
  std::filesystem::remove(folder_.File("data/store.sqlite"));
  Start(kSmallSegments);
  EXPECT_TRUE(Eventually([&] {
    const auto run = server_->Run("run");
    return run && run->closed_step() >= 19;
  }));
  for (const v1::Incident& i : server_->Incidents("run"))
    EXPECT_NE(i.finding().rule(), "meta/data-loss");
  EXPECT_EQ(server_->Stop(), 0);

  // Samples of findings stay, so the journal alone gives all findings.
  std::filesystem::remove_all(folder_.File("data"));
  std::filesystem::rename(folder_.File("copy"), folder_.File("data"));
  server::Counters none;
  RemoveSamples(folder_.File("data/journal"), needed, &none);
  std::filesystem::remove_all(folder_.File("data/checkpoint"));
  std::filesystem::remove(folder_.File("data/store.sqlite"));
  Start(kSmallSegments);
  EXPECT_TRUE(Eventually([&] { return Incidents() == found; }));
}

}  // namespace
}  // namespace plumbline::test
