// Trains a small mixture-of-experts language model on the examples' text, watched by Plumbline.
//
//   moe_cpp --router dropless --steps 200
//   moe_cpp --router score-drop --steps 200 --server 127.0.0.1:7433 --record runs/leak
//
// The same arguments give the same losses, whatever the probes do.
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <map>
#include <stdexcept>
#include <string>

#include "model.h"
#include "probes.h"

namespace {

using Options = std::map<std::string, std::string>;

constexpr struct {
  const char* name;
  const char* initial;
  const char* text;
} kOptions[] = {
    {"router", "dropless", "dropless, fifo, or score-drop, which sees the future"},
    {"steps", "100", "how many to train"},
    {"batch", "8", "windows of text a step"},
    {"seq", "96", "bytes of a window"},
    {"experts", "8", "of a layer"},
    {"top-k", "2", "experts of a token"},
    {"layers", "2", "of the model"},
    {"seed", "0", "of parameters and windows"},
    {"run", "moe-cpp", "the run's name"},
    {"server", "", "plumbd to send to, HOST:PORT"},
    {"record", "", "folder to record to"},
    {"patience", "2000", "milliseconds that the end waits for the last evidence to be delivered"},
    {"text", MOE_TEXT_FOLDER, "folder of *.txt files to learn"},
};

bool RequestsHelp(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--help") == 0 || std::strcmp(argv[i], "-h") == 0) return true;
  }
  return false;
}

void PrintUsage() {
  std::puts("Usage: moe_cpp [--OPTION VALUE]...\n");
  std::puts("Trains a small mixture-of-experts language model, watched by Plumbline.\n\nOptions:");
  for (const auto& option : kOptions) {
    const std::string initial = std::string(" (") + option.initial + ")";
    std::printf("  --%-9s %s%s\n", option.name, option.text,
                *option.initial != '\0' ? initial.c_str() : "");
  }
  std::puts("  --help      this text");
}

Options Parse(int argc, char** argv) {
  Options options;
  std::string known;
  for (const auto& option : kOptions) {
    options[option.name] = option.initial;
    known += std::string(known.empty() ? "--" : ", --") + option.name;
  }
  for (int i = 1; i < argc; i += 2) {
    const std::string name = std::strncmp(argv[i], "--", 2) == 0 ? argv[i] + 2 : "";
    if (options.count(name) == 0) {
      throw std::invalid_argument("expected one of " + known + ", found " + argv[i] +
                                  "; see moe_cpp --help");
    }
    if (i + 1 == argc) {
      throw std::invalid_argument(std::string(argv[i]) +
                                  ": expected an option and its value, found no value");
    }
    options[name] = argv[i + 1];
  }
  return options;
}

int Number(const Options& options, const std::string& name, int least, int most) {
  const std::string& text = options.at(name);
  int value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  if (parsed.ec == std::errc() && *parsed.ptr == '\0' && value >= least && value <= most) {
    return value;
  }
  throw std::invalid_argument("--" + name + " is " + text + "; expected " + std::to_string(least) +
                              " to " + std::to_string(most));
}

void Train(const Options& options) {
  constexpr int kMany = 1'000'000;
  constexpr float kRate = 3e-3f;
  moe::Shape shape;
  shape.experts = Number(options, "experts", 1, 512);
  shape.top_k = Number(options, "top-k", 1, std::min(shape.experts, 32));
  shape.layers = Number(options, "layers", 1, 64);
  const int windows = Number(options, "batch", 1, kMany);
  const int length = Number(options, "seq", 1, kMany);
  const int steps = Number(options, "steps", 0, kMany);
  const auto seed = static_cast<uint64_t>(Number(options, "seed", 0, kMany));
  const moe::Text text(options.at("text"), static_cast<size_t>(length) + 1);
  moe::Model model(shape, moe::PolicyOf(options.at("router")), seed);
  // The same parameters on every rank, and different text.
  constexpr uint64_t kApart = 7919;
  const char* stated = std::getenv("RANK");
  const uint64_t rank = stated == nullptr ? 0 : std::strtoull(stated, nullptr, 10);
  moe::Probes probes(options.at("run"), options.at("server"), options.at("record"), shape.layers);
  std::printf("%zu parameters, %s, %zu documents\n", model.parameters(),
              options.at("router").c_str(), text.documents());
  for (int i = 0; i < steps; ++i) {
    const plumbline::Step step(probes.run(), i);
    const moe::Batch batch = text.Cut(windows, length, seed + kApart * rank, i);
    double dropped = 0;
    const double loss = model.Step(batch, [&](int layer, const moe::Routing& routing) {
      probes.Observe(layer, routing, batch);
      dropped += routing.dropped() / shape.layers;
    });
    model.Update(kRate);
    probes.run().Scalar("loss", loss);
    if (i % 10 == 0 || i + 1 == steps) {
      std::printf("step %5d  loss %.6f  dropped %.1f %%\n", i, loss, 100 * dropped);
    }
  }
  if (!probes.Finish(static_cast<uint32_t>(Number(options, "patience", 0, kMany)))) {
    std::fprintf(stderr, "moe_cpp: some evidence was not delivered in time\n");
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (RequestsHelp(argc, argv)) {
    PrintUsage();
    return 0;
  }
  try {
    Train(Parse(argc, argv));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "moe_cpp: %s\n", error.what());
    return 2;
  }
  return 0;
}
