// Names of series that measure a speed other than in tokens, and of what changes the work of a
// step. Used by performance/mfu.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>

#include "rules/rule.h"

namespace plumbline::rules {

// What a speed counts: work a second, or the seconds of some work.
enum class Pace : uint8_t { kNone, kWork, kSeconds };

struct WorkName {
  Pace pace = Pace::kNone;
  bool work = false;  // a length of sequences, a stage, a batch size, a number of GPUs
};
// Returns the content of a name, cached.
WorkName NameOfWork(const std::string& op);

// Returns true if the name has all of these words.
bool HasWordsOfSpeed(const std::string& op, std::initializer_list<const char*> all);

struct MfuName {
  bool mfu = false, speed = false, one_gpu = false;
};
// Returns the content of a name, cached.
MfuName NameOfMfu(const std::string& op);

// The user's data on model and cluster.
struct MfuFacts {
  double flops_a_token = 0, peak = 0, gpus = 0;  // peak: FLOP/s of one GPU
  double total_over_active = 1;

  explicit MfuFacts(const Options& options) {
    const double total = options.Number("parameters");
    const double active = options.Number("active") > 0 ? options.Number("active") : total;
    flops_a_token = 6 * active + 12 * options.Number("layers") * options.Number("heads") *
                                     options.Number("head_size") * options.Number("sequence");
    peak = 1e12 * options.Number("peak_tflops");
    gpus = options.Number("gpus");
    if (active > 0) total_over_active = total / active;
    if (!(total > 0)) flops_a_token = 0;
  }
  bool reported() const { return flops_a_token > 0 && peak > 0 && gpus > 0; }
  double Mfu(double tokens_per_second, bool of_one_gpu) const {
    return tokens_per_second * flops_a_token / (peak * (of_one_gpu ? 1 : gpus));
  }
};

}  // namespace plumbline::rules
