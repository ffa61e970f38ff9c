// Trains a small mixture-of-experts language model on the Perl manual, watched by Plumbline.
//
//   moe_cpp --router dropless --steps 200
//   moe_cpp --router score-drop --steps 200 --server 127.0.0.1:7433 --record runs/leak
//
// The same arguments give the same losses, whatever the probes do.
#include <charconv>
#include <cstdio>
#include <cstring>
#include <exception>
#include <map>
#include <stdexcept>
#include <string>

#include "model.h"
#include "probes.h"

namespace {

using Options = std::map<std::string, std::string>;

Options Defaults() {
  return {{"router", "dropless"},     {"steps", "100"}, {"batch", "8"},  {"seq", "96"},
          {"experts", "8"},           {"top-k", "2"},   {"layers", "2"}, {"seed", "0"},
          {"run", "moe-cpp"},         {"server", ""},   {"record", ""},  {"patience", "2000"},
          {"text", "/usr/share/perl"}};
}

Options Parse(int argc, char** argv) {
  Options options = Defaults();
  for (int i = 1; i < argc; i += 2) {
    const std::string name = std::strncmp(argv[i], "--", 2) == 0 ? argv[i] + 2 : "";
    if (options.count(name) == 0 || i + 1 == argc) {
      throw std::invalid_argument(std::string(argv[i]) + ": expected an option and its value");
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
  moe::Probes probes(options.at("run"), options.at("server"), options.at("record"), shape.layers);
  std::printf("%zu parameters, %s, %zu documents\n", model.parameters(),
              options.at("router").c_str(), text.documents());
  for (int i = 0; i < steps; ++i) {
    const plumbline::Step step(probes.run(), i);
    const moe::Batch batch = text.Cut(windows, length, seed, i);
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
  try {
    Train(Parse(argc, argv));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "moe_cpp: %s\n", error.what());
    return 2;
  }
  return 0;
}
