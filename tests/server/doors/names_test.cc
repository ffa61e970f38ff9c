// Names, lists of names, and waiting batches: the stored bytes are limited, in total and per run,
// and a restart does not reset the count.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>

#include "server/ingest/name_table.h"
#include "server/stream/sender.h"
#include "tests/server/doors/support.h"

namespace plumbline::test {
namespace {

using server::KnownName;
using server::NameTable;
using server::SharedBytes;
using testing::HasSubstr;

v1::SeriesSet List(uint64_t id, int columns, unsigned seed) {
  std::vector<int> order(static_cast<size_t>(columns));
  for (int i = 0; i < columns; ++i) order[static_cast<size_t>(i)] = i;
  std::mt19937 random(seed);
  std::shuffle(order.begin(), order.end(), random);
  v1::SeriesSet set;
  set.set_id(id);
  for (const int i : order) set.add_sites()->set_op("series." + std::to_string(i));
  return set;
}

// ---- runs ------------------------------------------------------------------------------------

using server::AddressOf;
using server::Sender;

// Returns how many of `count` new runs the table accepts, each from a separate connection.
int Named(NameTable* names, const std::string& prefix, int count, Sender sender) {
  int taken = 0;
  for (int i = 0; i < count; ++i) {
    sender.connection = sender.address + ":" + std::to_string(i);
    taken += names->AddRun(prefix + std::to_string(i), sender).ok() ? 1 : 0;
  }
  return taken;
}
Sender From(const std::string& address, const std::string& after = "") {
  return {"", address, after};
}

TEST(RunNames, OneSenderWithoutEndLeavesNamesToOtherAddresses) {
  NameTable names(1000, 10);
  EXPECT_EQ(Named(&names, "before-", 300, From("10.0.0.2")), 300);
  EXPECT_EQ(Named(&names, "hog-", 5000, From("10.0.0.1")), 700 + 250);
  // New runs of a sender that had many before, and of a hundred senders that had none.
  EXPECT_EQ(Named(&names, "new-", 20, From("10.0.0.2")), 20);
  for (int host = 0; host < 100; ++host) {
    const std::string name = std::to_string(host);
    EXPECT_EQ(Named(&names, "of-" + name, 1, From("10.0.1." + name)), 1) << host;
  }
  // Known runs are accepted from every sender, even if the table is full.
  EXPECT_EQ(Named(&names, "before-", 300, From("10.0.0.1")), 300);
}

TEST(RunNames, SendersWithoutEndOfSeveralAddressesLeaveAPartEach) {
  NameTable names(1000, 10);
  int taken = 0;
  for (int host = 0; host < 5; ++host)
    taken += Named(&names, "hog-" + std::to_string(host) + "-", 3000,
                   From("10.0.0." + std::to_string(host)));
  EXPECT_LT(taken, 1500);
  EXPECT_EQ(Named(&names, "honest", 1, From("10.0.1.1")), 1);
  // There is still a limit.
  for (int host = 0; host < 2000; ++host)
    (void)Named(&names, "x" + std::to_string(host), 1, From("11.0.0." + std::to_string(host)));
  const absl::Status full = names.AddRun("beyond", From("10.0.1.2"));
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(full.message()),
              HasSubstr("already knows 1000 runs (ingest.max_runs); of 500 more"));
}

// Through a relay, with endless names from the relay's address too.
TEST(RunNames, ProcessesOfARelayHaveAPartOfTheirOwn) {
  NameTable names(1000, 10);
  EXPECT_EQ(Named(&names, "hog-", 5000, From("10.0.0.1", "10.1.0.1")), 1000 + 250 + 250);
  EXPECT_EQ(Named(&names, "new-", 20, From("10.0.0.1", "10.1.0.2")), 20);
  EXPECT_EQ(Named(&names, "direct-", 20, From("10.0.0.3")), 20);
  // A sender that invents addresses of processes does not affect the processes of others.
  for (int i = 0; i < 2000; ++i)
    (void)Named(&names, "up-" + std::to_string(i), 1, From("10.0.0.1", std::to_string(i)));
  EXPECT_EQ(Named(&names, "direct-again-", 20, From("10.0.0.4")), 20);
}

TEST(RunNames, AConnectionHasAFewOfThoseThatAreKept) {
  NameTable names(1000, 10);
  EXPECT_EQ(Named(&names, "before-", 1000, From("10.0.0.2")), 1000);
  const auto of_one = [&](const std::string& prefix, const Sender& sender) {
    int taken = 0;
    for (int i = 0; i < 300; ++i)
      taken += names.AddRun(prefix + std::to_string(i), sender).ok() ? 1 : 0;
    return taken;
  };
  EXPECT_EQ(of_one("direct-", {"", "10.0.0.1", "", "10.0.0.1:1"}), 8);
  EXPECT_EQ(of_one("relayed-", {"", "10.0.0.3", "10.1.0.1", "10.0.0.3:1", "10.1.0.1:1"}), 8);
  int of_relay = 0;
  for (int line = 2; line < 100; ++line) {
    const std::string number = std::to_string(line);
    of_relay += of_one("relay-" + number + "-",
                       {"", "10.0.0.3", "10.1.0.1", "10.0.0.3:1", "10.1.0.1:" + number});
  }
  EXPECT_EQ(of_relay, 256 - 8);
}

// A connection with invented processes gets a few of the address's places, as any other does.
TEST(RunNames, AConnectionThatClaimsToBeARelayLeavesTheAddressItsPlaces) {
  NameTable names(1000, 10);
  EXPECT_EQ(Named(&names, "before-", 1000, From("10.0.0.2")), 1000);
  int taken = 0;
  for (int i = 0; i < 3000; ++i) {
    const std::string number = std::to_string(i);
    const std::string connection = "10.0.0.1:relay-" + std::to_string(i % 12);
    const Sender sender{"", "10.0.0.1", "10.1.0." + number, connection, number};
    taken += names.AddRun("up-" + number, sender).ok() ? 1 : 0;
  }
  EXPECT_EQ(taken, 500 + 12 * 8);
  EXPECT_EQ(Named(&names, "direct-", 100, From("10.0.0.1")), 100);
}

// Names of a connection have places while it is connected. Names with evidence have places until
// their runs are over.
TEST(RunNames, PlacesAreGivenBack) {
  NameTable names(8, 10);
  const auto sender = [](int i) {
    return Sender{"", "10.0.0.1", "", "10.0.0.1:" + std::to_string(i)};
  };
  EXPECT_EQ(Named(&names, "others-", 8, From("10.0.0.2")), 8);
  for (int i = 0; i < 100; ++i) {
    const auto held = names.Connect({"a" + std::to_string(i)}, sender(i));
    EXPECT_TRUE(held.ok()) << i << ": " << held.status().message();
  }
  EXPECT_EQ(names.runs(), 8u);
  // A hello gets all its places or none. Four places are reserved for addresses, and this address
  // has two of them.
  EXPECT_FALSE(names.Connect({"x", "y", "z"}, sender(0)).ok());
  EXPECT_EQ(names.runs(), 8u);
  auto held = names.Connect({"x", "y"}, sender(0));
  ASSERT_TRUE(held.ok());
  EXPECT_FALSE(names.Connect({"z"}, sender(1)).ok());
  EXPECT_TRUE(names.Add(BatchOf(SourceOf("x"))).ok());
  names.Forget("others-0");
  EXPECT_EQ(names.runs(), 9u) << "another may have its place, and does not";
  names.Forget("x");
  EXPECT_EQ(names.runs(), 9u) << "a connection names it";
  EXPECT_TRUE(names.Add(BatchOf(SourceOf("x"))).ok());
  (*held)->Release();
  (*held)->Release();
  EXPECT_EQ(names.runs(), 8u) << "x has evidence and is not over";
  names.Forget("x");
  EXPECT_EQ(names.runs(), 7u);
  EXPECT_TRUE(names.Connect({"z"}, sender(1)).ok());
  EXPECT_EQ(names.runs(), 7u);
}

// The number of runs without a connection is limited until the server has ended them.
TEST(RunNames, RunsThatHaveLostTheirConnectionsAreBounded) {
  NameTable names(16, 10);
  int taken = 0;
  for (int i = 0; i < 500; ++i) {
    const std::string run = "a" + std::to_string(i);
    const auto held = names.Connect({run}, {"", "10.0.0.1", "", "10.0.0.1:" + std::to_string(i)});
    if (!held.ok()) continue;
    ++taken;
    EXPECT_TRUE(names.Add(BatchOf(SourceOf(run))).ok());
  }
  EXPECT_EQ(taken, 48);
  for (int i = 0; i < 48; ++i) names.Forget("a" + std::to_string(i));
  EXPECT_EQ(names.runs(), 0u);
  EXPECT_EQ(Named(&names, "b", 24, From("10.0.0.1")), 16 + 4);
}

TEST(RunNames, AnEntryKeepsItsShareNextToTheAddresses) {
  server::Config config;
  for (const char* name : {"a", "b"}) {
    server::AccessEntry& entry = config.access.emplace_back();
    entry.name = name;
    entry.scopes = {"write"};
  }
  NameTable names(1000, 10, server::Shares(config));
  EXPECT_EQ(Named(&names, "a-", 3000, {"a", "10.0.0.1", ""}), 500);
  EXPECT_EQ(Named(&names, "b-", 3000, {"b", "10.0.0.2", ""}), 500);
  names.Forget("a-0");
  EXPECT_EQ(Named(&names, "more-", 10, {"a", "10.0.0.1", ""}), 1);
}

TEST(RunNames, AddressesHaveNoPorts) {
  EXPECT_EQ(AddressOf("ipv4:192.0.2.1:40000"), "192.0.2.1");
  EXPECT_EQ(AddressOf("ipv6:%5B2001:db8:0:1:2:3:4:5%5D:443"), "2001:db8:0:1::/64");
  EXPECT_EQ(AddressOf("ipv6:[2001:db8:0:1:9::1]:443"), "2001:db8:0:1::/64");
  EXPECT_EQ(AddressOf("ipv6:%5Bfe80::1%25eth0%5D:443"), "fe80::/64");
  EXPECT_EQ(AddressOf("ipv6:%5B::ffff:192.0.2.1%5D:443"), "192.0.2.1");
  EXPECT_EQ(AddressOf("ipv6:%5B::1%5D:443"), "::1");
  EXPECT_EQ(AddressOf("unix:"), "unix");
  EXPECT_EQ(AddressOf("unix:/run/plumb.sock"), "unix");
  EXPECT_EQ(AddressOf(std::string(500, 'x')).size(), 64u);
  EXPECT_EQ(AddressOf(""), "");
}

// ---- the incident table ----------------------------------------------------------------------

class Names : public testing::Test {
 protected:
  static v1::Batch Named(const std::string& run, int first, int count) {
    v1::Batch batch = BatchOf(SourceOf(run));
    for (int i = first; i < first + count; ++i) AddScalar(&batch, "op" + std::to_string(i), 1, 1.0);
    return batch;
  }
  std::string RefusalOf(const std::string& run, int first, int count) {
    return std::string(names_.Add(Named(run, first, count)).message());
  }

  std::shared_ptr<SharedBytes> bytes_ =
      std::make_shared<SharedBytes>(1 << 20, server::Shares(), "names", "limits.name_bytes");
  NameTable names_{100, 100'000, {}, bytes_};
};

TEST_F(Names, OfOneRunTakeAQuarter) {
  EXPECT_EQ(RefusalOf("a", 0, 100), "");
  const uint64_t one = bytes_->used();
  EXPECT_EQ(RefusalOf("a", 0, 100), "") << "known ones are no more bytes";
  EXPECT_EQ(bytes_->used(), one);
  EXPECT_THAT(RefusalOf("a", 0, 2000), HasSubstr("a quarter of limits.name_bytes"));
  EXPECT_LE(bytes_->used(), (1u << 20) / 4);
  EXPECT_EQ(RefusalOf("b", 0, 100), "");
}

// Endless names of several runs: a run with few names still gets some.
TEST_F(Names, OfAFewRunsLeaveSomeToOthers) {
  for (int i = 0; i < 2000; ++i) {
    for (int run = 0; run < 6; ++run) (void)RefusalOf("hog" + std::to_string(run), i, 1);
  }
  EXPECT_GT(bytes_->used(), (1u << 20) / 4 * 3);
  EXPECT_EQ(RefusalOf("before", 0, 20), "");
  EXPECT_EQ(RefusalOf("honest", 0, 20), "");
  EXPECT_EQ(RefusalOf("before", 20, 20), "");
}

TEST_F(Names, OfAllRunsTakeAllAndAreGivenBackWhenARunIsOver) {
  std::string refusal;
  for (int run = 0; run < 40; ++run) refusal = RefusalOf("run" + std::to_string(run), 0, 400);
  EXPECT_THAT(refusal, HasSubstr("(limits.name_bytes)"));
  EXPECT_LE(bytes_->used(), 1u << 20);
  EXPECT_NE(RefusalOf("late", 0, 300), "");
  names_.Forget("run0");
  names_.Forget("run1");
  EXPECT_EQ(RefusalOf("late", 0, 300), "");
  for (int run = 0; run < 40; ++run) names_.Forget("run" + std::to_string(run));
  names_.Forget("late");
  EXPECT_EQ(bytes_->used(), 0u);
}

TEST_F(Names, ThatAFormerProcessLetInCountAsBefore) {
  EXPECT_EQ(RefusalOf("a", 0, 300), "");
  const uint64_t one = bytes_->used();
  std::vector<KnownName> known;
  for (int i = 0; i < 300; ++i) known.push_back({"a", "", "op" + std::to_string(i), ""});
  NameTable again(100, 100'000, {}, bytes_);
  again.Note(known);
  EXPECT_EQ(bytes_->used(), 2 * one);
  EXPECT_TRUE(again.Add(Named("a", 0, 300)).ok());
  EXPECT_EQ(bytes_->used(), 2 * one);
  again.Forget("a");
  EXPECT_EQ(bytes_->used(), one);
}

// ---- a real plumbd --------------------------------------------------------------------------

class DoorsNames : public testing::Test {
 protected:
  void Start() {
    server_ = StartWith(folder_,
                        "[ingest]\nack_seconds = 0.05\nqueue_bytes = 4_194_304\n[limits]\n"
                        "name_bytes = 4_194_304\n",
                        {"--data", folder_.File("data"), "--grace", "600"});
    ASSERT_FALSE(server_->address().empty()) << server_->process().errors();
  }
  void Kill() {
    server_->process().Signal(SIGKILL);
    server_->process().Wait();
  }
  // Returns how many batches of `names` new names each the server takes of a run, of at most
  // `most`.
  int Taken(AgentStream* agent, const v1::Source& source, uint64_t* sequence, int names, int most) {
    for (int taken = 0; taken < most; ++taken) {
      v1::Batch batch = BatchOf(source);
      for (int i = 0; i < names; ++i) AddScalar(&batch, "op" + std::to_string(next_++), 1, 1.0);
      agent->Send(batch, ++*sequence);
      if (!agent->Acknowledged(*sequence)) return -1;
      if (server_->Info().dropped().at("rejected-batches") != refused_) {
        ++refused_;
        return taken;
      }
    }
    return most;
  }

  TempFolder folder_;
  std::unique_ptr<Plumbd> server_;
  int next_ = 0;
  uint64_t refused_ = 0;
};

// The number of a set is new, its names are known: only the list grows.
TEST_F(DoorsNames, ListsOfTheSameNamesWithoutEnd) {
  Start();
  const v1::Source source = SourceOf("lists");
  AgentStream agent(*server_, 2, {source});
  std::string refused;
  for (uint64_t s = 1; s <= 40 && refused.empty(); ++s) {
    v1::Batch batch = BatchOf(source);
    *batch.add_series_sets() = List(s, 500, static_cast<unsigned>(s));
    AddProgress(&batch, -1);
    agent.Send(batch, s);
    ASSERT_TRUE(agent.Acknowledged(s));
    if (server_->Info().dropped().at("rejected-batches") != 0) refused = agent.RejectedReason(s);
  }
  EXPECT_THAT(refused, HasSubstr("limits.name_bytes"));
  EXPECT_FALSE(agent.over());
  // Other runs still have space.
  AgentStream other(*server_, 3, {SourceOf("other")});
  other.Send(ScalarStep(SourceOf("other"), 1), 1);
  EXPECT_TRUE(other.Acknowledged(1));
  EXPECT_EQ(server_->Info().dropped().at("rejected-batches"), 1u);
}

TEST_F(DoorsNames, ARestartCountsOnWhereItWas) {
  Start();
  const v1::Source source = SourceOf("names", 0, 2);  // rank 1 never comes, so the run stays open
  uint64_t sequence = 0;
  int first = 0;
  {
    AgentStream agent(*server_, 2, {source});
    first = Taken(&agent, source, &sequence, 100, 100);
  }
  EXPECT_GT(first, 5);
  EXPECT_LT(first, 40);
  Kill();
  Start();
  refused_ = 0;
  ASSERT_TRUE(Eventually([&] { return !server_->Info().catching_up(); }));
  std::this_thread::sleep_for(std::chrono::milliseconds(700));  // until the clock records it
  AgentStream agent(*server_, 2, {source}, sequence + 1);
  EXPECT_EQ(Taken(&agent, source, &sequence, 100, 100), 0);
}

// Batches after a gap, of many streams that never fill it, connected or not.
TEST_F(DoorsNames, BatchesThatWaitForOthersOfManyStreams) {
  Start();
  v1::Batch batch = BatchOf(SourceOf("waits"));
  AddScalar(&batch, "x", 1, 1).mutable_site()->set_layer(std::string(500, 'x'));
  for (int i = 1; i < 1800; ++i) *batch.add_evidence() = batch.evidence(0);  // about 1 MB
  int ended = 0;
  std::vector<std::unique_ptr<AgentStream>> streams;
  for (uint32_t i = 0; i < 12; ++i) {
    const v1::Source source = SourceOf("waits", i, 100);
    streams.push_back(
        std::make_unique<AgentStream>(*server_, 10 + i, std::vector<v1::Source>{source}));
    ASSERT_TRUE(streams.back()->Welcomed());
    *batch.mutable_sources(0) = source;
    streams.back()->Send(batch, 2);
  }
  EXPECT_TRUE(Eventually([&] {
    ended = static_cast<int>(std::count_if(streams.begin(), streams.end(),
                                           [](const auto& stream) { return stream->over(); }));
    return ended >= 6;
  })) << ended;
  EXPECT_LE(ended, 10) << "some 4 MiB may wait";
  // A sender that sends in order needs no space.
  AgentStream other(*server_, 3, {SourceOf("other")});
  other.Send(ScalarStep(SourceOf("other"), 1), 1);
  EXPECT_TRUE(other.Acknowledged(1));
}

}  // namespace
}  // namespace plumbline::test
