// The clients' side: a trainer's agent, a relay and the spool with certificates and tokens from
// files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/doors/certificates.h"
#include "tests/server/doors/support.h"

namespace plumbline::test {
namespace {

using testing::HasSubstr;

class DoorsClients : public testing::Test {
 protected:
  // TLS, and tokens of a writer of runs "exp*" and a reader of all.
  void SetUp() override {
    server_ = StartWith(folder_, "[ingest]\nack_seconds = 0.05\n[tls]\ncert = '" + own_.cert +
                                     "'\nkey = '" + own_.key + "'\n" +
                                     Entry("writers", writer_, "['write']", "['exp*']") +
                                     Entry("readers", reader_, "['read']", "['*']"));
    ASSERT_FALSE(server_->address().empty()) << server_->process().errors();
  }
  std::string Entry(const std::string& name, const TestToken& token, const std::string& scopes,
                    const std::string& runs) const {
    return "[[access]]\nname = '" + name + "'\ntoken_file = '" +
           WriteSecret(folder_, name + ".tokens", token.line) + "'\nscopes = " + scopes +
           "\nruns = " + runs + "\n";
  }
  // an acknowledged batch is judged a moment later
  bool ComesToKnow(const std::string& run) const {
    return Eventually([&] { return Knows(run); });
  }
  bool Knows(const std::string& run) const {
    grpc::ClientContext context;
    v1::ListRunsResponse response;
    const auto channel = ChannelTo(server_->address(), {authority_.file(), "", "", reader_.file});
    (void)v1::Query::NewStub(channel)->ListRuns(&context, {}, &response);
    for (const v1::RunInfo& info : response.runs()) {
      if (info.run() == run) return true;
    }
    return false;
  }
  // Starts a trainer of one step, as a process with this environment.
  std::unique_ptr<Process> Train(const std::string& run,
                                 std::vector<std::string> environment) const {
    environment.insert(environment.end(),
                       {"PLUMBLINE_RUN=" + run, "PLUMBLINE_SERVER=" + server_->address(),
                        "PLUMBLINE_RECORD=", "PLUMBLINE_DISABLE="});
    return std::make_unique<Process>(std::vector<std::string>{PLUMB_LOAD_CHECK, PLUMBLINE_LIBRARY},
                                     std::move(environment));
  }

  TempFolder folder_;
  const Authority authority_{folder_, "ca"};
  const CertificateFiles own_ = authority_.Issue({.name = "server"});
  const TestToken writer_ = NewToken(folder_, "writer"), reader_ = NewToken(folder_, "reader");
  std::unique_ptr<Plumbd> server_;
};

#ifndef PLUMBLINE_SANITIZED  // the sanitizer's runtime cannot load the agent's library
TEST_F(DoorsClients, AnAgentFindsItsCredentialsInTheEnvironment) {
  const std::string ca = "PLUMBLINE_TLS_CA=" + authority_.file();
  const std::string token = "PLUMBLINE_TOKEN_FILE=" + writer_.file;
  const auto good = Train("exp1", {ca, token});
  // All run at the same time, because each ends only when its close has timed out.
  const auto other_run = Train("other", {ca, token});
  const auto no_token = Train("exp2", {ca});
  const auto no_file = Train("exp2", {ca, "PLUMBLINE_TOKEN_FILE=/nonexistent"});
  const Authority stranger(folder_, "stranger");
  const auto wrong_ca = Train("exp2", {"PLUMBLINE_TLS_CA=" + stranger.file(), token});
  const auto stated = [](Process& trainer) {
    trainer.Wait();
    return trainer.errors();
  };
  EXPECT_EQ(good->Wait(), 0) << good->errors();
  EXPECT_TRUE(ComesToKnow("exp1"));
  EXPECT_THAT(stated(*other_run), HasSubstr("does not accept the evidence of this process"));
  EXPECT_THAT(stated(*other_run),
              HasSubstr("the access entry writers does not grant write over it"));
  EXPECT_THAT(stated(*no_token), HasSubstr("this server requires authentication"));
  EXPECT_THAT(stated(*no_file), HasSubstr("/nonexistent: cannot be read"));
  EXPECT_THAT(stated(*wrong_ca), HasSubstr("does not accept the evidence of this process"));
  EXPECT_FALSE(Knows("other"));
  EXPECT_FALSE(Knows("exp2"));
}
#endif

TEST_F(DoorsClients, ARelayProvesItsIdentityAndChecksItsPeers) {
  const TestToken local = NewToken(folder_, "local");
  TempFolder relay_folder;
  const auto relay_toml = [&](const TestToken& upstream) {
    return "[relay]\nupstream = '" + server_->address() + "'\ntls_ca = '" + authority_.file() +
           "'\ntoken_file = '" + upstream.file + "'\n" +
           Entry("local", local, "['write']", "['exp*', 'wild*']");
  };
  const auto relay = StartWith(relay_folder, relay_toml(writer_));
  ASSERT_FALSE(relay->address().empty()) << relay->process().errors();
  const auto channel = ChannelTo(relay->address(), {"", "", "", local.file});
  const v1::Source source = SourceOf("exp5");
  AgentStream agent(channel, 5, {source});
  agent.Send(ScalarStep(source, 1), 1);
  EXPECT_TRUE(agent.Acknowledged(1));
  EXPECT_TRUE(ComesToKnow("exp5"));

  AgentStream none(relay->Channel(), 6, {SourceOf("exp6")});
  EXPECT_EQ(none.Ended().error_code(), grpc::StatusCode::UNAUTHENTICATED);
  AgentStream elsewhere(channel, 7, {SourceOf("theirs")});
  EXPECT_EQ(elsewhere.Ended().error_code(), grpc::StatusCode::PERMISSION_DENIED);
  // The relay would allow it, the server does not; the others continue.
  AgentStream wild(channel, 8, {SourceOf("wild")});
  const grpc::Status above = wild.Ended();
  EXPECT_EQ(above.error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_THAT(above.error_message(), HasSubstr("the access entry writers"));
  agent.Send(ScalarStep(source, 2), 2);
  EXPECT_TRUE(agent.Acknowledged(2));

  // A token that may only write gets the address of the upstream server; a caller without one does
  // not.
  const auto requested = [](const std::shared_ptr<grpc::Channel>& by) {
    grpc::ClientContext context;
    v1::ListRunsResponse response;
    return v1::Query::NewStub(by)->ListRuns(&context, {}, &response);
  };
  const grpc::Status referred = requested(channel);
  EXPECT_EQ(referred.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(referred.error_message(), HasSubstr("this is a relay of " + server_->address()));
  EXPECT_EQ(requested(relay->Channel()).error_code(), grpc::StatusCode::UNAUTHENTICATED);

  // With a token that may not write, every stream gets the reason.
  TempFolder second_folder;
  const auto second = StartWith(second_folder, relay_toml(reader_));
  ASSERT_FALSE(second->address().empty()) << second->process().errors();
  AgentStream refused(ChannelTo(second->address(), {"", "", "", local.file}), 9, {source});
  EXPECT_EQ(refused.Ended().error_code(), grpc::StatusCode::PERMISSION_DENIED);
}

TEST_F(DoorsClients, ARelayOverANetworkNeedsTls) {
  const Ended open = CheckedConfig(folder_, "[relay]\nupstream = 'example.org:7433'\n");
  EXPECT_EQ(open.status, 2);
  EXPECT_THAT(open.errors, HasSubstr("name the server's authority in relay.tls_ca"));
  EXPECT_EQ(
      CheckedConfig(folder_, "[relay]\nupstream = 'example.org:7433'\ntls_ca = 'system'\n").status,
      0);
}

TEST_F(DoorsClients, PlumbTakesFilesByOptionsToo) {
  Process plumb({PLUMB_PROGRAM, "runs", "--server", server_->address(), "--tls-ca",
                 authority_.file(), "--token-file", reader_.file});
  EXPECT_EQ(plumb.Wait(), 0) << plumb.errors();
  Process unknown({PLUMB_PROGRAM, "runs", "--server", server_->address(), "--tls-ca",
                   Authority(folder_, "stranger").file(), "--token-file", reader_.file});
  EXPECT_EQ(unknown.Wait(), 2);
  EXPECT_THAT(unknown.errors(), HasSubstr("is not signed by the CA certificates of"));
  Process half({PLUMB_PROGRAM, "runs", "--server", server_->address(), "--tls-ca",
                authority_.file(), "--tls-cert", own_.cert});
  EXPECT_EQ(half.Wait(), 2);
  EXPECT_THAT(half.errors(), HasSubstr("a certificate is set without its key"));
}

}  // namespace
}  // namespace plumbline::test
