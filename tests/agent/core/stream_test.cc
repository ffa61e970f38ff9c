// A run that streams to a real gRPC server that stops, restarts, forgets, refuses or hangs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <string>
#include <thread>

#include "tests/agent/core/streamed_run.h"
#include "tests/support/eventually.h"
#include "tests/transport/slow_link.h"

namespace plumbline::agent {
namespace {

using namespace testing;  // NOLINT: the tests' own
using std::chrono::milliseconds;

void ExpectAllArrived(const RecordingServer& server, uint64_t items, int64_t last_step) {
  const Account account = AccountOf(server.Batches());
  EXPECT_EQ(account.items + account.lost, items);
  EXPECT_EQ(account.complete_through, last_step);
  EXPECT_TRUE(account.finished);
}

TEST(Stream, EverythingArrivesInOrder) {
  RecordingServer server;
  TestRun run(ServerOptions(server.target()));
  RouterCall call(32, 8, 2);
  Train(&run, &call, 0, 200, milliseconds(1));
  EXPECT_EQ(run.Close(), PLUMBLINE_OK) << run.error();
  ExpectAllArrived(server, 600, 199);
  const auto batches = server.Batches();
  EXPECT_EQ(batches.front().sequence(), 1u);
  const Account account = AccountOf(batches);
  EXPECT_EQ(account.lost, 0u);
  EXPECT_GT(account.samples, 8u);
  EXPECT_EQ(account.declared.at({"layers.0", "routing"}), "routing");
  EXPECT_EQ(account.declared.at({"", "loss"}), "scalar");
  for (const auto& b : batches) EXPECT_LE(b.evidence_size(), 512);
  EXPECT_EQ(server.duplicates(), 0u);
}

TEST(Stream, RecordAndServerHoldTheSameEvidence) {
  TempFolder dir;
  RecordingServer server;
  AgentOptions options = ServerOptions(server.target());
  options.record_dir = dir.path();
  TestRun run(options);
  RouterCall call(32, 8, 2);
  Train(&run, &call, 0, 100, milliseconds(1));
  EXPECT_EQ(run.Close(), PLUMBLINE_OK) << run.error();
  const auto sent = server.Batches();
  const auto written = ReadRecord(FirstRecord(dir.path()));
  ASSERT_EQ(sent.size(), written.size());
  for (size_t i = 0; i < sent.size(); ++i) {
    v1::Batch a = sent[i], b = written[i];
    EXPECT_EQ(a.sequence(), b.sequence());
    a.clear_stream_id();
    b.clear_stream_id();
    EXPECT_EQ(a.SerializeAsString(), b.SerializeAsString());
  }
}

// The server is killed and restarted three times during the run, and each time loses the batches
// that it had not acknowledged. At the end every batch is present once, and the trainer was not
// slowed.
TEST(Stream, ServerKilledAndRestartedMidway) {
  ServerBehaviour slow;
  slow.ack_every = 8;
  RecordingServer server(slow);
  TestRun run(ServerOptions(server.target()));
  RouterCall call(32, 8, 2);
  double longest = 0;
  int64_t step = 0;
  for (int round = 0; round < 3; ++round) {
    longest = std::max(longest, Train(&run, &call, step, 150, milliseconds(1)));
    step += 150;
    // Each life of the server must include a connection from the run.
    ASSERT_TRUE(test::Eventually([&] { return server.hellos() > static_cast<uint64_t>(round); }));
    server.Kill(false);
    longest = std::max(longest, Train(&run, &call, step, 150, milliseconds(1)));
    step += 150;
    server.Start();
  }
  longest = std::max(longest, Train(&run, &call, step, 100, milliseconds(1)));
  step += 100;
  EXPECT_EQ(run.Close(20000), PLUMBLINE_OK) << run.error();
  ExpectAllArrived(server, static_cast<uint64_t>(3 * step), step - 1);
  EXPECT_EQ(AccountOf(server.Batches()).lost, 0u);
  EXPECT_GE(server.hellos(), 4u);
  EXPECT_LT(longest, 1.0) << "a step waited for the server";
}

// A server that is absent at first is not an error; when it appears, it gets everything.
TEST(Stream, ServerThatComesLater) {
  RecordingServer server;
  const std::string target = server.target();
  server.Kill(true);
  TestRun run(ServerOptions(target));
  RouterCall call(32, 8, 2);
  EXPECT_LT(Train(&run, &call, 0, 100, milliseconds(1)), 1.0);
  server.Start();
  EXPECT_EQ(run.Close(20000), PLUMBLINE_OK) << run.error();
  ExpectAllArrived(server, 300, 99);
  EXPECT_EQ(AccountOf(server.Batches()).lost, 0u);
}

TEST(Stream, WithoutAServerCloseIsShortAndStatesWhatIsMissing) {
  RecordingServer server;
  const std::string target = server.target();
  server.Kill(true);
  TestRun run(ServerOptions(target));
  RouterCall call(32, 8, 2);
  Train(&run, &call, 0, 20, milliseconds(0));
  // Everything is measured and nothing is delivered. Before this point, close reports another
  // error.
  plumbline_error_t error{};
  ASSERT_TRUE(test::Eventually([&] {
    run.run().Flush(50, &error);
    return std::string(error.text).find("has not acknowledged") != std::string::npos;
  }));
  const auto start = Clock::now();
  EXPECT_EQ(run.Close(1000), PLUMBLINE_DEADLINE_EXCEEDED);
  EXPECT_LT(Seconds(Clock::now() - start), 10.0);
  EXPECT_THAT(run.error(), ::testing::HasSubstr("60 evidence items"));
  EXPECT_THAT(run.error(), ::testing::HasSubstr(target));
}

// The queue overflows while the server is away: the missing items are exactly those reported lost.
TEST(Stream, QueueOverflowIsCountedExactly) {
  RecordingServer server;
  const std::string target = server.target();
  server.Kill(true);
  AgentOptions options = ServerOptions(target);
  options.queue_bytes = 60'000;
  options.queue_batches = 40;
  TestRun run(options);
  RouterCall call(64, 8, 2);
  plumbline_error_t error;
  for (int64_t step = 0; step < 400; ++step) {
    Train(&run, &call, step, 1, milliseconds(0));
    if (step % 5 == 0) run.run().Flush(0, &error);
    if (step % 20 == 0) std::this_thread::sleep_for(milliseconds(5));
    const transport::Outbox::State state = run.run().outbox()->state();
    ASSERT_LE(state.bytes, 60'000u);
    ASSERT_LE(state.batches, 40u);
  }
  server.Start();
  EXPECT_EQ(run.Close(20000), PLUMBLINE_INTERNAL);
  EXPECT_THAT(run.error(), ::testing::HasSubstr("did not fit while the server was not reachable"));
  ExpectAllArrived(server, 1200, 399);
  const Account account = AccountOf(server.Batches());
  EXPECT_GT(account.items, 0u);
  EXPECT_GT(account.lost_by_cause.at("queue-full"), 0u);
  for (const SiteKey& site : {SiteKey{"layers.0", "routing"}, SiteKey{"", "loss"}}) {
    const auto lost = account.lost_by_site.find(site);
    const auto held = account.items_by_site.find(site);
    EXPECT_EQ((lost == account.lost_by_site.end() ? 0 : lost->second) +
                  (held == account.items_by_site.end() ? 0 : held->second),
              400u);
  }
}

TEST(Stream, AServerThatForgotGetsItsSitesAgain) {
  RecordingServer server;
  TestRun run(ServerOptions(server.target()));
  RouterCall call(32, 8, 2);
  Train(&run, &call, 0, 50, milliseconds(2));
  plumbline_error_t error;
  ASSERT_EQ(run.run().Flush(20000, &error), PLUMBLINE_OK) << error.text;
  server.Kill(true);
  server.ForgetEverything();
  server.Start();
  Train(&run, &call, 50, 50, milliseconds(10));
  // The sequences begin at the agent's position: no check for gaps here.
  EXPECT_TRUE(test::Eventually([&] {
    std::set<SiteKey> declared;
    for (const auto& b : server.Batches()) {
      for (const auto& d : b.declarations()) declared.insert({d.site().layer(), d.site().op()});
    }
    return declared.size() == 3;
  }));
  EXPECT_EQ(run.Close(20000), PLUMBLINE_OK) << run.error();
}

TEST(Stream, RejectedBatchesAreReportedLost) {
  ServerBehaviour strict;
  int seen = 0;
  strict.refuse = [&seen](const v1::Batch& b) { return b.evidence_size() != 0 && ++seen % 3 == 0; };
  RecordingServer server(strict);
  ::testing::internal::CaptureStderr();
  TestRun run(ServerOptions(server.target()));
  RouterCall call(32, 8, 2);
  plumbline_error_t error;
  for (int64_t step = 0; step < 30; ++step) {
    Train(&run, &call, step, 1, milliseconds(0));
    run.run().Flush(10000, &error);
  }
  const std::string stated = ::testing::internal::GetCapturedStderr();  // while it runs
  EXPECT_THAT(stated, ::testing::HasSubstr(server.target() + " refuses evidence of this process: "
                                                             "refused by the test"));
  EXPECT_EQ(stated.find("refuses evidence"), stated.rfind("refuses evidence")) << "once";
  EXPECT_EQ(run.Close(20000), PLUMBLINE_INTERNAL);
  EXPECT_THAT(run.error(), ::testing::HasSubstr("10 batches were refused by"));
  ASSERT_TRUE(server.WaitFor([](const Account& a) { return a.items + a.lost == 90; }));
  const Account account = AccountOf(server.Batches());
  EXPECT_GT(account.lost_by_cause.at("rejected"), 0u);
  EXPECT_EQ(account.lost, account.lost_by_cause.at("rejected"));
}

// When ten thousand processes connect at once, handshakes are slow, and connecting again makes it
// worse.
TEST(Stream, AHandshakeMayTakeLongerThanTheBackoff) {
  RecordingServer server;
  transport::testing::SlowLink link(server.target(), milliseconds(1000));
  ASSERT_TRUE(link.ok());
  TestRun run(ServerOptions(link.address()));
  RouterCall call(32, 8, 2);
  Train(&run, &call, 0, 20, milliseconds(1));
  EXPECT_EQ(run.Close(), PLUMBLINE_OK) << run.error();
  ExpectAllArrived(server, 60, 19);
  EXPECT_EQ(link.accepted(), 1);
}

TEST(Stream, HeartbeatsWhileNothingHappens) {
  RecordingServer server;
  AgentOptions options = ServerOptions(server.target());
  options.heartbeat_ms = 100;
  TestRun run(options);
  EXPECT_TRUE(test::Eventually([&] { return server.heartbeats() >= 3; }));
  EXPECT_FALSE(server.heartbeat().any_step());
  RouterCall call(32, 8, 2);
  Train(&run, &call, 0, 20, milliseconds(0));
  plumbline_error_t error;
  ASSERT_EQ(run.run().Flush(20000, &error), PLUMBLINE_OK) << error.text;
  // A process that ended during the steps reports less.
  EXPECT_TRUE(test::Eventually([&] {
    const v1::Heartbeat beat = server.heartbeat();
    return beat.any_step() && beat.newest_step() == 19 && beat.oldest_unsent_step() == 20 &&
           beat.steps_ended() == 20;
  })) << "all is sent";
  // The run is between two steps and in no stage, so the loop may be finished.
  EXPECT_EQ(server.heartbeat().open_stage(), v1::Span::KIND_OTHER);
  // How long the trainer has been idle, and in which stage.
  uint64_t span = 0;
  ASSERT_EQ(run.run().SpanBegin(20, "checkpoint", "save", &span, &error), PLUMBLINE_OK);
  const auto wait_for = [&](v1::Span::Kind stage) {
    return test::Eventually([&] { return server.heartbeat().open_stage() == stage; });
  };
  EXPECT_TRUE(wait_for(v1::Span::KIND_CHECKPOINT));
  EXPECT_GT(server.heartbeat().still_ns(), 0u);
  ASSERT_EQ(run.run().SpanEnd(span, &error), PLUMBLINE_OK);
  EXPECT_TRUE(wait_for(v1::Span::KIND_OTHER));
  EXPECT_EQ(server.heartbeat().last_stage(), v1::Span::KIND_CHECKPOINT);
  EXPECT_FALSE(server.heartbeat().in_step());
  ASSERT_EQ(run.run().SpanBegin(20, "pause", "pause", &span, &error), PLUMBLINE_OK);
  EXPECT_TRUE(wait_for(v1::Span::KIND_PAUSE));
  ASSERT_EQ(run.run().SpanEnd(span, &error), PLUMBLINE_OK);
  EXPECT_TRUE(wait_for(v1::Span::KIND_OTHER));
  // Within a stage of another kind, and within a step, it is not finished.
  ASSERT_EQ(run.run().SpanBegin(20, "data", "loader", &span, &error), PLUMBLINE_OK);
  EXPECT_TRUE(wait_for(v1::Span::KIND_UNSPECIFIED));
  ASSERT_EQ(run.run().SpanEnd(span, &error), PLUMBLINE_OK);
  EXPECT_TRUE(wait_for(v1::Span::KIND_OTHER));
  ASSERT_EQ(run.run().StepBegin(20), PLUMBLINE_OK);
  EXPECT_TRUE(wait_for(v1::Span::KIND_UNSPECIFIED));
  // Once a step has stages: it may be finished between them, and within the forward stage if that
  // is the only one.
  ASSERT_EQ(run.run().SpanBegin(20, "backward", "backward", &span, &error), PLUMBLINE_OK);
  ASSERT_EQ(run.run().SpanEnd(span, &error), PLUMBLINE_OK);
  EXPECT_TRUE(wait_for(v1::Span::KIND_OTHER));
  ASSERT_EQ(run.run().SpanBegin(20, "optimizer", "optimizer", &span, &error), PLUMBLINE_OK);
  EXPECT_TRUE(wait_for(v1::Span::KIND_UNSPECIFIED));
  ASSERT_EQ(run.run().SpanEnd(span, &error), PLUMBLINE_OK);
  ASSERT_EQ(run.run().SpanBegin(20, "forward", "forward", &span, &error), PLUMBLINE_OK);
  EXPECT_TRUE(wait_for(v1::Span::KIND_OTHER));
  ASSERT_EQ(run.run().SpanEnd(span, &error), PLUMBLINE_OK);
  // The same with stages by marks.
  const auto marks = std::make_unique<plumbline_marks_t>();
  ASSERT_EQ(run.run().Marks(marks.get()), PLUMBLINE_OK);
  plumbline_mark(marks.get(), PLUMBLINE_STAGE_OPTIMIZER);
  EXPECT_TRUE(wait_for(v1::Span::KIND_UNSPECIFIED));
  plumbline_mark(marks.get(), PLUMBLINE_STAGE_FORWARD);
  EXPECT_TRUE(wait_for(v1::Span::KIND_OTHER));
  // A rank that waits for others is within a collective.
  plumbline_mark(marks.get(), PLUMBLINE_STAGE_COLLECTIVE);
  EXPECT_TRUE(wait_for(v1::Span::KIND_COLLECTIVE));
  plumbline_mark(marks.get(), PLUMBLINE_STAGE_NONE);
  ASSERT_EQ(run.run().StepEnd(20), PLUMBLINE_OK);
  // A wait for data between steps is not an end.
  plumbline_mark(marks.get(), PLUMBLINE_STAGE_DATA);
  EXPECT_TRUE(wait_for(v1::Span::KIND_UNSPECIFIED));
  EXPECT_EQ(run.Close(), PLUMBLINE_OK);
}

// If a server accepts and never answers, the run connects again, nothing is lost, and no call
// waits.
TEST(Stream, SilentServerIsDialledAgain) {
  ServerBehaviour silent;
  silent.ack = false;
  RecordingServer server(silent);
  AgentOptions options = ServerOptions(server.target());
  options.ack_timeout_ms = 300;
  TestRun run(options);
  RouterCall call(32, 8, 2);
  Train(&run, &call, 0, 10, milliseconds(1));
  EXPECT_TRUE(test::Eventually([&] { return server.hellos() >= 2; }));
  // Each welcome states up to which number the server holds batches, which is also an
  // acknowledgement.
  EXPECT_EQ(run.Close(20000), PLUMBLINE_OK) << run.error();
  ExpectAllArrived(server, 30, 9);
}

TEST(Stream, ManyRunsOneAfterAnother) {
  for (int i = 0; i < 20; ++i) {
    RecordingServer server;
    TestRun run(ServerOptions(server.target()));
    RouterCall call(8, 4, 1);
    Train(&run, &call, 0, 5, milliseconds(0));
    ASSERT_EQ(run.Close(20000), PLUMBLINE_OK) << run.error();
    ExpectAllArrived(server, 15, 4);
  }
}

}  // namespace
}  // namespace plumbline::agent
