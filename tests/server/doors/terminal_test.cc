// Names of a hostile trainer: no command and no log line sends their control characters to a
// terminal.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/doors/support.h"

namespace plumbline::test {
namespace {

using testing::HasSubstr;

// A colour, a title, a paste into the clipboard (OSC 52), a new line, DEL, C1 CSI, a bidi override,
// a zero-width space, a byte order mark.
const char kHostile[] =
    "x\x1b[31m\x1b]0;title\x07\x1b]52;c;ZXZpbA==\x07\nplumb: all is well\r\t\x7f\xc2\x9b"
    "2J\xe2\x80\xae\xe2\x80\x8b\xef\xbb\xbfz";

// Returns all control characters: C0 except our own newlines, DEL, C1, bidi and invisible
// characters.
std::string Steering(const std::string& text) {
  std::string found;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    const auto next = [&](size_t n) {
      return i + n < text.size() ? static_cast<unsigned char>(text[i + n]) : 0u;
    };
    const bool c1 = c == 0xC2 && next(1) >= 0x80 && next(1) < 0xA0;
    const bool general = c == 0xE2 && ((next(1) == 0x80 && next(2) >= 0x8B && next(2) <= 0x8F) ||
                                       (next(1) == 0x80 && next(2) >= 0xA8 && next(2) <= 0xAE));
    const bool mark = c == 0xEF && next(1) == 0xBB && next(2) == 0xBF;
    if ((c < 0x20 && c != '\n') || c == 0x7F || c1 || general || mark) {
      found += " at " + std::to_string(i) + ": " + std::to_string(c);
    }
  }
  return found;
}

class DoorsTerminal : public testing::Test {
 protected:
  void SetUp() override {
    server_ = StartWith(folder_, "[log]\nlevel = 'trace'\n", {"--data", folder_.File("data")});
    ASSERT_FALSE(server_->address().empty()) << server_->process().errors();
    const std::string valid = kHostile;
    v1::Source source = SourceOf(valid);
    source.set_host(valid);
    source.set_tool_version(valid);
    AgentStream agent(*server_, 7, {source});
    v1::Batch batch = LeakingStep(source, 1, valid);
    batch.mutable_evidence(0)->mutable_site()->set_op(valid);
    v1::Loss& loss = *batch.add_losses();
    loss.set_cause(valid);
    loss.set_count(3);
    agent.Send(std::move(batch), 1);
    batch = ScalarStep(source, 2);
    batch.mutable_evidence(0)->mutable_site()->set_layer(valid);
    agent.Send(std::move(batch), 2);
    // Refused, and reported in the log and to the agent.
    batch = ScalarStep(source, 3);
    batch.mutable_evidence(0)->mutable_site()->set_op(valid + std::string(600, 'x'));
    agent.Send(std::move(batch), 3);
    ASSERT_TRUE(agent.Acknowledged(3));
    // claimed by another process while this one is connected
    AgentStream claimed(*server_, 9, {source});
    EXPECT_EQ(claimed.Ended().error_code(), grpc::StatusCode::ALREADY_EXISTS);
    agent.Send(Goodbye(source, 3), 4);
    ASSERT_TRUE(agent.Acknowledged(4));
    agent.Finish();
    AgentStream again(*server_, 8, {source});
    ASSERT_TRUE(again.Welcomed());
    ASSERT_TRUE(Eventually([&] { return !server_->Incidents(valid).empty(); }));
  }

  TempFolder folder_;
  std::unique_ptr<Plumbd> server_;
};

TEST_F(DoorsTerminal, NoCommandPassesOnWhatSteers) {
  const std::string run = kHostile;
  const std::string fingerprint = server_->Incidents(run)[0].finding().fingerprint();
  const std::vector<std::vector<std::string>> commands = {
      {"runs"},
      {"query", "incidents"},
      {"query", "verdicts"},
      {"query", "info"},
      {"query", "history", fingerprint},
      {"query", "incident", fingerprint, "--acknowledge", "--reason", run, "--who", run},
      {"query", "history", fingerprint},
      {"query", "incident", run, "--acknowledge", "--reason", "x"},
      {"query", "series", "--run", run},
      {"query", "series", "*", "--run", run},
      {"query", "series", "--run", run + "?"},
      {"watch", "--once"},
      {"watch", "--once", "--run", run},
  };
  for (const char* format : {"text", "json", "csv"}) {
    for (std::vector<std::string> command : commands) {
      if (format == std::string("csv") && (command.size() < 3 || command[2] != "*")) continue;
      command.insert(command.begin(), PLUMB_PROGRAM);
      command.insert(command.end(), {"--server", server_->address(), "--format", format});
      const Ended plumb = RunToEnd(command);
      EXPECT_EQ(Steering(plumb.output), "") << command[1] << " " << command[2] << " " << format;
      EXPECT_EQ(Steering(plumb.errors), "") << command[1] << " " << command[2] << " " << format;
      EXPECT_NE(plumb.output + plumb.errors, "") << command[1];
    }
  }
  for (const char* format : {"text", "json", "sarif", "html"}) {
    const Ended audit = RunToEnd({PLUMB_PROGRAM, "audit", "--server", server_->address(), "--run",
                                  run, "--format", format, "--quiet"});
    EXPECT_EQ(Steering(audit.output), "") << format;
    EXPECT_EQ(Steering(audit.errors), "") << format;
  }
}

TEST_F(DoorsTerminal, NeitherDoesTheLog) {
  server_->Stop();
  EXPECT_THAT(server_->process().errors(), HasSubstr("refused"));
  EXPECT_EQ(Steering(server_->process().errors()), "");
  EXPECT_THAT(server_->process().errors(), testing::Not(HasSubstr("\nplumb: all is well")));
}

}  // namespace
}  // namespace plumbline::test
