// An honest run next to senders that name endless series or runs. Measures the time until its
// finding, and the memory of plumbd. PLUMB_LONG=1: the senders of docs/measurements/outages.md (two
// of 895,000 series, one of 9,600 runs), 100 honest runs, and the bound of docs/security.md, which
// holds on a machine at rest.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <sstream>

#include "tests/server/support.h"

namespace plumbline::test {
namespace {

using Clock = std::chrono::steady_clock;

bool Long() {
  const char* value = std::getenv("PLUMB_LONG");
  return value != nullptr && *value != '\0' && *value != '0';
}

int64_t MiBOf(const Process& process, const std::string& field) {
  std::istringstream status(ReadFile("/proc/" + std::to_string(process.pid()) + "/status"));
  for (std::string line; std::getline(status, line);) {
    if (line.rfind(field + ":", 0) == 0) return std::stoll(line.substr(field.size() + 1)) / 1024;
  }
  return 0;
}

// Sends the batches that `make` returns for 0, 1, 2, ... until the object is destroyed, on its
// streams in turn, with at most 20 unacknowledged batches per stream.
class Sender {
 public:
  using Make = std::function<v1::Batch(uint64_t number)>;
  // Starts the streams with these sources; their ids begin with `stream`.
  Sender(const Plumbd& server, uint64_t stream, const std::vector<std::vector<v1::Source>>& sources,
         Make make) {
    constexpr size_t kOfAConnection = 50;  // streams; a server takes no more than 100
    std::shared_ptr<grpc::Channel> channel;
    for (const std::vector<v1::Source>& of : sources) {
      if (streams_.size() % kOfAConnection == 0) channel = server.Channel();
      streams_.push_back(std::make_unique<AgentStream>(channel, stream + streams_.size(), of));
    }
    thread_ = std::thread([this, make = std::move(make)] {
      for (uint64_t number = 0; !stop_; ++number) {
        AgentStream& to = *streams_[number % streams_.size()];
        const uint64_t sequence = number / streams_.size() + 1;
        if (!to.Send(make(number), sequence)) return;
        while (!stop_ && to.acknowledged() + 20 < sequence)
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        sent_ = number + 1;
      }
    });
  }
  ~Sender() {
    stop_ = true;
    thread_.join();
  }
  uint64_t sent() const { return sent_; }
  // Returns why the server ended a stream; empty if none ended.
  std::string why_over() {
    for (auto& stream : streams_) {
      if (stream->over()) return stream->Ended().error_message();
    }
    return "";
  }

 private:
  std::vector<std::unique_ptr<AgentStream>> streams_;
  std::atomic<bool> stop_{false};
  std::atomic<uint64_t> sent_{0};
  std::thread thread_;
};

// Sends losses with ever new names, of 8 runs in turn, each with value 1.
std::unique_ptr<Sender> SenderOfNames(const Plumbd& server, uint64_t stream, uint64_t names) {
  constexpr uint64_t kRuns = 8, kOfABatch = 5000;
  std::vector<v1::Source> sources;
  for (uint64_t i = 0; i < kRuns; ++i)
    sources.push_back(SourceOf("big-" + std::to_string(stream) + "-" + std::to_string(i)));
  const uint64_t of_a_run = names / kRuns;
  return std::make_unique<Sender>(
      server, stream, std::vector<std::vector<v1::Source>>{sources}, [=](uint64_t number) {
        const uint64_t first = number * kOfABatch, run = first / of_a_run % kRuns;
        const auto step = static_cast<int64_t>(first / (of_a_run * kRuns));
        v1::Batch batch = BatchOf(sources[run]);
        for (uint64_t i = first; i < first + kOfABatch; ++i)
          AddScalar(&batch, "loss/" + std::to_string(i % names), step, 1.0);
        AddProgress(&batch, step);
        return batch;
      });
}

// Sends a NaN of each run in turn, with 8 runs per stream.
std::unique_ptr<Sender> SenderOfRuns(const Plumbd& server, uint64_t stream, uint64_t runs) {
  constexpr uint64_t kOfAStream = 8;
  std::vector<std::vector<v1::Source>> sources(runs / kOfAStream);
  for (uint64_t i = 0; i < runs; ++i)
    sources[i / kOfAStream].push_back(SourceOf("many-" + std::to_string(i)));
  return std::make_unique<Sender>(server, stream, sources, [=](uint64_t number) {
    const auto step = static_cast<int64_t>(number / sources.size());
    v1::Batch batch;
    for (const v1::Source& source : sources[number % sources.size()]) {
      const auto index = static_cast<uint32_t>(batch.sources_size());
      *batch.add_sources() = source;
      AddScalar(&batch, "loss", step, NAN).set_source(index);
      AddProgress(&batch, step).set_source(index);
    }
    return batch;
  });
}

// Returns the seconds from sending a NaN of a new run until its incident is listed.
double HonestFinding(const Plumbd& server, int number) {
  const std::string run = "honest-" + std::to_string(number);
  const v1::Source source = SourceOf(run);
  AgentStream agent(server, 100'000 + static_cast<uint64_t>(number), {source});
  EXPECT_TRUE(agent.Welcomed());
  const auto begin = Clock::now();
  agent.Send(ScalarStep(source, 1, NAN), 1);
  while (server.Incidents(run).empty() && Clock::now() - begin < std::chrono::seconds(60))
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

class BusySenders : public ::testing::Test {
 protected:
  // Measures next to the senders; at most `most_mib` of memory.
  void Measure(const char* what, const std::vector<std::unique_ptr<Sender>>& senders,
               int64_t most_mib) {
    const auto warm = Clock::now() + std::chrono::milliseconds(Long() ? 10'000 : 300);
    while (Clock::now() < warm) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    const int trials = Long() ? 100 : 5;
    std::vector<double> took;
    for (int i = 0; i < trials; ++i) {
      took.push_back(HonestFinding(server_, i));
      std::this_thread::sleep_for(std::chrono::milliseconds(Long() ? 300 : 10));
    }
    std::sort(took.begin(), took.end());
    const double p99 = took[std::min(took.size() - 1, took.size() * 99 / 100)];
    const int64_t peak = MiBOf(server_.process(), "VmHWM");
    uint64_t batches = 0;
    for (const auto& sender : senders) {
      batches += sender->sent();
      EXPECT_EQ(sender->why_over(), "") << "a sender was refused";
    }
    std::printf(
        "%s: median %.3f s, p99 %.3f s, largest %.3f s of %d; at most %lld MiB; %llu "
        "batches of the senders\n",
        what, took[took.size() / 2], p99, took.back(), trials, static_cast<long long>(peak),
        static_cast<unsigned long long>(batches));
    EXPECT_LT(p99, Long() ? 0.5 : 20);
    EXPECT_LT(peak, most_mib);
  }

  TempFolder folder_;
  Plumbd server_{{"--data", folder_.File("data")}};
};

TEST_F(BusySenders, AreFirstLeftOut) {
  ASSERT_FALSE(server_.address().empty()) << server_.process().errors();
  Measure("alone", {}, 1000);
}

TEST_F(BusySenders, OfSeriesWithoutEnd) {
  ASSERT_FALSE(server_.address().empty()) << server_.process().errors();
  std::vector<std::unique_ptr<Sender>> senders;
  for (uint64_t stream = 1; stream <= 2; ++stream)
    senders.push_back(SenderOfNames(server_, stream, Long() ? 895'000 : 80'000));
  Measure("two senders of series", senders, Long() ? 6000 : 1500);
}

TEST_F(BusySenders, OfRunsWithoutEnd) {
  ASSERT_FALSE(server_.address().empty()) << server_.process().errors();
  std::vector<std::unique_ptr<Sender>> senders;
  senders.push_back(SenderOfRuns(server_, 1, Long() ? 9600 : 400));
  // Runs of this sender are all new, too. Each has its first turn, and its first incident, before a
  // later run.
  const std::string last = "many-" + std::to_string((Long() ? 9600 : 400) - 1);
  const auto begin = Clock::now();
  while (server_.Incidents(last).empty() && Clock::now() - begin < std::chrono::seconds(300))
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  std::printf("each of its runs has an incident after %.1f s\n",
              std::chrono::duration<double>(Clock::now() - begin).count());
  Measure("a sender of runs", senders, Long() ? 4000 : 1500);
}

}  // namespace
}  // namespace plumbline::test
