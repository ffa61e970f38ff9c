// Reads all data that leave a process byte by byte. With redaction they contain no raw id, without
// redaction they do.
#include "transport/redact.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/framed_log.h"
#include "plumbline/agent.h"
#include "tests/agent/core/support.h"
#include "tests/support/eventually.h"

namespace plumbline::agent {
namespace {

using namespace testing;  // NOLINT: the tests' own
using ::testing::HasSubstr;

// Recognisable in every form: no float, count or hash in these tests has these bytes.
constexpr int64_t kSequence = 0x6b5a4b4c4d4e4f51, kPool = 0x6a59484746454443;
constexpr int32_t kToken32 = 0x5d4b3c2a, kSequence32 = 0x5b4a3927;
constexpr int64_t kToken64 = 0x68574635241302f1, kElement = 0x6756453423120f1d;
constexpr int64_t kFirstToken = 100;  // of logits: an index below their vocabulary

std::string Bytes(int64_t id, size_t n) { return {reinterpret_cast<const char*>(&id), n}; }

std::string Varint(uint64_t id) {
  std::string bytes;
  for (; id >= 128; id >>= 7) bytes += static_cast<char>(id | 128);
  return bytes + static_cast<char>(id);
}

// The ids in each form that a message can contain: little-endian, varint, text.
std::vector<std::string> Spellings() {
  std::vector<std::string> all;
  for (const int64_t id : {kSequence, kPool, kToken64, kElement}) {
    all.push_back(Bytes(id, 8));
    all.push_back(Varint(static_cast<uint64_t>(id)));
    all.push_back(std::to_string(id));
  }
  for (const int64_t id : {int64_t{kToken32}, int64_t{kSequence32}}) {
    all.push_back(Bytes(id, 4));
    all.push_back(Varint(static_cast<uint64_t>(id)));
    all.push_back(std::to_string(id));
  }
  return all;
}

// Every frame of every log below `dir`.
std::string Frames(const std::string& dir) {
  std::string all;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(dir)) {
    if (!entry.is_regular_file()) continue;
    all += test::ReadFile(entry.path());
    auto reader = FramedLogReader::Open(entry.path());
    if (!reader.ok()) continue;
    FrameType type{};
    std::string payload;
    while ((*reader)->Next(&type, &payload) == FramedLogReader::Result::kFrame) all += payload;
  }
  return all;
}

// A router call of four rows and a rollout of one sequence, whose ids have the type Id.
template <typename Id>
struct Ids {
  std::vector<Id> sequence, pool, tokens;
  std::vector<int32_t> position{0, 1, 0, 1};
  std::vector<float> logprobs{-1, -2, -3, -4};
};

class Observed {
 public:
  explicit Observed(AgentOptions options) {
    options.traffic_bytes = 1u << 30;
    auto opened = Run::Open(std::move(options));
    EXPECT_TRUE(opened.ok()) << opened.status();
    run_ = *std::move(opened);
    routing_ = Declare(PLUMBLINE_KIND_ROUTING, "layers.0", "routing");
    logprobs_ = Declare(PLUMBLINE_KIND_LOGPROBS, "policy", "logprobs");
    logits_ = Declare(PLUMBLINE_KIND_LOGITS, "policy", "logits");
    tensor_ = Declare(PLUMBLINE_KIND_TENSOR, "ids", "input");
  }

  void Step(int64_t step) {
    run_->StepBegin(step);
    Rows(step, Ids<int64_t>{{kSequence, kSequence, kSequence + 1, kSequence + 1},
                            {kPool, kPool, kPool, kPool},
                            {kToken64, kToken64 + 1, kToken64, kToken64}});
    Rows(step, Ids<int32_t>{{kSequence32, kSequence32, kSequence32 + 1, kSequence32 + 1},
                            {1, 1, 1, 1},
                            {kToken32, kToken32, kToken32, kToken32}});
    Logits(step);
    const std::vector<int64_t> element{kElement};
    const Tensor values(element.data(), {1});
    plumbline_tensor_t tensor = PLUMBLINE_TENSOR_INIT;
    tensor.values = values.get();
    EXPECT_EQ(run_->ObserveTensor(tensor_, step, tensor, &error_), PLUMBLINE_OK) << error_.text;
    run_->StepEnd(step);
  }

  Run& run() { return *run_; }
  plumbline_status_t Close(uint32_t ms) { return run_->Close(ms, &error_); }

 private:
  Site* Declare(int32_t kind, const char* layer, const char* op) {
    plumbline_agent_site_t site{sizeof(site), kind, layer, op, 0, &due_, nullptr, 0};
    void* made = nullptr;
    EXPECT_EQ(run_->DeclareSite(site, &made, &error_), PLUMBLINE_OK) << error_.text;
    return static_cast<Site*>(made);
  }

  template <typename Id>
  void Rows(int64_t step, const Ids<Id>& ids) {
    RouterCall call(4, 4, 1);
    const Tensor sequence(ids.sequence.data(), {4}), pool(ids.pool.data(), {4}),
        position(ids.position.data(), {4}), tokens(ids.tokens.data(), {4}),
        logprobs(ids.logprobs.data(), {4});
    call.get().sequence_id = sequence.get();
    call.get().pool_id = pool.get();
    call.get().position = position.get();
    EXPECT_EQ(run_->ObserveRouting(routing_, step, call.get(), &error_), PLUMBLINE_OK)
        << error_.text;
    plumbline_logprobs_t l = PLUMBLINE_LOGPROBS_INIT;
    l.tokens = tokens.get();
    l.sequence_id = sequence.get();
    l.position = position.get();
    l.rollout = l.train = logprobs.get();
    EXPECT_EQ(run_->ObserveLogprobs(logprobs_, step, l, &error_), PLUMBLINE_OK) << error_.text;
  }

  void Logits(int64_t step) {
    std::vector<float> values(2 * 200, 0.5f);
    const std::vector<int64_t> ids{kFirstToken, kFirstToken + 1};
    const Tensor train(values.data(), {2, 200}), tokens(ids.data(), {2});
    plumbline_logits_t call = PLUMBLINE_LOGITS_INIT;
    call.train = call.rollout = train.get();
    call.tokens = tokens.get();
    EXPECT_EQ(run_->ObserveLogits(logits_, step, call, &error_), PLUMBLINE_OK) << error_.text;
  }

  std::unique_ptr<Run> run_;
  Site *routing_, *logprobs_, *logits_, *tensor_;
  uint64_t due_ = 0;
  plumbline_error_t error_{};
};

struct Left {
  std::string disk, wire, capsule;
  std::vector<v1::Batch> record;
};

// A run with a record, a spool that keeps everything, and a server that requests a capsule.
Left RunOnce(bool redact) {
  ServerBehaviour behaviour;
  behaviour.ack = false;
  v1::SendCapsule& order = *behaviour.directive.mutable_capsule();
  order.set_capsule(7);
  order.mutable_site()->set_layer("layers.0");
  order.mutable_site()->set_op("routing");
  order.set_step(1000);
  order.set_max_bytes(1 << 20);
  RecordingServer server(behaviour);
  TempFolder dir;
  AgentOptions options = ServerOptions(server.target());
  options.record_dir = dir.File("record");
  options.spool_dir = dir.File("spool");
  options.redact = redact;
  Observed observed(std::move(options));
  observed.Step(0);
  EXPECT_TRUE(test::Eventually([&] { return server.hellos() > 0; }));
  observed.Step(1);
  // The request takes effect when the process has read it: until then the site has no step for the
  // capsule.
  const auto& sites = observed.run().state().sites;
  EXPECT_TRUE(test::Eventually([&] { return sites.at(0)->orders.capsule_step() == 1000; }));
  observed.Step(1000);
  EXPECT_TRUE(test::Eventually([&] { return !server.capsule().empty(); }));
  observed.Close(300);  // nothing is acknowledged
  Left left{Frames(dir.path()), "", server.capsule(),
            ReadRecord(RecordPath(dir.File("record"), v1::ROLE_TRAINER, 0, 0))};
  EXPECT_FALSE(std::filesystem::is_empty(dir.File("spool")));
  for (const v1::Batch& batch : server.Batches()) left.wire += batch.SerializeAsString();
  return left;
}

std::set<int64_t> TokensOfRows(const std::vector<v1::Batch>& batches) {
  std::set<int64_t> tokens;
  for (const v1::Batch& batch : batches)
    for (const v1::Evidence& e : batch.evidence())
      for (const v1::LogitsRow& row : e.logits().rows()) tokens.insert(row.token());
  return tokens;
}

TEST(Redacted, NoRawIdLeavesTheProcess) {
  const Left left = RunOnce(true);
  for (const std::string& raw : Spellings()) {
    EXPECT_EQ(left.disk.find(raw), std::string::npos) << ::testing::PrintToString(raw);
    EXPECT_EQ(left.wire.find(raw), std::string::npos) << ::testing::PrintToString(raw);
    EXPECT_EQ(left.capsule.find(raw), std::string::npos) << ::testing::PrintToString(raw);
  }
  const std::set<int64_t> tokens = TokensOfRows(left.record);
  EXPECT_EQ(tokens.size(), 2u);
  EXPECT_GT(*tokens.begin(), 1000);
}

// The search above can find the ids.
TEST(Redacted, WithoutItTheyDo) {
  const Left left = RunOnce(false);
  for (const int64_t id : {kSequence, kPool, kToken64, kElement}) {
    EXPECT_NE(left.disk.find(Bytes(id, 8)), std::string::npos) << id;
    EXPECT_NE(left.wire.find(Bytes(id, 8)), std::string::npos) << id;
  }
  for (const int32_t id : {kToken32, kSequence32})
    EXPECT_NE(left.wire.find(Bytes(id, 4)), std::string::npos) << id;
  EXPECT_NE(left.wire.find(std::to_string(kSequence)), std::string::npos) << "a rollout's id";
  EXPECT_NE(left.capsule.find(Bytes(kSequence, 8)), std::string::npos);
  EXPECT_EQ(TokensOfRows(left.record), (std::set<int64_t>{kFirstToken, kFirstToken + 1}));
  for (const v1::Batch& batch : left.record)
    for (const v1::Evidence& e : batch.evidence()) EXPECT_EQ(e.redacted_key(), 0u);
}

uint64_t KeyInHeader(const std::string& dir) {
  auto reader = FramedLogReader::Open(FirstRecord(dir));
  FrameType type{};
  std::string payload;
  v1::RecordHeader header;
  EXPECT_EQ((*reader)->Next(&type, &payload), FramedLogReader::Result::kFrame);
  EXPECT_TRUE(header.ParseFromString(payload));
  return header.redacted_key();
}

// Two processes with one key produce one hash for one id; the record states the name of the key.
TEST(Redacted, TheRecordNamesItsKey) {
  setenv("PLUMBLINE_REDACT_KEY", "0123456789abcdef", 1);
  std::set<std::string> sequences;
  std::set<uint64_t> keys;
  for (int process = 0; process < 2; ++process) {
    TempFolder dir;
    AgentOptions options = RecordOptions(dir.path());
    options.redact = true;
    Observed observed(std::move(options));
    observed.Step(0);
    EXPECT_EQ(observed.Close(10000), PLUMBLINE_OK);
    keys.insert(KeyInHeader(dir.path()));
    for (const v1::Batch& batch : ReadRecord(FirstRecord(dir.path())))
      for (const v1::Evidence& e : batch.evidence())
        for (const v1::LogprobsSequence& s : e.logprobs().sequences()) sequences.insert(s.id());
  }
  unsetenv("PLUMBLINE_REDACT_KEY");
  EXPECT_EQ(keys.size(), 1u);
  EXPECT_NE(*keys.begin(), 0u);
  EXPECT_EQ(sequences.size(), 4u) << "two a call, the same in both processes";
  EXPECT_EQ(
      sequences.count(std::to_string(transport::Redactor("0123456789abcdef").Sequence(kSequence))),
      1u);
}

// If a key can be guessed, the run is not opened, and nothing is written.
TEST(Redacted, AShortKeyIsRefused) {
  setenv("PLUMBLINE_REDACT_KEY", "short", 1);
  TempFolder dir;
  AgentOptions options = RecordOptions(dir.path());
  options.redact = true;
  const auto run = Run::Open(options);
  unsetenv("PLUMBLINE_REDACT_KEY");
  ASSERT_FALSE(run.ok());
  EXPECT_THAT(std::string(run.status().message()), HasSubstr("expected at least 16"));
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

}  // namespace
}  // namespace plumbline::agent
