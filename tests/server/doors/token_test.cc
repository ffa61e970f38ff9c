// Calls that tokens refuse: unknown, expired, revoked, of another scope, for another run; and that
// no token is in a place that others can read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "tests/server/doors/certificates.h"
#include "tests/server/doors/support.h"
#include "tests/support/files.h"

namespace plumbline::test {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
    text.replace(at, from.size(), to);
  }
  return text;
}

class DoorsToken : public testing::Test {
 protected:
  std::string Entry(const std::string& name, const std::string& tokens, const std::string& scopes,
                    const std::string& runs = "['*']") {
    return "[[access]]\nname = '" + name + "'\ntoken_file = '" +
           WriteSecret(folder_, name + ".tokens", tokens) + "'\nscopes = " + scopes +
           "\nruns = " + runs + "\n";
  }
  static std::shared_ptr<grpc::Channel> As(const Plumbd& server, const TestToken& token) {
    return ChannelTo(server.address(), {"", "", "", token.file});
  }
  static std::string Trimmed(std::string line) {
    while (!line.empty() && line.back() == '\n') line.pop_back();
    return line;
  }

  TempFolder folder_;
  const TestToken token_ = NewToken(folder_, "token"), other_ = NewToken(folder_, "other");
};

TEST_F(DoorsToken, OnlyAKnownTokenWithTheScopeComesIn) {
  const auto server = StartWith(folder_, Entry("readers", token_.line, "['read']") +
                                             Entry("writers", other_.line, "['write']"));
  ASSERT_FALSE(server->address().empty()) << server->process().errors();
  EXPECT_TRUE(ListRuns(As(*server, token_)).ok());
  EXPECT_EQ(ListRuns(server->Channel()).error_code(), grpc::StatusCode::UNAUTHENTICATED);
  const grpc::Status unknown = ListRuns(As(*server, NewToken(folder_, "unknown")));
  EXPECT_EQ(unknown.error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_THAT(unknown.error_message(), HasSubstr("does not know this token"));

  const grpc::Status writer_reads = ListRuns(As(*server, other_));
  EXPECT_EQ(writer_reads.error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_THAT(writer_reads.error_message(), HasSubstr("needs the scope read"));
  EXPECT_EQ(Silence(As(*server, token_)).error_code(), grpc::StatusCode::PERMISSION_DENIED);
  AgentStream reader_writes(As(*server, token_), 3, {SourceOf("run")});
  EXPECT_EQ(reader_writes.Ended().error_code(), grpc::StatusCode::PERMISSION_DENIED);
  AgentStream writer(As(*server, other_), 4, {SourceOf("run")});
  EXPECT_TRUE(writer.Welcomed());
}

TEST_F(DoorsToken, AnExpiredTokenIsRefusedAndItsStreamEnds) {
  const auto in = [](int seconds) {
    const time_t then = time(nullptr) + seconds;
    char text[32];
    std::tm tm{};
    std::strftime(text, sizeof text, " expires=%Y-%m-%dT%H:%M:%SZ", gmtime_r(&then, &tm));
    return std::string(text);
  };
  const auto soon = [&](int seconds) { return Trimmed(token_.line) + in(seconds) + "  # soon"; };
  const auto server = StartWith(
      folder_, Entry("soon", soon(3600), "['read', 'write']") +
                   Entry("past", Trimmed(other_.line) + " expires=2020-01-01", "['read']"));
  ASSERT_FALSE(server->address().empty()) << server->process().errors();
  const grpc::Status past = ListRuns(As(*server, other_));
  EXPECT_EQ(past.error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_THAT(past.error_message(), HasSubstr("has expired"));
  AgentStream stream(As(*server, token_), 9, {SourceOf("run")});
  ASSERT_TRUE(stream.Welcomed());
  WriteSecret(folder_, "soon.tokens", soon(1));  // the file is checked each second
  EXPECT_EQ(stream.Ended().error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_THAT(ListRuns(As(*server, token_)).error_message(), HasSubstr("has expired"));
}

TEST_F(DoorsToken, ARevokedTokenIsReplayedInVain) {
  const auto server =
      StartWith(folder_, Entry("agents", token_.line + other_.line, "['read', 'write']"));
  ASSERT_FALSE(server->address().empty()) << server->process().errors();
  const v1::Source source = SourceOf("run");
  AgentStream revoked(As(*server, token_), 9, {source});
  AgentStream stays(As(*server, other_), 10, {SourceOf("run", 1, 2)});
  ASSERT_TRUE(revoked.Welcomed());
  ASSERT_TRUE(stays.Welcomed());
  revoked.Send(ScalarStep(source, 1), 1);
  ASSERT_TRUE(revoked.Acknowledged(1));

  WriteSecret(folder_, "agents.tokens", other_.line);
  const grpc::Status ended = revoked.Ended();
  EXPECT_EQ(ended.error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_THAT(ended.error_message(), HasSubstr("was revoked"));
  EXPECT_EQ(ListRuns(As(*server, token_)).error_code(), grpc::StatusCode::UNAUTHENTICATED);
  stays.Send(ScalarStep(SourceOf("run", 1, 2), 1), 1);
  EXPECT_TRUE(stays.Acknowledged(1));

  // A file that cannot be trusted lets no caller in, until it is fixed.
  chmod(folder_.File("agents.tokens").c_str(), 0644);
  EXPECT_TRUE(Eventually([&] { return !ListRuns(As(*server, other_)).ok(); }));
  EXPECT_EQ(stays.Ended().error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_THAT(server->process().errors(), HasSubstr("is refused until this is fixed"));
  chmod(folder_.File("agents.tokens").c_str(), 0600);
  EXPECT_TRUE(Eventually([&] { return ListRuns(As(*server, other_)).ok(); }));
}

TEST_F(DoorsToken, AWriterWritesItsRunsAlone) {
  const auto server = StartWith(folder_, Entry("mine", token_.line, "['write']", "['mine-*']") +
                                             Entry("all", other_.line, "['read', 'write']"));
  ASSERT_FALSE(server->address().empty()) << server->process().errors();
  AgentStream victim(As(*server, other_), 1, {SourceOf("theirs")});
  ASSERT_TRUE(victim.Welcomed());

  AgentStream hello(As(*server, token_), 2, {SourceOf("theirs", 1, 2)});
  const grpc::Status at_hello = hello.Ended();
  EXPECT_EQ(at_hello.error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_THAT(at_hello.error_message(),
              HasSubstr("run \"theirs\": the access entry mine does not grant write over it"));

  AgentStream later(As(*server, token_), 3, {SourceOf("mine-1")});
  ASSERT_TRUE(later.Welcomed());
  later.Send(ScalarStep(SourceOf("mine-1"), 1), 1);
  ASSERT_TRUE(later.Acknowledged(1));
  later.Send(ScalarStep(SourceOf("theirs", 1, 2), 1), 2);
  EXPECT_EQ(later.Ended().error_code(), grpc::StatusCode::PERMISSION_DENIED);

  // Uses the stream id of another sender. If this were accepted, that stream would end and its
  // numbers would be used up.
  AgentStream thief(As(*server, token_), 1, {SourceOf("mine-1")});
  EXPECT_EQ(thief.Ended().error_code(), grpc::StatusCode::PERMISSION_DENIED);

  victim.Send(ScalarStep(SourceOf("theirs"), 1), 1);
  EXPECT_TRUE(victim.Acknowledged(1));
  EXPECT_FALSE(victim.over());
}

TEST_F(DoorsToken, OnACallOfManyOnlyTheStreamEndsThatWritesElsewhere) {
  const auto server = StartWith(folder_, Entry("mine", token_.line, "['write']", "['mine-*']"));
  ASSERT_FALSE(server->address().empty()) << server->process().errors();
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kPatience);
  const auto stub = v1::Ingest::NewStub(As(*server, token_));
  const auto call = stub->Stream(&context);
  const auto hello = [&](uint64_t id, const std::string& run) {
    v1::AgentMessage message;
    message.ParseFromString(HelloBytes(id, {SourceOf(run)}));
    message.mutable_hello()->set_shared(true);
    call->Write(message);
  };
  hello(1, "mine-1");
  hello(2, "theirs");
  v1::AgentMessage batch;
  batch.ParseFromString(BatchBytes(ScalarStep(SourceOf("mine-1"), 1), 1, 1));
  call->Write(batch);
  bool refused = false, held = false;
  v1::ServerMessage answer;
  while (!(refused && held) && call->Read(&answer)) {
    const v1::Ack& ack = answer.ack();
    refused |= ack.stream_id() == 2 && ack.ended_code() == grpc::StatusCode::PERMISSION_DENIED;
    held |= ack.stream_id() == 1 && ack.sequence() == 1;
  }
  EXPECT_TRUE(refused);
  EXPECT_TRUE(held);
}

TEST_F(DoorsToken, AReaderSeesItsRunsAlone) {
  const TestToken writer = NewToken(folder_, "writer");
  const auto server =
      StartWith(folder_, Entry("mine", token_.line, "['read', 'admin']", "['mine']") +
                             Entry("all", other_.line, "['read', 'admin']") +
                             Entry("writer", writer.line, "['write']"));
  ASSERT_FALSE(server->address().empty()) << server->process().errors();
  for (const char* run : {"mine", "theirs"}) {
    AgentStream stream(As(*server, writer), run[0], {SourceOf(run)});
    stream.Send(LeakingStep(SourceOf(run), 1), 1);
    ASSERT_TRUE(stream.Acknowledged(1));
  }
  const auto incidents = [&](const TestToken& token) {
    grpc::ClientContext context;
    v1::ListIncidentsResponse response;
    (void)v1::Query::NewStub(As(*server, token))->ListIncidents(&context, {}, &response);
    return response;
  };
  ASSERT_TRUE(Eventually([&] { return incidents(other_).incidents_size() == 2; }));
  const v1::ListIncidentsResponse mine = incidents(token_);
  ASSERT_EQ(mine.incidents_size(), 1);
  EXPECT_EQ(mine.incidents(0).finding().site().run(), "mine");
  std::string foreign;
  const v1::ListIncidentsResponse all = incidents(other_);
  for (const v1::Incident& incident : all.incidents()) {
    if (incident.finding().site().run() == "theirs") foreign = incident.finding().fingerprint();
  }

  grpc::ClientContext runs_context;
  v1::ListRunsResponse runs;
  EXPECT_TRUE(v1::Query::NewStub(As(*server, token_))->ListRuns(&runs_context, {}, &runs).ok());
  ASSERT_EQ(runs.runs_size(), 1);
  EXPECT_EQ(runs.runs(0).run(), "mine");

  grpc::ClientContext history_context;
  v1::ListIncidentHistoryRequest history;
  history.set_fingerprint(foreign);
  v1::ListIncidentHistoryResponse unused;
  EXPECT_EQ(v1::Query::NewStub(As(*server, token_))
                ->ListIncidentHistory(&history_context, history, &unused)
                .error_code(),
            grpc::StatusCode::NOT_FOUND);
  grpc::ClientContext capsule_context;
  v1::RequestCapsuleRequest capsule;
  capsule.set_fingerprint(foreign);
  v1::RequestCapsuleResponse no_capsule;
  EXPECT_EQ(v1::Query::NewStub(As(*server, token_))
                ->RequestCapsule(&capsule_context, capsule, &no_capsule)
                .error_code(),
            grpc::StatusCode::NOT_FOUND);
  // The answer is the same as for a missing incident; also for the beginning of a fingerprint.
  for (const size_t digits : {foreign.size(), size_t{8}}) {
    const std::string theirs = foreign.substr(0, digits), nobodys(digits, '0');
    const grpc::Status silenced = Silence(As(*server, token_), theirs);
    const grpc::Status made_up = Silence(As(*server, token_), nobodys);
    EXPECT_EQ(silenced.error_code(), made_up.error_code());
    EXPECT_EQ(silenced.error_message(), Replaced(made_up.error_message(), nobodys, theirs));
  }

  // The history has the verified access entry, not only the name in the request.
  EXPECT_TRUE(Silence(As(*server, other_), foreign).ok());
  bool stated = false;
  const v1::ListIncidentsResponse afterwards = incidents(other_);
  for (const v1::IncidentStatus& status : afterwards.status()) {
    stated |= status.who() == "tester (all)";
  }
  EXPECT_TRUE(stated);

  // A watch of all runs shows only those that the caller may read.
  grpc::ClientContext watch_context;
  watch_context.set_deadline(std::chrono::system_clock::now() + kPatience);
  const auto watch = v1::Query::NewStub(As(*server, token_))->WatchIncidents(&watch_context, {});
  v1::IncidentEvent event;
  int seen = 0;
  while (watch->Read(&event) && event.kind() != v1::IncidentEvent::KIND_CAUGHT_UP) {
    EXPECT_EQ(event.incident().finding().site().run(), "mine");
    ++seen;
  }
  EXPECT_EQ(seen, 1);
  watch_context.TryCancel();
  (void)watch->Finish();
}

TEST_F(DoorsToken, HttpRequiresItToo) {
  const auto server = StartWith(
      folder_,
      Entry("all", token_.line, "['read']") + Entry("some", other_.line, "['read']", "['mine']"),
      {"--http", "127.0.0.1:0"});
  ASSERT_FALSE(server->address().empty()) << server->process().errors();
  const std::string http = HttpAddress(*server);
  const auto bearer = [](const TestToken& token) {
    return "authorization: bearer " + Trimmed(ReadFile(token.file)) + "\r\n";
  };
  EXPECT_THAT(HttpAnswer(http, "/healthz"), HasSubstr("200 OK"));
  // Missing paths get the same answer, so that it reveals nothing.
  for (const char* path :
       {"/version", "/metrics", "/nothing", "//healthz", "/healthz/../version"}) {
    const std::string none = HttpAnswer(http, path);
    EXPECT_THAT(none, HasSubstr("401 ")) << path;
    EXPECT_THAT(none, HasSubstr("WWW-Authenticate: Bearer")) << path;
    EXPECT_THAT(HttpAnswer(http, path, "authorization: Basic eDp5\r\n"), HasSubstr("401 ")) << path;
    EXPECT_THAT(HttpAnswer(http, path, bearer(other_)), HasSubstr("403 ")) << path;
  }
  EXPECT_THAT(HttpAnswer(http, "/version", bearer(token_)), HasSubstr("200 OK"));
  EXPECT_THAT(HttpAnswer(http, "/nothing", bearer(token_)), HasSubstr("404 "));
}

TEST_F(DoorsToken, NoTokenIsLoggedOrOnACommandLine) {
  const std::string config = Entry("readers", token_.line, "['read']");
  const auto server = StartWith(folder_, config, {"--log-level", "trace"});
  ASSERT_FALSE(server->address().empty()) << server->process().errors();
  const std::string secret = Trimmed(ReadFile(token_.file));
  const std::string wrong = Trimmed(ReadFile(other_.file));
  ASSERT_GE(secret.size(), 64u);
  EXPECT_TRUE(ListRuns(As(*server, token_)).ok());
  EXPECT_FALSE(ListRuns(As(*server, other_)).ok());
  Process plumb(
      {PLUMB_PROGRAM, "runs", "--server", server->address(), "--token-file", other_.file});
  EXPECT_EQ(plumb.Wait(), 2);
  server->Stop();
  for (const std::string& text :
       {server->process().errors(), server->process().output(), plumb.output(), plumb.errors()}) {
    for (const std::string& token : {secret, wrong}) {
      EXPECT_THAT(text, Not(HasSubstr(token.substr(6, 16))));
    }
    EXPECT_THAT(text, Not(HasSubstr(token_.line.substr(7, 16))));
  }
  // No option takes a secret: all of them take files.
  for (const char* program : {PLUMBD_PROGRAM, PLUMB_PROGRAM}) {
    Process help({program, "--help"});
    help.Wait();
    EXPECT_THAT(help.output(), Not(HasSubstr("--token ")));
    EXPECT_THAT(help.output(), Not(HasSubstr("--password")));
  }
}

TEST_F(DoorsToken, FilesThatAreNoTokenFilesStopTheStart) {
  const std::string secret = Trimmed(ReadFile(token_.file));
  const struct {
    std::string tokens;
    const char* message;
  } cases[] = {
      {"short", ".tokens:1: expected a token of at least 32 characters"},
      {"# fine\n\nsha256:12", ".tokens:3: expected 64 hexadecimal digits"},
      {secret + " until=tomorrow", ".tokens:1: expected expires=YYYY-MM-DD"},
      {secret + " expires=tomorrow", ".tokens:1: expected expires=YYYY-MM-DD"},
  };
  for (const auto& c : cases) {
    const Ended stated = CheckedConfig(folder_, Entry("x", c.tokens, "['read']"));
    EXPECT_EQ(stated.status, 2) << c.message;
    EXPECT_THAT(stated.errors, HasSubstr(c.message));
    EXPECT_THAT(stated.errors, Not(HasSubstr(secret)));
  }
  const std::string entry = Entry("x", token_.line, "['read']");
  EXPECT_EQ(CheckedConfig(folder_, entry).status, 0);
  for (const mode_t mode : {0644, 0640, 0604, 0660}) {
    chmod(folder_.File("x.tokens").c_str(), mode);
    EXPECT_THAT(CheckedConfig(folder_, entry).errors, HasSubstr("allows access by others")) << mode;
  }
  // Root may give the file to a group, and then reads it like a member of the group.
  if (geteuid() == 0) {
    ASSERT_EQ(chown(folder_.File("x.tokens").c_str(), 0, 65534), 0);
    for (const mode_t mode : {0640, 0660, 0644}) {
      chmod(folder_.File("x.tokens").c_str(), mode);
      EXPECT_EQ(CheckedConfig(folder_, entry).status, mode == 0640 ? 0 : 2) << mode;
    }
  }
  for (const auto& [toml, message] : std::vector<std::pair<std::string, const char*>>{
           {"[[access]]\nname = 'x'\nscopes = ['read']\n", "would allow every client"},
           {"[[access]]\nname = 'x'\ntoken_file = 'x'\nscopes = ['raed']\n",
            "expected read, write or admin, found \"raed\""},
           {"[[access]]\nname = 'x'\ntoken_file = 'x'\n",
            "access.scopes: expected some of read, write and admin, found none"},
           {"[[access]]\ntoken_file = 'x'\nscopes = ['read']\n",
            "access.name: expected a name, found none"},
           {"[access]\nname = 'x'\n", ":1: access: expected tables [[access]], found a table"},
           {"[[access]]\nnmae = 'x'\n", "did you mean \"name\""}}) {
    EXPECT_THAT(CheckedConfig(folder_, toml).errors, HasSubstr(message));
  }
}

TEST_F(DoorsToken, ATokenIsNotSentInTheClearAcrossANetwork) {
  Process plumb({PLUMB_PROGRAM, "runs", "--server", "192.0.2.1:7433", "--token-file", token_.file});
  EXPECT_EQ(plumb.Wait(), 2);
  EXPECT_THAT(plumb.errors(), HasSubstr("is not sent to 192.0.2.1:7433 without encryption"));
  chmod(token_.file.c_str(), 0644);
  Process careless({PLUMB_PROGRAM, "runs", "--server", "127.0.0.1:1", "--token-file", token_.file});
  EXPECT_EQ(careless.Wait(), 2);
  EXPECT_THAT(careless.errors(), HasSubstr("allows access by others; expected 0600"));
}

}  // namespace
}  // namespace plumbline::test
