// Connections that TLS refuses: certificates that are wrong, expired, missing or from another
// authority.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/server/doors/certificates.h"
#include "tests/server/doors/support.h"

namespace plumbline::test {
namespace {

using testing::AnyOf;
using testing::HasSubstr;

constexpr auto kUnavailable = grpc::StatusCode::UNAVAILABLE;

class DoorsTls : public testing::Test {
 protected:
  std::string Tls(const CertificateFiles& server, bool query_clients) const {
    return "[tls]\ncert = '" + server.cert + "'\nkey = '" + server.key + "'\n" +
           (query_clients ? "client_ca = '" + authority_.file() + "'\n" : "");
  }
  static std::string Access(const std::string& name, const std::string& san,
                            const std::string& scopes, const std::string& runs = "['*']") {
    return "[[access]]\nname = '" + name + "'\nsan = '" + san + "'\nscopes = " + scopes +
           "\nruns = " + runs + "\n";
  }
  CertificateFiles Client(const std::string& name, const std::vector<std::string>& sans) const {
    return authority_.Issue({.name = name, .sans = sans});
  }
  // Returns the status of a query with that certificate; none: empty.
  grpc::Status Query(const Plumbd& server, const CertificateFiles& client) const {
    return ListRuns(ChannelTo(server.address(), {authority_.file(), client.cert, client.key, ""}));
  }

  TempFolder folder_;
  const Authority authority_{folder_, "ca"};
  const Authority stranger_{folder_, "stranger"};
  const CertificateFiles own_ = authority_.Issue({.name = "server"});
};

TEST_F(DoorsTls, OnlyTheServersAuthorityIsTrustedAndOnlyForItsName) {
  const auto server = StartWith(folder_, Tls(own_, false));
  ASSERT_FALSE(server->address().empty()) << server->process().errors();
  EXPECT_TRUE(Query(*server, {}).ok());
  // A client without TLS, and one that trusts another authority.
  EXPECT_EQ(ListRuns(server->Channel()).error_code(), kUnavailable);
  const grpc::Status wrong = ListRuns(ChannelTo(server->address(), {stranger_.file(), "", "", ""}));
  EXPECT_EQ(wrong.error_code(), kUnavailable);
  EXPECT_THAT(wrong.error_message(), HasSubstr("handshake"));

  const auto elsewhere = StartWith(
      folder_, Tls(authority_.Issue({.name = "other", .sans = {"DNS:other.example"}}), false));
  EXPECT_EQ(Query(*elsewhere, {}).error_code(), kUnavailable);
}

TEST_F(DoorsTls, AServersExpiredCertificateIsRefusedByItsClientsAndStated) {
  const auto server = StartWith(
      folder_, Tls(authority_.Issue({.name = "old", .begins_s = -7200, .ends_s = -3600}), false));
  ASSERT_FALSE(server->address().empty()) << server->process().errors();
  EXPECT_THAT(server->process().errors(), HasSubstr("has expired"));
  EXPECT_EQ(Query(*server, {}).error_code(), kUnavailable);
}

TEST_F(DoorsTls, ClientsAreKnownByTheNamesInTheirCertificates) {
  const auto server = StartWith(
      folder_, Tls(own_, true) + Access("readers", "*.read.example", "['read']") +
                   Access("writers", "uri:spiffe://example/train/*", "['write']", "['mine*']"));
  ASSERT_FALSE(server->address().empty()) << server->process().errors();
  const CertificateFiles reader = Client("reader", {"DNS:a.read.example"});
  const CertificateFiles writer = Client("writer", {"DNS:x", "URI:spiffe://example/train/7"});
  EXPECT_TRUE(Query(*server, reader).ok());

  // No certificate; a certificate of another authority; an expired one; and one that is not listed.
  EXPECT_EQ(Query(*server, {}).error_code(), kUnavailable);
  const CertificateFiles foreign =
      stranger_.Issue({.name = "foreign", .sans = {"DNS:a.read.example"}});
  EXPECT_EQ(Query(*server, foreign).error_code(), kUnavailable);
  const CertificateFiles expired = authority_.Issue(
      {.name = "expired", .sans = {"DNS:a.read.example"}, .begins_s = -7200, .ends_s = -3600});
  EXPECT_EQ(Query(*server, expired).error_code(), kUnavailable);
  const grpc::Status unlisted = Query(*server, Client("unlisted", {"DNS:evil.example"}));
  EXPECT_EQ(unlisted.error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_THAT(unlisted.error_message(), HasSubstr("no [[access]] entry matches the names"));

  // A name that only contains the right name.
  EXPECT_EQ(Query(*server, Client("like", {"DNS:a.read.example.evil"})).error_code(),
            grpc::StatusCode::UNAUTHENTICATED);

  // Scopes and runs.
  EXPECT_EQ(Query(*server, writer).error_code(), grpc::StatusCode::PERMISSION_DENIED);
  const auto channel =
      ChannelTo(server->address(), {authority_.file(), writer.cert, writer.key, ""});
  AgentStream mine(channel, 5, {SourceOf("mine-1")});
  EXPECT_TRUE(mine.Welcomed());
  AgentStream theirs(channel, 6, {SourceOf("theirs")});
  EXPECT_EQ(theirs.Ended().error_code(), grpc::StatusCode::PERMISSION_DENIED);
}

TEST_F(DoorsTls, ATokenMayBeWorthNothingWithoutItsCertificate) {
  const TestToken token = NewToken(folder_, "token");
  const auto server =
      StartWith(folder_, Tls(own_, true) + "[[access]]\nname = 'both'\nsan = 'a.example'\n" +
                             "token_file = '" + WriteSecret(folder_, "tokens", token.line) +
                             "'\nscopes = ['read']\n");
  ASSERT_FALSE(server->address().empty()) << server->process().errors();
  const CertificateFiles right = Client("right", {"DNS:a.example"});
  const CertificateFiles other = Client("thief", {"DNS:b.example"});
  const auto with = [&](const CertificateFiles& cert, const std::string& file) {
    return ListRuns(ChannelTo(server->address(), {authority_.file(), cert.cert, cert.key, file}));
  };
  EXPECT_TRUE(with(right, token.file).ok());
  EXPECT_EQ(with(right, "").error_code(), grpc::StatusCode::UNAUTHENTICATED);
  const grpc::Status stolen = with(other, token.file);
  EXPECT_EQ(stolen.error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_THAT(stolen.error_message(), HasSubstr("only with its certificate"));
}

TEST_F(DoorsTls, ARenewedCertificateNeedsNoRestart) {
  const Authority next(folder_, "next");
  const auto server = StartWith(folder_, Tls(own_, false));
  ASSERT_FALSE(server->address().empty()) << server->process().errors();
  EXPECT_TRUE(Query(*server, {}).ok());
  const CertificateFiles renewed = next.Issue({.name = "renewed"});
  std::filesystem::rename(renewed.key, own_.key);
  std::filesystem::rename(renewed.cert, own_.cert);
  EXPECT_TRUE(Eventually([&] {
    return ListRuns(ChannelTo(server->address(), {next.file(), "", "", ""})).ok();
  }));
  EXPECT_EQ(Query(*server, {}).error_code(), kUnavailable);
}

TEST_F(DoorsTls, RefusesToStartWithFilesThatCannotBeRight) {
  const CertificateFiles other = authority_.Issue({.name = "second"});
  const std::string off = "[listen]\ngrpc = '0.0.0.0:0'\nhttp = 'off'\n";
  const std::string readable = folder_.File("readable.key");
  std::filesystem::copy_file(own_.key, readable);
  std::filesystem::permissions(readable, std::filesystem::perms(0644));
  const struct {
    std::string toml;
    const char* message;
  } cases[] = {
      {Tls({own_.cert, other.key}, false), "tls.key: expected the key of the certificate in"},
      {Tls({own_.cert, readable}, false), "0644 allows access by others; expected 0600"},
      {Tls({own_.cert, own_.cert}, false), "allows access by others"},
      {Tls({own_.key, own_.key}, false), "expected a certificate in PEM"},
      {Tls({"/nonexistent.pem", own_.key}, false), "/nonexistent.pem: cannot be read"},
      {"[tls]\ncert = '" + own_.cert + "'\n", "tls.key: expected a file, as tls.cert names one"},
      {"[tls]\nclient_ca = '" + own_.cert + "'\n",
       "tls.client_ca: expected tls.cert and tls.key too, found none"},
      {Access("x", "a", "['read']"), "access.san: expected tls.client_ca too, found none"},
      {off, "listen.grpc: expected a loopback address"},
      {off + Tls(own_, true), "any client that reaches it would have all rights"},
      {off + "[[access]]\nname = 'x'\ntoken_file = 'y'\nscopes = ['read']\n",
       "tokens are not sent over a network without encryption"},
      {off + "insecure = true\n[[access]]\nname = 'x'\ntoken_file = 'y'\nscopes = ['read']\n",
       "tokens are not sent over a network without encryption"},
  };
  for (const auto& c : cases) {
    const Ended stated = CheckedConfig(folder_, c.toml);
    EXPECT_EQ(stated.status, 2) << c.toml;
    EXPECT_THAT(stated.errors, HasSubstr(c.message)) << c.toml;
  }
  const Ended open = CheckedConfig(folder_, off + Tls(own_, true) + Access("x", "*", "['read']"));
  EXPECT_EQ(open.status, 0) << open.errors;
}

TEST_F(DoorsTls, HttpSpeaksTlsToo) {
  const auto server = StartWith(folder_, Tls(own_, false), {"--http", "127.0.0.1:0"});
  ASSERT_FALSE(server->address().empty()) << server->process().errors();
  const std::string http = HttpAddress(*server);
  const auto requested = [&](const std::string& authority) {
    Process client({"/usr/bin/openssl", "s_client", "-connect", http, "-CAfile", authority,
                    "-verify_return_error", "-brief"});
    client.Wait();
    return client.errors();
  };
  EXPECT_THAT(requested(authority_.file()), HasSubstr("Verification: OK"));
  EXPECT_THAT(requested(stranger_.file()), testing::Not(HasSubstr("Verification: OK")));
}

}  // namespace
}  // namespace plumbline::test
