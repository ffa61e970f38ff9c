// Measures the time in which agents find a real plumbd that stops and returns. Uses the agents'
// transport, with the streams of 16 processes (PLUMB_LONG=1: 64, and more rounds).
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "tests/server/support.h"
#include "transport/reason.h"
#include "transport/stream_sender.h"

namespace plumbline::test {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

bool Long() {
  const char* value = std::getenv("PLUMB_LONG");
  return value != nullptr && *value != '\0' && *value != '0';
}

double Seconds(Clock::duration d) { return std::chrono::duration<double>(d).count(); }

double CpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto of = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return of(usage.ru_utime) + of(usage.ru_stime);
}

// The agent's part of a stream, with the agent's own settings.
class Agent {
 public:
  Agent(const std::string& target, uint32_t rank, uint32_t world)
      : outbox_({64u << 20, 4096}), config_(ConfigOf(target, rank, world)), thread_([this] {
          transport::StreamSender(config_, &outbox_, &counters_,
                                  {[] { return false; }, [this] { return stop_.load(); }})
              .Run();
        }) {}
  ~Agent() {
    stop_ = true;
    thread_.join();
  }

  uint64_t welcomes() const { return counters_.connections; }
  // Returns why no server was reached, once for each report.
  std::vector<std::string> unreachable() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return unreachable_;
  }

 private:
  transport::StreamConfig ConfigOf(const std::string& target, uint32_t rank, uint32_t world) {
    transport::StreamConfig config;
    config.target = target;
    config.sources = {SourceOf("comeback", rank, world)};
    config.stream_id = 1000 + rank;
    config.tool_version = "test";
    config.reconnecting = world;
    config.on_unreachable = [this](const grpc::Status& status) {
      const std::lock_guard<std::mutex> lock(mutex_);
      unreachable_.push_back(status.error_message());
    };
    return config;
  }

  std::mutex mutex_;
  std::vector<std::string> unreachable_;
  transport::Outbox outbox_;
  const transport::StreamConfig config_;
  transport::StreamCounters counters_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

using Agents = std::vector<std::unique_ptr<Agent>>;

Agents MakeAgents(const std::string& target, uint32_t count) {
  Agents agents;
  for (uint32_t rank = 0; rank < count; ++rank) {
    agents.push_back(std::make_unique<Agent>(target, rank, count));
  }
  return agents;
}

bool Listens(const std::string& address) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  to.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
  const bool connected = connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof(to)) == 0;
  close(fd);
  return connected;
}

// Returns the seconds from the moment at which a server listens to each agent's next welcome,
// ascending.
std::vector<double> TimesToReturn(const Agents& agents, const std::string& address,
                                  uint64_t welcomes, std::unique_ptr<Plumbd>* server) {
  std::atomic<bool> up{false};
  Clock::time_point listening;
  std::thread probe([&] {
    while (!Listens(address)) std::this_thread::sleep_for(milliseconds(2));
    listening = Clock::now();
    up = true;
  });
  std::vector<Clock::time_point> at(agents.size());
  std::thread watch([&] {
    size_t seen = 0;
    const auto end = Clock::now() + std::chrono::seconds(40);
    while (seen < agents.size() && Clock::now() < end) {
      for (size_t i = 0; i < agents.size(); ++i) {
        if (at[i] != Clock::time_point() || agents[i]->welcomes() < welcomes) continue;
        at[i] = Clock::now();
        ++seen;
      }
      std::this_thread::sleep_for(milliseconds(2));
    }
  });
  *server = Plumbd::At(address);
  probe.join();
  watch.join();
  std::vector<double> times;
  for (const auto& when : at) {
    times.push_back(when == Clock::time_point() ? 1e9 : Seconds(when - listening));
  }
  std::sort(times.begin(), times.end());
  return times;
}

// The server is killed repeatedly, and away for up to three seconds. On an idle machine the slowest
// agent is back after 0.2 s; without a polling thread this took 2.7 to 14 s.
TEST(Comeback, AgentsFindAServerThatIsBack) {
  const uint32_t count = Long() ? 64 : 16;
  const int rounds = Long() ? 30 : 3;
  auto server = std::make_unique<Plumbd>();
  const std::string address = server->address();
  ASSERT_FALSE(address.empty()) << server->process().errors();
  const Agents agents = MakeAgents(address, count);
  ASSERT_TRUE(Eventually([&] {
    return std::all_of(agents.begin(), agents.end(),
                       [](const auto& a) { return a->welcomes() > 0; });
  }));
  std::vector<double> all;
  for (int round = 0; round < rounds; ++round) {
    server->process().Signal(SIGKILL);
    server->process().Wait();
    std::this_thread::sleep_for(milliseconds(300 + 900 * (round % 4)));
    const uint64_t next = static_cast<uint64_t>(round) + 2;
    const auto times = TimesToReturn(agents, address, next, &server);
    all.insert(all.end(), times.begin(), times.end());
  }
  std::sort(all.begin(), all.end());
  std::printf("%zu returns: median %.3f s, 90 %% within %.3f s, the last %.3f s\n", all.size(),
              all[all.size() / 2], all[all.size() * 9 / 10], all.back());
  EXPECT_LT(all[all.size() / 2], 0.5);
  EXPECT_LT(all[all.size() * 9 / 10], 1.5);
  EXPECT_LT(all.back(), 10.0) << "one was forgotten";
}

// Agents of a relay, which must find the server first; and a watcher.
TEST(Comeback, ARelayAndAWatcherFindItToo) {
  auto server = std::make_unique<Plumbd>();
  const std::string address = server->address();
  ASSERT_FALSE(address.empty()) << server->process().errors();
  Plumbd relay({"--relay", address});
  ASSERT_FALSE(relay.address().empty()) << relay.process().errors();
  const Agents agents = MakeAgents(relay.address(), 4);
  Process watcher({PLUMB_PROGRAM, "watch", "--server", address});
  const auto stated = [&](const std::string& words) {
    size_t count = 0;
    const std::string text = watcher.errors();
    for (size_t at = text.find(words); at != std::string::npos; at = text.find(words, at + 1)) {
      ++count;
    }
    return count;
  };
  ASSERT_TRUE(Eventually([&] {
    return stated("watching every run") == 1 &&
           std::all_of(agents.begin(), agents.end(),
                       [](const auto& a) { return a->welcomes() > 0; });
  }));
  std::vector<double> watched;
  for (uint64_t round = 0; round < 3; ++round) {
    server->process().Signal(SIGKILL);
    server->process().Wait();
    std::this_thread::sleep_for(milliseconds(2500));
    const auto times = TimesToReturn(agents, address, round + 2, &server);
    std::printf("through a relay: the first %.3f s, the last %.3f s\n", times.front(),
                times.back());
    EXPECT_LT(times.back(), 2.0);
    const auto began = Clock::now();
    EXPECT_TRUE(Eventually([&] { return stated("the server answers again") == round + 1; }));
    watched.push_back(Seconds(Clock::now() - began) + times.back());
  }
  std::sort(watched.begin(), watched.end());
  std::printf("plumb watch: %.3f s in the middle\n", watched[1]);
  EXPECT_LT(watched[1], 2.0);
}

// Waiting costs hardly any CPU, and each agent has reported the error of its first try.
TEST(Comeback, WaitingForAServerCostsLittle) {
  auto server = std::make_unique<Plumbd>();
  const std::string address = server->address();
  ASSERT_FALSE(address.empty()) << server->process().errors();
  server->process().Signal(SIGKILL);
  server->process().Wait();
  constexpr uint32_t kAgents = 8;
  const Agents agents = MakeAgents(address, kAgents);
  ASSERT_TRUE(Eventually([&] {
    return std::all_of(agents.begin(), agents.end(),
                       [](const auto& a) { return !a->unreachable().empty(); });
  }));
  const double before = CpuSeconds();
  const auto began = Clock::now();
  std::this_thread::sleep_for(milliseconds(3000));
  const double share = (CpuSeconds() - before) / Seconds(Clock::now() - began) / kAgents;
  std::printf("an agent that waits uses %.3f %% of a core\n", 100 * share);
  EXPECT_LT(share, 0.02);
  for (const auto& agent : agents) {
    EXPECT_EQ(agent->unreachable().size(), 1u) << "once an outage, not once a try";
    EXPECT_NE(agent->unreachable()[0].find("refused"), std::string::npos)
        << agent->unreachable()[0];
  }
}

// A name that does not resolve is reported at once, too.
TEST(Comeback, AnUnresolvableHostIsReportedAtTheFirstTry) {
  Agent agent("no-such-host.invalid:7433", 0, 1);
  const auto began = Clock::now();
  ASSERT_TRUE(Eventually([&] { return !agent.unreachable().empty(); }));
  const std::string why = transport::WhyUnreachable(agent.unreachable()[0]);
  std::printf("reported after %.2f s: %s\n", Seconds(Clock::now() - began), why.c_str());
  EXPECT_EQ(why.rfind("the host's name does not resolve", 0), 0u) << why;
}

// The port of plumbd's page instead of the agents'.
TEST(Comeback, AWrongPortIsReportedAtTheFirstTry) {
  Plumbd server({"--http", "127.0.0.1:0"});
  const std::string errors = server.process().errors();
  const size_t at = errors.find("http on 127.0.0.1:");
  ASSERT_NE(at, std::string::npos) << errors;
  const std::string http = errors.substr(at + 8, errors.find_first_of("/ \n", at + 8) - at - 8);
  Agent agent(http, 0, 1);
  ASSERT_TRUE(Eventually([&] { return !agent.unreachable().empty(); }));
  const std::string why = transport::WhyUnreachable(agent.unreachable()[0]);
  EXPECT_NE(why.find("--http port"), std::string::npos) << why;
}

TEST(Comeback, ACrowdIsSpread) {
  transport::StreamConfig config;
  config.target = "127.0.0.1:7433";
  config.reconnecting = 64;
  EXPECT_EQ(transport::PaceOf(config).spread_ms, 0u);
  EXPECT_LE(transport::PaceOf(config).retry_ms, 250u);
  config.reconnecting = 4000;  // 500 a second
  EXPECT_EQ(transport::PaceOf(config).spread_ms, 8000u);
  EXPECT_EQ(transport::PaceOf(config).retry_ms, 8000u);
  config.reconnecting = 1u << 31;
  EXPECT_LE(transport::PaceOf(config).retry_ms, 20000u);
  config.target = "unix:/run/plumbd.sock";  // a relay of this host
  EXPECT_EQ(transport::PaceOf(config).spread_ms, 0u);
}

}  // namespace
}  // namespace plumbline::test
