// Runs for the page, sent as agents would: one of each kind of fault, one whose names are hostile,
// and one in progress. For the browser's test and for pictures.
//
//   page_feeder SERVER             prints "ready" once all are there
//   page_feeder SERVER SERIES      also runs with SERIES series, 10,000 ranks, a million steps
//   page_feeder SERVER pictures    none with hostile names
//
// Each line on the standard input changes the run "live": "find" lets it fail, "steps N" sends N
// steps. It ends with the input.
#include <atomic>
#include <cmath>
#include <cstdio>
#include <functional>
#include <iostream>
#include <limits>
#include <random>
#include <sstream>
#include <utility>

#include "tests/server/web/page_run.h"

namespace plumbline::test {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Sends a router that uses future tokens, on two ranks.
void Leaking(const Channel& channel, std::vector<std::unique_ptr<Run>>* keep) {
  auto run = std::make_unique<Run>(channel, 1, "demo-score-drop", 2,
                                   std::vector<v1::Site>{SiteOf("", "loss"), SiteOf("", "lr")});
  Curve loss(1, 5.6, 2.2, 0.06);
  for (int64_t step = 0; step < 347; ++step) {
    if (step < 2) run->Leak(step, "layers.0");
    if (step < 2) run->Leak(step, "layers.1");
    const double value = loss.At(step, 347);
    run->Step(step, [&](uint32_t, size_t i) { return i == 0 ? value : 3e-4; });
  }
  keep->push_back(std::move(run));
}

// Sends NaN that begins on rank 11 and reaches all ranks a step later; some evidence was lost
// before.
void NotFinite(const Channel& channel, std::vector<std::unique_ptr<Run>>* keep) {
  std::vector<v1::Site> sites = {SiteOf("", "loss"), SiteOf("", "grad_norm"), SiteOf("", "lr"),
                                 SiteOf("", "step_seconds")};
  for (int layer = 15; layer < 19; ++layer) {
    for (const char* op : {"mlp.up.max_abs", "mlp.act.max_abs", "attn.out.max_abs"}) {
      sites.push_back(SiteOf("layers." + std::to_string(layer), op));
    }
  }
  const size_t up = 4 + 3 * 2;  // layers.17 mlp.up
  auto run = std::make_unique<Run>(channel, 2, "dense-13b-fp16-lr3", 32, sites);
  Curve loss(2, 4.4, 2.31, 0.014);
  constexpr int64_t kSteps = 900, kBad = 700;
  for (int64_t step = 0; step < kSteps; ++step) {
    const double value = loss.At(step, 900);
    run->Step(step, [&](uint32_t rank, size_t i) {
      if (step > kBad || (step == kBad && rank == 11)) return i == 2 ? 3e-4 : i == 3 ? 2.9 : kNan;
      if (i == 0) return value + 0.002 * loss.Noise();
      if (i == 1) return 0.6 + 0.05 * loss.Noise();
      if (i == 2) return 3e-4;
      if (i == 3) return 2.9 + 0.02 * loss.Noise();
      double size =
          20000 + 4000 * std::sin(rank * 1.7 + static_cast<double>(i)) + 1500 * loss.Noise();
      if (i == up && rank == 11)
        size = 24000 + 38000 * std::pow(static_cast<double>(step) / kBad, 3);
      return size;
    });
    if (step == 560) run->Lose(540, 560, 248);
  }
  keep->push_back(std::move(run));
}

// Sends a loss that jumps and stays there; a healthy run; one that is over; one without verdicts.
void Others(const Channel& channel, std::vector<std::unique_ptr<Run>>* keep) {
  const std::vector<v1::Site> sites = {SiteOf("", "loss"), SiteOf("", "grad_norm"),
                                       SiteOf("", "lr")};
  const struct {
    uint64_t stream;
    const char* name;
    uint32_t ranks;
    int64_t steps;
    double jump;
    bool over;
  } runs[] = {{3, "vlm-3b-sft-2", 8, 500, 0.9, false},
              {4, "dense-1b-baseline-12", 16, 600, 0, false},
              {5, "tokenizer-sweep-03", 4, 400, 0, true}};
  for (const auto& one : runs) {
    auto run = std::make_unique<Run>(channel, one.stream, one.name, one.ranks, sites);
    Curve loss(static_cast<uint32_t>(one.stream), 3.6, 2.4, 0.012);
    for (int64_t step = 0; step < one.steps; ++step) {
      const double value =
          loss.At(step, static_cast<double>(one.steps)) + (step >= 380 ? one.jump : 0);
      run->Step(step, [&](uint32_t, size_t i) { return i == 0 ? value : i == 1 ? 0.8 : 1e-4; });
    }
    if (one.over) run->End(one.steps - 1);
    keep->push_back(std::move(run));
  }
  auto silent = std::make_unique<Run>(channel, 6, "smoke-ddp-hooks", 4, std::vector<v1::Site>{});
  silent->Declare();
  keep->push_back(std::move(silent));
}

// Sends names that a browser must not treat as markup, and that must not change the direction of
// the text.
void Hostile(const Channel& channel, std::vector<std::unique_ptr<Run>>* keep) {
  const std::string name =
      "<img src=x onerror=window.hacked=1>\"'&/%2F?#\xE2\x80\xAE"
      "evil";
  auto run = std::make_unique<Run>(
      channel, 7, name, 2,
      std::vector<v1::Site>{SiteOf("", "loss"),
                            SiteOf("<script>window.hacked=1</script>", "a\"b'c")});
  run->Leak(0, "<script>window.hacked=1</script>");
  run->Leak(0, std::string(400, 'W') + "\xE2\x80\xAE<b>");
  for (int64_t step = 0; step < 40; ++step) {
    run->Step(step, [&](uint32_t, size_t) { return 2.0 + 0.01 * static_cast<double>(step % 7); });
  }
  keep->push_back(std::move(run));
}

// One rank is blocked while its heartbeats continue; the others wait. The server needs hang_seconds
// = 0.3.
class Hanging {
 public:
  explicit Hanging(const Channel& channel)
      : others_(channel, kOthers, "moe-48b-pretrain-7", 7, {SiteOf("", "loss")}, 0, 8),
        last_(channel, kLast, "moe-48b-pretrain-7", 1, {SiteOf("", "loss")}, 7, 8),
        thread_([this] { Loop(); }) {}
  ~Hanging() {
    stopped_ = true;
    thread_.join();
  }

 private:
  static constexpr uint64_t kOthers = 8, kLast = 9;
  void Loop() {
    const auto pause = [](int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); };
    for (int64_t step = 0; step < 14 && !stopped_; ++step) {
      const double value = 3.4 - 0.1 * static_cast<double>(step);
      others_.Step(step, [&](uint32_t, size_t) { return value; });
      last_.Step(step, [&](uint32_t, size_t) { return value; });
      pause(600);
    }
    while (!stopped_) {
      others_.Beat(kOthers, 14, 900);
      last_.Beat(kLast, 13, 900);
      pause(200);
    }
  }

  Run others_, last_;
  std::atomic<bool> stopped_{false};
  std::thread thread_;
};

// Sends a run of many ranks, and one of many steps.
void Large(const Channel& channel, std::vector<std::unique_ptr<Run>>* keep) {
  constexpr uint32_t kRanks = 10000, kOfAStream = 500;
  std::vector<std::unique_ptr<Run>> wide;
  for (uint32_t first = 0; first < kRanks; first += kOfAStream) {
    wide.push_back(std::make_unique<Run>(channel, 100 + first / kOfAStream, "many-ranks",
                                         kOfAStream, std::vector{SiteOf("", "loss")}, first,
                                         kRanks));
  }
  for (int64_t step = 0; step < 100; ++step) {
    for (size_t i = 0; i < wide.size(); ++i) {
      wide[i]->Step(step, [&](uint32_t index, size_t) {
        const auto rank = static_cast<double>(i * kOfAStream + index);
        return std::sin(rank * 0.01) + (rank == 6137 && step > 60 ? 3 : 0);
      });
    }
  }
  for (auto& run : wide) keep->push_back(std::move(run));
  auto lasting =
      std::make_unique<Run>(channel, 22, "many-steps", 1, std::vector{SiteOf("", "loss")});
  for (int64_t step = 0; step < 1'000'000; step += 1000) {
    lasting->Steps(step, 1000, [](int64_t at) {
      return at == 777'777 ? 5.0 : std::sin(static_cast<double>(at) * 1e-5);
    });
  }
  keep->push_back(std::move(lasting));
}

// Sends one run of a few steps with `series` series.
void Many(const Channel& channel, size_t series, std::vector<std::unique_ptr<Run>>* keep) {
  std::vector<v1::Site> sites = {SiteOf("", "loss")};
  for (size_t i = 0; sites.size() < series; ++i) {
    sites.push_back(
        SiteOf("layers." + std::to_string(i / 100), "value." + std::to_string(i % 100)));
  }
  auto run = std::make_unique<Run>(channel, 20, "many-series", 1, sites);
  for (int64_t step = 0; step < 300; ++step) {
    run->Step(step, [&](uint32_t, size_t i) {
      return std::sin(static_cast<double>(step) / 20 + static_cast<double>(i));
    });
  }
  keep->push_back(std::move(run));
}

class LiveRun {
 public:
  LiveRun(const Channel& channel, const std::string& name)
      : run_(channel, 10, name, 2, {SiteOf("", "loss"), SiteOf("", "lr")}), loss_(10, 3, 2, 0.01) {
    Steps(200);
  }
  void Steps(int64_t count) {
    for (int64_t i = 0; i < count; ++i, ++step_) {
      const double value = loss_.At(step_, 400);
      run_.Step(step_, [&](uint32_t, size_t column) { return column == 0 ? value : 1e-4; });
    }
  }
  void Find() {
    for (int i = 0; i < 2; ++i)
      run_.Step(step_++, [](uint32_t, size_t column) { return column == 0 ? kNan : 1e-4; });
  }

 private:
  Run run_;
  Curve loss_;
  int64_t step_ = 0;
};

int Main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "page_feeder SERVER [SERIES|pictures]\n");
    return 2;
  }
  const Channel channel = grpc::CreateChannel(argv[1], grpc::InsecureChannelCredentials());
  Hanging hanging(channel);
  std::vector<std::unique_ptr<Run>> runs;
  Leaking(channel, &runs);
  NotFinite(channel, &runs);
  Others(channel, &runs);
  const bool pictures = argc > 2 && std::string(argv[2]) == "pictures";
  if (!pictures) Hostile(channel, &runs);
  if (argc > 2 && !pictures) {
    Many(channel, static_cast<size_t>(std::atoll(argv[2])), &runs);
    Large(channel, &runs);
  }
  LiveRun live(channel, pictures ? "moe-8b-dropless-2" : "live");
  for (const auto& run : runs) {
    if (!run->Acknowledged()) {
      std::fprintf(stderr, "page_feeder: %s was not taken\n", run->name().c_str());
      return 1;
    }
  }
  std::printf("ready\n");
  std::fflush(stdout);
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string what;
    int64_t count = 0;
    words >> what >> count;
    if (what == "find") live.Find();
    if (what == "steps") live.Steps(count);
    std::printf("done\n");
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace plumbline::test

int main(int argc, char** argv) { return plumbline::test::Main(argc, argv); }
