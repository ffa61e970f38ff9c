// Identities over time: a stream's owner after a restart, a certificate after it expired or was
// revoked, and the information about others in a refusal.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>

#include "base/crc32c.h"
#include "server/capsules/capsule_files.h"
#include "server/journal/stream_positions.h"
#include "tests/server/doors/certificates.h"
#include "tests/server/doors/support.h"
#include "tests/server/ingest/raw_call.h"
#include "tests/support/files.h"
#include "transport/batch_edit.h"
#include "transport/wire.h"

namespace plumbline::test {
namespace {

using testing::HasSubstr;
using testing::Not;

class DoorsIdentity : public testing::Test {
 protected:
  std::string Entry(const std::string& name, const TestToken& token, const std::string& runs,
                    const std::string& scopes = "['read', 'write']") {
    return "[[access]]\nname = '" + name + "'\ntoken_file = '" +
           WriteSecret(folder_, name + ".tokens", token.line) + "'\nscopes = " + scopes +
           "\nruns = " + runs + "\n";
  }
  static std::shared_ptr<grpc::Channel> As(const Plumbd& server, const TestToken& token) {
    return ChannelTo(server.address(), {"", "", "", token.file});
  }

  TempFolder folder_;
};

// After a restart, knowing a stream's id was once enough to continue it.
TEST_F(DoorsIdentity, AStreamKeepsItsOwnerAcrossARestart) {
  const TestToken mine = NewToken(folder_, "mine"), all = NewToken(folder_, "all");
  const std::string toml = Entry("mine", mine, "['mine-*']") + Entry("all", all, "['*']");
  const std::vector<std::string> data = {"--data", folder_.File("data")};
  const v1::Source owner = SourceOf("theirs", 0, 2);
  {
    const auto server = StartWith(folder_, toml, data);
    ASSERT_FALSE(server->address().empty()) << server->process().errors();
    AgentStream stream(As(*server, all), 9, {owner});
    stream.Send(ScalarStep(owner, 1), 1);
    ASSERT_TRUE(stream.Acknowledged(1));
    server->process().Signal(SIGKILL);
    server->process().Wait();
  }
  const auto server = StartWith(folder_, toml, data);
  ASSERT_FALSE(server->address().empty()) << server->process().errors();
  // The token of another caller; the right token with another rank; and an unknown rank.
  AgentStream thief(As(*server, mine), 9, {SourceOf("mine-1")}, 2);
  const grpc::Status of_another = thief.Ended();
  EXPECT_EQ(of_another.error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_THAT(of_another.error_message(), HasSubstr("belongs to another"));
  EXPECT_THAT(of_another.error_message(), Not(HasSubstr("theirs")));
  AgentStream neighbour(As(*server, all), 9, {SourceOf("theirs", 1, 2)}, 2);
  EXPECT_EQ(neighbour.Ended().error_code(), grpc::StatusCode::PERMISSION_DENIED);
  AgentStream none(As(*server, all), 9, {}, 2);
  EXPECT_EQ(none.Ended().error_code(), grpc::StatusCode::PERMISSION_DENIED);

  AgentStream back(As(*server, all), 9, {owner}, 2);
  uint64_t held = 0;
  ASSERT_TRUE(back.Welcomed(&held));
  EXPECT_EQ(held, 1u);  // and none of them used up a number
  back.Send(ScalarStep(owner, 2), 2);
  EXPECT_TRUE(back.Acknowledged(2));
}

TEST_F(DoorsIdentity, ASegmentBeginsWithTheOwners) {
  server::StreamPositions incident_table(4);
  v1::Source source = SourceOf("run", 3, 8);
  v1::Batch batch = ScalarStep(source, 1);
  incident_table.Note(7, 1, {}, server::FactsOf(batch.SerializeAsString()).sources);
  server::StreamPositions read(4);
  for (const std::string& frame : incident_table.Encode(1 << 20)) ASSERT_TRUE(read.Add(frame));
  ASSERT_EQ(read.streams().at(7).sources.size(), 1u);
  v1::Source named;
  ASSERT_TRUE(named.ParseFromString(*read.streams().at(7).sources.begin()));
  EXPECT_EQ(named.run(), "run");
  EXPECT_EQ(named.rank(), 3u);
  // A stream's ranks cannot fill the memory, because ranks beyond the limit are not stored.
  for (uint32_t rank = 0; rank < 1000; ++rank) {
    source.set_rank(rank);
    incident_table.Note(7, 1, {}, {server::RecordOf(source)});
  }
  EXPECT_EQ(incident_table.streams().at(7).sources.size(), server::StreamPositions::kMostSources);
}

// Damage by a wire, a relay or a card: a bit of a name, of a value, of the batch's number.
TEST_F(DoorsIdentity, ABatchThatIsNotAsItWasSentIsRefusedByItsNumber) {
  const auto server = StartWith(folder_, "[ingest]\nack_seconds = 0.05\n");
  ASSERT_FALSE(server->address().empty()) << server->process().errors();
  Plumbd relay({"--relay", server->address()});
  ASSERT_FALSE(relay.address().empty()) << relay.process().errors();
  const v1::Source source = SourceOf("run");
  for (const Plumbd* by : {static_cast<const Plumbd*>(server.get()), &std::as_const(relay)}) {
    const uint64_t id = by == server.get() ? 5 : 6;
    AgentStream agent(*by, id, {SourceOf("run", id - 5, 2)});
    ASSERT_TRUE(agent.Welcomed());
    for (uint64_t sequence = 1; sequence <= 3; ++sequence) {
      v1::AgentMessage message;
      *message.mutable_batch() =
          ScalarStep(SourceOf("run", id - 5, 2), static_cast<int64_t>(sequence));
      message.mutable_batch()->set_stream_id(id);
      message.mutable_batch()->set_sequence(sequence);
      const std::string bytes = message.batch().SerializeAsString();
      // A checksum that is present must match; an older agent sends none.
      if (sequence < 3) {
        message.mutable_backlog()->set_batch_crc32c(Crc32c(bytes.data(), bytes.size()));
      }
      if (sequence == 2) message.mutable_batch()->mutable_sources(0)->set_run("ruo");
      ASSERT_TRUE(agent.SendRaw(message));
    }
    EXPECT_THAT(agent.RejectedReason(2), HasSubstr("was damaged on the way: its checksum"));
    EXPECT_TRUE(agent.Acknowledged(3));
    EXPECT_FALSE(agent.over());
  }
  EXPECT_EQ(server->Info().dropped().at("damaged-batches"), 2u);
  EXPECT_EQ(server->Info().batches(), 4u);
  EXPECT_FALSE(server->Run("ruo").has_value());
}

// Agents, spools and tools all frame batches in one function.
TEST(TransportWire, EveryBatchThatIsFramedCarriesItsChecksum) {
  const auto body =
      std::make_shared<const std::string>(ScalarStep(SourceOf("r"), 1).SerializeAsString());
  const std::string number = transport::BatchNumber(7, 3);
  for (const uint64_t unsent : {0, 9}) {
    grpc::ByteBuffer framed = transport::FrameBatch(body, number, unsent);
    std::vector<grpc::Slice> slices;
    ASSERT_TRUE(framed.Dump(&slices).ok());
    std::string bytes;
    for (const auto& s : slices) bytes.append(reinterpret_cast<const char*>(s.begin()), s.size());
    v1::AgentMessage message;
    ASSERT_TRUE(message.ParseFromString(bytes));
    const std::string batch = *body + number;
    ASSERT_TRUE(message.backlog().has_batch_crc32c());
    EXPECT_EQ(message.backlog().batch_crc32c(), Crc32c(batch.data(), batch.size()));
    EXPECT_EQ(message.backlog().unsent_batches(), unsent);
  }
}

class DoorsCapsule : public DoorsIdentity {};

TEST_F(DoorsCapsule, OfOthersAreNotThere) {
  const std::string fingerprint = "0123456789abcdef", made_up = "0123456789abcdee";
  v1::CapsuleInfo info;
  info.mutable_finding()->set_fingerprint(fingerprint);
  info.mutable_finding()->mutable_site()->set_run("theirs");
  std::filesystem::create_directories(folder_.File("data/capsules"));
  server::CapsuleFiles files(folder_.File("data/capsules"));
  ASSERT_TRUE(files.Load().ok());
  ASSERT_TRUE(files.Save(info).ok());
  const TestToken mine = NewToken(folder_, "mine"), all = NewToken(folder_, "all");
  const auto server =
      StartWith(folder_, Entry("mine", mine, "['mine-*']") + Entry("all", all, "['*']"),
                {"--data", folder_.File("data")});
  ASSERT_FALSE(server->address().empty()) << server->process().errors();
  const auto get = [&](const TestToken& token, const std::string& which) {
    v1::GetCapsuleRequest request;
    request.set_fingerprint(which);
    return CallOnce(As(*server, token), "/plumbline.v1.Query/GetCapsule",
                    request.SerializeAsString());
  };
  EXPECT_NE(get(all, fingerprint).bytes, "");  // then it is cancelled
  for (const std::string& which : {fingerprint, std::string("0123"), made_up}) {
    const Answer answer = get(mine, which);
    EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::NOT_FOUND) << which;
    EXPECT_EQ(answer.status.error_message(), get(mine, made_up).status.error_message()) << which;
    EXPECT_EQ(answer.bytes, "") << which;
  }
}

class DoorsCertificate : public DoorsIdentity {
 protected:
  std::string Tls(const std::string& more = "") const {
    return "[tls]\ncert = '" + own_.cert + "'\nkey = '" + own_.key + "'\nclient_ca = '" +
           authority_.file() + "'\n" + more;
  }
  static std::string San(const std::string& name, const std::string& san) {
    return "[[access]]\nname = '" + name + "'\nsan = '" + san + "'\nscopes = ['read', 'write']\n";
  }
  std::shared_ptr<grpc::Channel> With(const Plumbd& server, const CertificateFiles& client) const {
    return ChannelTo(server.address(), {authority_.file(), client.cert, client.key, ""});
  }
  static std::string Fingerprint(const CertificateFiles& files) {
    const std::string stated = RunToEnd({"/usr/bin/openssl", "x509", "-noout", "-fingerprint",
                                         "-sha256", "-in", files.cert})
                                   .output;
    return "sha256:" + stated.substr(stated.find('=') + 1);
  }
  static std::string Serial(const CertificateFiles& files) {
    const std::string stated =
        RunToEnd({"/usr/bin/openssl", "x509", "-noout", "-serial", "-in", files.cert}).output;
    return "serial:" + stated.substr(stated.find('=') + 1);
  }

  const Authority authority_{folder_, "ca"};
  const CertificateFiles own_ = authority_.Issue({.name = "server"});
};

// A name of one kind that looks like a name of another kind: an issuer of e-mail names may not
// issue host names.
TEST_F(DoorsCertificate, NamesCountByTheirKind) {
  const auto server = StartWith(folder_, Tls() + San("hosts", "a.example") +
                                             San("services", "uri:spiffe://example/*") +
                                             San("people", "email:*@example.org"));
  ASSERT_FALSE(server->address().empty()) << server->process().errors();
  const struct {
    const char* name;
    std::vector<std::string> sans;
    bool fits;
  } cases[] = {
      {"host", {"DNS:a.example"}, true},
      {"capitals", {"DNS:A.Example"}, true},
      {"service", {"URI:spiffe://example/7"}, true},
      {"person", {"email:x@example.org"}, true},
      {"uri-as-host", {"URI:a.example"}, false},
      {"mail-as-host", {"email:a.example"}, false},
      {"host-as-uri", {"DNS:spiffe://example/7"}, false},
      {"host-as-mail", {"DNS:x@example.org"}, false},
      {"address", {"IP:127.0.0.1"}, false},
  };
  for (const auto& c : cases) {
    const CertificateFiles client = authority_.Issue({.name = c.name, .sans = c.sans});
    EXPECT_EQ(ListRuns(With(*server, client)).error_code(),
              c.fits ? grpc::StatusCode::OK : grpc::StatusCode::UNAUTHENTICATED)
        << c.name;
  }
  const Ended uri = CheckedConfig(folder_, Tls() + San("x", "spiffe://example/*"));
  EXPECT_EQ(uri.status, 2);
  EXPECT_THAT(uri.errors, HasSubstr("expected a DNS name, or \"uri:\" before it"));
  EXPECT_THAT(CheckedConfig(folder_, Tls() + San("x", "*@example.org")).errors,
              HasSubstr("or \"email:\" before it"));
}

TEST_F(DoorsCertificate, ItsExpiryEndsWhatItBegan) {
  for (const bool entries : {true, false}) {
    const auto server = StartWith(folder_, Tls() + (entries ? San("hosts", "*.example") : ""));
    ASSERT_FALSE(server->address().empty()) << server->process().errors();
    const CertificateFiles brief =
        authority_.Issue({.name = "brief", .sans = {"DNS:a.example"}, .ends_s = 4});
    const auto channel = With(*server, brief);
    AgentStream stream(channel, 9, {SourceOf("run")});
    ASSERT_TRUE(stream.Welcomed());
    const grpc::Status ended = stream.Ended();
    EXPECT_EQ(ended.error_code(), grpc::StatusCode::UNAUTHENTICATED) << entries;
    EXPECT_THAT(ended.error_message(), HasSubstr("certificate has expired")) << entries;
    // On the connection that is still open.
    EXPECT_FALSE(ListRuns(channel).ok());
  }
}

TEST_F(DoorsCertificate, ARevokedOneIsShownInVain) {
  const std::string list = folder_.Write("revoked", "# no serial yet\n");
  const auto server =
      StartWith(folder_, Tls("revoked = '" + list + "'\n") + San("hosts", "*.example"));
  ASSERT_FALSE(server->address().empty()) << server->process().errors();
  const CertificateFiles first = authority_.Issue({.name = "first", .sans = {"DNS:a.example"}});
  const CertificateFiles second = authority_.Issue({.name = "second", .sans = {"DNS:b.example"}});
  const CertificateFiles third = authority_.Issue({.name = "third", .sans = {"DNS:c.example"}});
  AgentStream stream(With(*server, first), 9, {SourceOf("run")});
  ASSERT_TRUE(stream.Welcomed());
  AgentStream stays(With(*server, third), 10, {SourceOf("other")});
  ASSERT_TRUE(stays.Welcomed());
  EXPECT_TRUE(ListRuns(With(*server, second)).ok());

  folder_.Write("revoked", Fingerprint(first) + Serial(second) + "# and that is all\n");
  const grpc::Status ended = stream.Ended();
  EXPECT_EQ(ended.error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_THAT(ended.error_message(), HasSubstr("was revoked"));
  EXPECT_EQ(ListRuns(With(*server, first)).error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(ListRuns(With(*server, second)).error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_TRUE(ListRuns(With(*server, third)).ok());
  stays.Send(ScalarStep(SourceOf("other"), 1), 1);
  EXPECT_TRUE(stays.Acknowledged(1));

  // If the list cannot be read, no certificate is accepted until it is fixed.
  folder_.Write("revoked", "sha256:12\n");
  EXPECT_TRUE(Eventually([&] { return !ListRuns(With(*server, third)).ok(); }));
  EXPECT_THAT(server->process().errors(), HasSubstr("revoked:1: expected sha256:HEX"));
  folder_.Write("revoked", Fingerprint(first));
  EXPECT_TRUE(Eventually([&] { return ListRuns(With(*server, third)).ok(); }));
  EXPECT_EQ(ListRuns(With(*server, first)).error_code(), grpc::StatusCode::UNAUTHENTICATED);

  EXPECT_THAT(CheckedConfig(folder_, Tls("revoked = '/nonexistent'\n")).errors,
              HasSubstr("tls.revoked: /nonexistent: cannot be read"));
}

}  // namespace
}  // namespace plumbline::test
