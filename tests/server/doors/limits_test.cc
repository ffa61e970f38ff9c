// Input that is too large, too deep, too slow or too much: refused with a status, and the stream of
// another rank unaffected.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>

#include "tests/server/doors/support.h"

namespace plumbline::test {
namespace {

using testing::AnyOf;
using testing::HasSubstr;

// Another rank of another run is connected during all attempts and must be unaffected.
class DoorsLimits : public testing::Test {
 protected:
  void Start(const std::string& ingest, const std::vector<std::string>& options = {}) {
    server_ = StartWith(folder_, "[ingest]\nack_seconds = 0.05\n" + ingest, options);
    ASSERT_FALSE(server_->address().empty()) << server_->process().errors();
    good_ = std::make_unique<AgentStream>(*server_, 1, std::vector<v1::Source>{source_});
    ASSERT_TRUE(good_->Welcomed());
  }
  void TearDown() override {
    if (good_ == nullptr) return;
    for (uint64_t step = 1; step <= 3; ++step) {
      good_->Send(ScalarStep(source_, static_cast<int64_t>(step)), step);
    }
    EXPECT_TRUE(good_->Acknowledged(3));
    EXPECT_FALSE(good_->over());
    EXPECT_EQ(server_->Stop(), 0);
  }

  TempFolder folder_;
  const v1::Source source_ = SourceOf("good");
  std::unique_ptr<Plumbd> server_;
  std::unique_ptr<AgentStream> good_;
};

TEST_F(DoorsLimits, AMessageThatIsTooLarge) {
  Start("message_bytes = 1048576\n");
  v1::Batch batch = ScalarStep(SourceOf("large"), 1);
  batch.mutable_evidence(0)->mutable_site()->set_layer(std::string(2 << 20, 'x'));
  const grpc::Status status = SendBytes(
      server_->Channel(), {HelloBytes(2, {SourceOf("large")}), BatchBytes(std::move(batch), 2, 1)});
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("larger than max"));
}

// Groups within groups, which no field of ours uses: the parser stops at 100.
TEST_F(DoorsLimits, AMessageThatIsTooDeep) {
  Start("");
  std::string deep(200000, '\x1b');  // field 3, group begins
  const auto wrapped = [](char field, const std::string& body) {
    std::string out(1, field);
    for (size_t n = body.size();; n >>= 7) {
      out += static_cast<char>((n & 127) | (n > 127 ? 128 : 0));
      if (n <= 127) break;
    }
    return out + body;
  };
  const std::string as_batch = wrapped('\x12', deep), as_hello = wrapped('\x0a', deep);
  const grpc::Status in_batch =
      SendBytes(server_->Channel(), {HelloBytes(2, {SourceOf("deep")}), as_batch});
  EXPECT_EQ(in_batch.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(in_batch.error_message(), HasSubstr("is not a valid AgentMessage"));
  EXPECT_EQ(SendBytes(server_->Channel(), {as_hello}).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(SendBytes(server_->Channel(), {deep}).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

// 256 MiB of zeros are 256 KiB on the wire.
TEST_F(DoorsLimits, AMessageThatIsPacked) {
  Start("");
  const uint64_t before = PeakMiB(server_->process());
  for (const auto algorithm : {GRPC_COMPRESS_GZIP, GRPC_COMPRESS_DEFLATE}) {
    grpc::ChannelArguments arguments;
    arguments.SetCompressionAlgorithm(algorithm);
    arguments.SetMaxSendMessageSize(-1);
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    const auto channel = grpc::CreateCustomChannel(server_->address(),
                                                   grpc::InsecureChannelCredentials(), arguments);
    const grpc::Status status = SendBytes(channel, {std::string(256 << 20, '\0')});
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED) << status.error_message();
    EXPECT_THAT(status.error_message(), HasSubstr("is disabled"));
  }
  EXPECT_LT(PeakMiB(server_->process()), before + 128);
}

TEST_F(DoorsLimits, ACallWithoutHello) {
  // The limit also applies to TCP connections, so all clients must complete the handshake in time.
  Start("hello_seconds = 3.0\n");
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kPatience);
  const auto stub = v1::Ingest::NewStub(server_->Channel());
  const auto call = stub->Stream(&context);
  v1::ServerMessage answer;
  EXPECT_FALSE(call->Read(&answer));
  const grpc::Status status = call->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_THAT(status.error_message(), HasSubstr("no hello within 3 s"));
  EXPECT_EQ(server_->Info().dropped().at("slow-hellos"), 1u);
}

// TCP connections that never become calls. Each sends `states` byte by byte, and then nothing.
class Trickle {
 public:
  Trickle(const std::string& address, size_t count, std::string states)
      : states_(std::move(states)) {
    for (size_t i = 0; i < count; ++i) {
      sockets_.push_back(Dial(address));
      EXPECT_GE(sockets_.back(), 0);
    }
  }
  ~Trickle() {
    for (const int fd : sockets_) close(fd);
  }

  // Sends one more byte on each. Returns how many are still open.
  size_t Next() {
    size_t open = 0;
    for (const int fd : sockets_) {
      if (at_ < states_.size()) (void)!send(fd, &states_[at_], 1, MSG_NOSIGNAL);
      pollfd ready{fd, POLLIN | POLLRDHUP, 0};
      poll(&ready, 1, 0);
      open += (ready.revents & (POLLHUP | POLLRDHUP | POLLERR)) == 0;
    }
    ++at_;
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    return open;
  }

 private:
  const std::string states_;
  size_t at_ = 0;
  std::vector<int> sockets_;
};

TEST_F(DoorsLimits, AConnectionThatTrickles) {
  Start("hello_seconds = 5.0\n");
  Trickle slow(server_->address(), 200, "PRI * HTTP/2.0\r\n\r\nSM\r\n");
  const auto begun = std::chrono::steady_clock::now();
  // Before keepalive would end them (30 s), so that the handshake's limit must have done it.
  constexpr std::chrono::seconds kLate{25};
  size_t open = slow.Next();
  while (open > 0 && std::chrono::steady_clock::now() - begun < kLate) {
    open = slow.Next();
    EXPECT_TRUE(ListRuns(server_->Channel()).ok());  // meanwhile other clients are served
  }
  EXPECT_EQ(open, 0u) << "still open after " << kLate.count() << " s";
}

v1::Batch WithSeries(const v1::Source& source, int names, int first = 0) {
  v1::Batch batch = BatchOf(source);
  v1::SeriesSet& set = *batch.add_series_sets();
  set.set_id(static_cast<uint64_t>(first) + 1);
  v1::SeriesRows& rows = *batch.add_series();
  rows.set_set(set.id());
  rows.add_source(0);
  rows.add_step(1);
  for (int i = 0; i < names; ++i) {
    set.add_sites()->set_op("series." + std::to_string(first + i));
    rows.add_value(i);
  }
  return batch;
}

TEST_F(DoorsLimits, TenThousandSeriesNames) {
  Start("max_series = 5000\nmax_runs = 3\n");
  const v1::Source source = SourceOf("many");
  AgentStream many(*server_, 2, {source});
  many.Send(WithSeries(source, 10000), 1);
  EXPECT_THAT(many.RejectedReason(1),
              HasSubstr("run \"many\" has 5000 names of series and sites, which is the limit"));
  // Known names are still accepted. Names in evidence and in a hello count too.
  v1::Batch evidence = ScalarStep(source, 2);
  evidence.mutable_evidence(0)->mutable_site()->set_op("series.17");
  many.Send(std::move(evidence), 2);
  EXPECT_TRUE(many.Acknowledged(2));
  evidence = ScalarStep(source, 3);
  evidence.mutable_evidence(0)->mutable_site()->set_layer("another");
  many.Send(std::move(evidence), 3);
  EXPECT_THAT(many.RejectedReason(3), HasSubstr("(ingest.max_series)"));
  EXPECT_FALSE(many.over());
  EXPECT_EQ(server_->Info().dropped().at("rejected-evidence"), 10'001u) << "rows count, too";
  // The run can still report its losses, by at most 64 causes.
  const auto lost = [&](const std::string& cause, const std::string& op) {
    v1::Batch report = BatchOf(source);
    v1::Loss& loss = *report.add_losses();
    loss.set_cause(cause);
    loss.set_count(10'001);
    if (!op.empty()) loss.mutable_site()->set_op(op);
    return report;
  };
  many.Send(lost("rejected", "a-new-name"), 4);
  EXPECT_THAT(many.RejectedReason(4), HasSubstr("(ingest.max_series)"));
  many.Send(lost("rejected", ""), 5);
  EXPECT_TRUE(many.Acknowledged(5));
  EXPECT_TRUE(Eventually([&] { return server_->Run("many")->lost() == 10'001; }));
  for (uint64_t i = 6; i < 6 + 64; ++i) many.Send(lost("cause-" + std::to_string(i), ""), i);
  EXPECT_THAT(many.RejectedReason(69), HasSubstr("64 causes"));

  AgentStream third(*server_, 3, {SourceOf("third")});
  EXPECT_TRUE(third.Welcomed());
  AgentStream fourth(*server_, 4, {SourceOf("fourth")});
  const grpc::Status full = fourth.Ended();
  EXPECT_EQ(full.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(full.error_message(), HasSubstr("already knows 3 runs (ingest.max_runs)"));
}

// A batch may only have the runs of its hello, so that one sender's batches use up no names.
TEST_F(DoorsLimits, BatchesUseUpNoNamesOfRuns) {
  Start("max_runs = 4\n");
  AgentStream greedy(*server_, 2, {SourceOf("greedy-0")});
  for (uint64_t i = 1; i <= 10; ++i)
    greedy.Send(ScalarStep(SourceOf("greedy-" + std::to_string(i)), 1), i);
  EXPECT_THAT(greedy.RejectedReason(6), HasSubstr("expected a run of the hello"));
  ASSERT_TRUE(greedy.Acknowledged(10));
  for (const uint64_t stream : {3u, 4u}) {
    const v1::Source honest = SourceOf("honest-" + std::to_string(stream));
    AgentStream agent(*server_, stream, {honest});
    EXPECT_TRUE(agent.Welcomed()) << stream;
    agent.Send(ScalarStep(honest, 1), 1);
    EXPECT_TRUE(agent.Acknowledged(1)) << stream;
  }
  AgentStream last(*server_, 5, {SourceOf("last")});
  EXPECT_EQ(last.Ended().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
}

TEST_F(DoorsLimits, TenThousandSeriesNamesAreFineByDefault) {
  Start("");
  const v1::Source source = SourceOf("many");
  AgentStream many(*server_, 2, {source});
  many.Send(WithSeries(source, 10000), 1);
  many.Send(Goodbye(source, 1), 2);
  EXPECT_TRUE(many.Acknowledged(2));
  EXPECT_EQ(server_->Info().dropped().at("rejected-batches"), 0u);
}

TEST_F(DoorsLimits, BatchesThatAreMalformed) {
  Start("");
  const v1::Source source = SourceOf("bad");
  AgentStream bad(*server_, 2, {source});
  const struct {
    const char* what;
    std::function<void(v1::Batch&)> damage;
    const char* reason;
  } cases[] = {
      {"source index", [](v1::Batch& b) { b.mutable_evidence(0)->set_source(7); }, ".source: 7"},
      {"no site", [](v1::Batch& b) { b.mutable_evidence(0)->clear_site(); }, "names neither"},
      {"negative step", [](v1::Batch& b) { b.mutable_evidence(0)->set_step(-1); }, ".step: -1"},
      {"rank outside its world", [](v1::Batch& b) { b.mutable_sources(0)->set_rank(9); },
       "rank 9 of 1"},
      {"a world beyond any cluster",
       [](v1::Batch& b) { b.mutable_sources(0)->set_world_size(4'000'000'000u); },
       "at most 131072"},
      {"a role beyond any",
       [](v1::Batch& b) { b.mutable_sources(0)->set_role(static_cast<v1::Role>(4711)); },
       "role 4711, expected one from 0 to 63"},
      {"a name too long",
       [](v1::Batch& b) { b.mutable_evidence(0)->mutable_site()->set_op(std::string(600, 'x')); },
       "at most 512"},
      {"a tensor that lies",
       [](v1::Batch& b) {
         v1::Tensor& t =
             *b.mutable_evidence(0)->mutable_tensor()->mutable_sample()->mutable_values();
         t.set_dtype(v1::DTYPE_F32);
         t.add_shape(int64_t{1} << 62);
         t.add_shape(8);
       },
       "the shape overflows"},
      {"rows of an undeclared set", [](v1::Batch& b) { b.add_series()->set_set(99); },
       "was not declared"},
  };
  uint64_t sequence = 0;
  for (const auto& c : cases) {
    v1::Batch batch = ScalarStep(source, 1);
    c.damage(batch);
    bad.Send(std::move(batch), ++sequence);
    EXPECT_THAT(bad.RejectedReason(sequence), HasSubstr(c.reason)) << c.what;
  }
  EXPECT_FALSE(bad.over());
  EXPECT_EQ(server_->Info().dropped().at("rejected-batches"), std::size(cases));
}

// Well-formed but absurd messages: numbers at the ends of their ranges must cost neither time nor
// memory.
TEST_F(DoorsLimits, BatchesThatAreAbsurd) {
  Start("");
  const uint64_t before = PeakMiB(server_->process());
  constexpr int64_t kFar = INT64_MAX;
  uint64_t id = 100;
  for (const uint32_t world : {1u, 131072u}) {
    for (const int64_t step : {int64_t{0}, int64_t{1} << 40, kFar - 1, kFar}) {
      const v1::Source source = SourceOf("absurd-" + std::to_string(id), world - 1, world, id % 7);
      AgentStream stream(*server_, id++, {source});
      v1::Batch batch = ScalarStep(source, step);
      stream.Send(batch, 1);
      batch.mutable_progress(0)->set_complete_through(INT64_MIN);
      stream.Send(batch, 2);
      batch = ScalarStep(source, 5);
      batch.mutable_progress(0)->set_complete_through(kFar);
      batch.mutable_progress(0)->set_newest_step(INT64_MIN);
      stream.Send(batch, 3);
      EXPECT_TRUE(stream.Acknowledged(3)) << world << " " << step;
    }
  }
  EXPECT_TRUE(Eventually([&] { return server_->Run("absurd-100").has_value(); }));
  EXPECT_LT(PeakMiB(server_->process()), before + 256);
}

}  // namespace
}  // namespace plumbline::test
