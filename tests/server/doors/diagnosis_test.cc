// Each pair of a client and a server that cannot communicate: plumb, plumb doctor and the trainer's
// agent name the fault and the variable or option that fixes it.
#include "transport/diagnosis.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/server/doors/certificates.h"
#include "tests/server/doors/support.h"

namespace plumbline::test {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

struct Case {
  std::string name, address;
  std::vector<std::string> environment;
  std::vector<std::string> parts;        // of the message
  std::vector<std::string> agent_parts;  // text of the agent; empty: the same
};

class DoorsDiagnosis : public testing::Test {
 protected:
  static std::string Tls(const CertificateFiles& files) {
    return "[tls]\ncert = '" + files.cert + "'\nkey = '" + files.key + "'\n";
  }
  std::string Start(const std::string& toml) {
    folders_.push_back(std::make_unique<TempFolder>());
    servers_.push_back(StartWith(*folders_.back(), toml, {"--http", "127.0.0.1:0"}));
    EXPECT_FALSE(servers_.back()->address().empty()) << servers_.back()->process().errors();
    return servers_.back()->address();
  }
  std::string StartRelay(const std::string& upstream) {
    servers_.push_back(std::make_unique<Plumbd>(std::vector<std::string>{"--relay", upstream}));
    EXPECT_FALSE(servers_.back()->address().empty()) << servers_.back()->process().errors();
    return servers_.back()->address();
  }
  static std::vector<std::string> With(const std::string& ca, const CertificateFiles& own = {},
                                       const std::string& token = "") {
    std::vector<std::string> out;
    if (!ca.empty()) out.push_back("PLUMBLINE_TLS_CA=" + ca);
    if (!own.cert.empty()) out.push_back("PLUMBLINE_TLS_CERT=" + own.cert);
    if (!own.key.empty()) out.push_back("PLUMBLINE_TLS_KEY=" + own.key);
    if (!token.empty()) out.push_back("PLUMBLINE_TOKEN_FILE=" + token);
    return out;
  }

  std::vector<Case> Cases() {
    const std::string ca = authority_.file();
    const std::string query_ca = "PLUMBLINE_TLS_CA (--tls-ca)";
    const std::string clear = Start("");
    const std::string clear_http = HttpAddress(*servers_.back());
    const std::string tls = Start(Tls(own_));
    const std::string tls_http = HttpAddress(*servers_.back());
    const std::string mutual = Start(Tls(own_) + "client_ca = '" + ca + "'\n");
    const std::string expired =
        Start(Tls(authority_.Issue({.name = "old", .begins_s = -7200, .ends_s = -3600})));
    const std::string elsewhere =
        Start(Tls(authority_.Issue({.name = "other", .sans = {"DNS:other.example"}})));
    const std::string token = Start("[[access]]\nname = 'all'\ntoken_file = '" +
                                    WriteSecret(folder_, "all.tokens", token_.line) +
                                    "'\nscopes = ['read', 'write', 'admin']\nruns = ['*']\n");
    const CertificateFiles foreign = stranger_.Issue({.name = "foreign"});
    return {
        {"nothing listens",
         "127.0.0.1:1",
         {},
         {"Connection refused", "plumbd --grpc", "(--server)"},
         {"no server answers at 127.0.0.1:1: Connection refused"}},
        {"nothing listens, TLS",
         "127.0.0.1:1",
         With(ca),
         {"Connection refused", "(--server)"},
         {"no server answers at 127.0.0.1:1: Connection refused"}},
        {"no such name",
         "no-such-host.invalid:7433",
         {},
         {"the host's name does not resolve", "PLUMBLINE_SERVER (--server)"},
         {"the host's name does not resolve"}},
        {"HTTP port", clear_http, {}, {"answers HTTP, not gRPC", "--grpc port"}, {}},
        {"HTTP port, TLS", tls_http, With(ca), {"answers HTTP, not gRPC", "--grpc port"}, {}},
        {"HTTP port of TLS, clear", tls_http, {}, {"answers HTTP, not gRPC", "--grpc port"}, {}},
        {"TLS server, clear", tls, {}, {"uses TLS, and this client does not", query_ca}, {}},
        {"mutual TLS, clear", mutual, {}, {"uses TLS, and this client does not", query_ca}, {}},
        {"clear server, TLS", clear, With(ca), {"does not use TLS", query_ca + " requires it"}, {}},
        {"unknown authority",
         tls,
         With(stranger_.file()),
         {"is not signed by the CA certificates of", query_ca},
         {}},
        {"wrong name", elsewhere, With(ca), {"is for another host", "PLUMBLINE_SERVER"}, {}},
        {"expired",
         expired,
         With(ca),
         {"is not valid now (certificate has expired)", "[tls] cert"},
         {}},
        {"no certificate",
         mutual,
         With(ca),
         {"requires a client certificate", "PLUMBLINE_TLS_CERT (--tls-cert)"},
         {}},
        {"certificate of another authority",
         mutual,
         With(ca, foreign),
         {"does not accept the certificate " + foreign.cert, "PLUMBLINE_TLS_CERT"},
         {}},
        {"no token", token, {}, {"set PLUMBLINE_TOKEN_FILE (--token-file)"}, {}},
        {"wrong token",
         token,
         With("", {}, other_.file),
         {"this server does not know this token",
          other_.file + ", PLUMBLINE_TOKEN_FILE or --token-file"},
         {}},
    };
  }

  static std::vector<std::string> Environment(const Case& c) {
    std::vector<std::string> all = {
        "PLUMBLINE_SERVER=" + c.address, "PLUMBLINE_RUN=exp1",
        "PLUMBLINE_RECORD=", "PLUMBLINE_DISABLE=", "PYTHON=/nonexistent/python"};
    all.insert(all.end(), c.environment.begin(), c.environment.end());
    return all;
  }

  TempFolder folder_;
  const Authority authority_{folder_, "ca"}, stranger_{folder_, "stranger"};
  const CertificateFiles own_ = authority_.Issue({.name = "server"});
  const TestToken token_ = NewToken(folder_, "token"), other_ = NewToken(folder_, "other");
  std::vector<std::unique_ptr<TempFolder>> folders_;
  std::vector<std::unique_ptr<Plumbd>> servers_;
};

TEST_F(DoorsDiagnosis, EachFaultIsNamedWithWhatFixesIt) {
  const std::vector<Case> cases = Cases();
#ifndef PLUMBLINE_SANITIZED  // the sanitizer's runtime cannot load the agent's library
  // all run at the same time, because each times out after two seconds
  std::vector<std::unique_ptr<Process>> agents;
  for (const Case& c : cases) {
    agents.push_back(std::make_unique<Process>(
        std::vector<std::string>{PLUMB_LOAD_CHECK, PLUMBLINE_LIBRARY}, Environment(c)));
  }
#endif
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    const Ended runs = RunToEnd({PLUMB_PROGRAM, "runs"}, Environment(c));
    const Ended doctor = RunToEnd({PLUMB_PROGRAM, "doctor"}, Environment(c));
    EXPECT_EQ(runs.status, 2);
    EXPECT_EQ(doctor.status, 1);
    EXPECT_THAT(doctor.output, ContainsRegex("failed +server "));
    for (const std::string& part : c.parts) {
      EXPECT_THAT(runs.errors, HasSubstr(part));
      EXPECT_THAT(doctor.output, HasSubstr(part));
    }
    EXPECT_EQ(std::count(runs.errors.begin(), runs.errors.end(), '\n'), 1) << runs.errors;
  }
#ifndef PLUMBLINE_SANITIZED
  for (size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(cases[i].name + ", the agent");
    agents[i]->Wait();
    const std::string errors = agents[i]->errors();
    const auto& parts = cases[i].agent_parts.empty() ? cases[i].parts : cases[i].agent_parts;
    for (const std::string& part : parts) EXPECT_THAT(errors, HasSubstr(part));
    EXPECT_THAT(errors, Not(HasSubstr(".cc:"))) << "gRPC's own lines";
    if (cases[i].agent_parts.empty()) EXPECT_THAT(errors, Not(HasSubstr("no server answers")));
  }
#endif
}

// A trainer's token may write only: doctor checks only permitted parts.
TEST_F(DoorsDiagnosis, ATokenThatMayOnlyWriteIsNoFault) {
  const std::string address = Start("[[access]]\nname = 'trainers'\ntoken_file = '" +
                                    WriteSecret(folder_, "write.tokens", token_.line) +
                                    "'\nscopes = ['write']\nruns = ['*']\n");
  const Ended doctor = RunToEnd({PLUMB_PROGRAM, "doctor"}, {"PLUMBLINE_SERVER=" + address,
                                                            "PLUMBLINE_TOKEN_FILE=" + token_.file,
                                                            "PYTHON=/nonexistent/python"});
  EXPECT_EQ(doctor.status, 0) << doctor.output;
  EXPECT_THAT(doctor.output, ContainsRegex("server +" + address + " answers"));
  EXPECT_THAT(doctor.output, ContainsRegex("ok +finding +the test evidence was acknowledged"));
}

// Waiting does not help: it ends by itself.
TEST_F(DoorsDiagnosis, WatchEndsWithTheFault) {
  const std::string tls = Start(Tls(own_));
  for (const char* command : {"watch", "runs"}) {
    const Ended done = RunToEnd({PLUMB_PROGRAM, command, "--server", tls});
    EXPECT_EQ(done.status, 2);
    EXPECT_THAT(done.errors, HasSubstr(tls + " uses TLS, and this client does not"));
    EXPECT_THAT(done.errors, Not(HasSubstr("no server answer")));
    EXPECT_THAT(done.errors, Not(HasSubstr("is plumbd running")));
  }
}

TEST_F(DoorsDiagnosis, ARelayNamesTheFaultOfTheServerAboveIt) {
  const std::string tls = Start(Tls(own_));
  const std::string relay = StartRelay(tls), second = StartRelay(StartRelay(Start("")));
  const Ended watch = RunToEnd({PLUMB_PROGRAM, "watch", "--server", relay});
  EXPECT_EQ(watch.status, 2);
  EXPECT_THAT(watch.errors, HasSubstr("this is a relay of " + tls));
  const std::pair<std::string, std::string> expected[] = {
      {relay, "the server above this relay: " + tls + " uses TLS, and this client does not"},
      {second, "this is a relay as well: set the address of a server in relay.upstream"}};
  for (const auto& [address, fault] : expected) {
    std::string reason;
    EXPECT_TRUE(Eventually([&, to = address, fault = fault] {
      AgentStream agent(ChannelTo(to, {}), 9, {SourceOf("run")});
      reason = agent.Ended().error_message();
      return reason.find(fault) != std::string::npos;
    })) << reason;
  }
}

TEST(Diagnosis, AStatusWithoutATextHasTheNameOfItsCode) {
  const transport::Diagnosis found =
      transport::Diagnose("127.0.0.1:1", {}, {grpc::StatusCode::UNIMPLEMENTED, ""});
  EXPECT_EQ(found.fault, transport::Fault::kServer);
  EXPECT_EQ(found.text, "the call ended with the gRPC status UNIMPLEMENTED and no text");
}

}  // namespace
}  // namespace plumbline::test
