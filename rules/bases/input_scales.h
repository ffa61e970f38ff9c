// Scales of a model's floating inputs: a batch that is far off those before it, a part of
// health/batch-facts.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "analysis/frame/frame.h"
#include "base/archive.h"

namespace plumbline::rules {

// The inputs of one role. Not thread-safe.
class InputScales {
 public:
  static constexpr std::string_view kScale = "batch_facts/scale:",
                                    kConstant = "batch_facts/constant:";
  static constexpr uint64_t kFewest = 4;  // batches before one can be far off
  static constexpr double kFar = 30;      // times the largest, or below the least by this factor
  static constexpr double kSpreads = 2;   // and times the spread of the batches before, in ln
  static constexpr size_t kMostInputs = 256;

  // Takes the values of one rank and step, {series: value}; calls found(verdict) for each input
  // that is far off or constant, once for each input and kind.
  template <typename Values, typename Found>
  void Take(int64_t step, uint32_t rank, const Values& values, Found&& found) {
    for (const auto& [series, value] : values) {
      if (!series.starts_with(kScale) || !(value >= 0) || std::isinf(value)) continue;
      const std::string name = series.substr(kScale.size());
      if (inputs_.size() >= kMostInputs && !inputs_.contains({rank, name})) continue;
      Input& input = inputs_[{rank, name}];
      const auto constant = values.find(std::string(kConstant) + name);
      const bool is_constant = constant != values.end() && constant->second > 0;
      if (input.batches >= kFewest) {
        if (is_constant && !input.constant && FirstOf(name, 1))
          found(Constant(step, rank, name, constant->second, input));
        else if (IsFar(input, value) && FirstOf(name, 2))
          found(Far(step, rank, name, value, input));
      }
      input.constant |= is_constant;
      input.Add(value);
    }
  }

  void Persist(Archive& a) { a(inputs_, reported_); }

 private:
  struct Input {
    uint64_t batches = 0;
    double low = 0, high = 0;  // of the scales above 0
    bool constant = false;     // a batch was constant
    void Add(double value) {
      ++batches;
      if (!(value > 0)) return;
      low = high > 0 ? std::min(low, value) : value;
      high = std::max(high, value);
    }
    void Persist(Archive& a) { a(batches, low, high, constant); }
  };

  // A batch of zeros has no scale: it is constant.
  static bool IsFar(const Input& input, double value) {
    if (!(value > 0) || !(input.low > 0)) return false;
    const double apart = value > input.high  ? std::log(value / input.high)
                         : value < input.low ? std::log(input.low / value)
                                             : 0;
    return apart > std::log(kFar) && apart > kSpreads * std::log(input.high / input.low);
  }

  bool FirstOf(const std::string& name, uint32_t kind) {
    uint32_t& kinds = reported_[name];
    if ((kinds & kind) != 0) return false;
    kinds |= kind;
    return true;
  }

  static v1::Verdict Far(int64_t step, uint32_t rank, const std::string& name, double value,
                         const Input& input) {
    analysis::FindingBuilder found(v1::LEVEL_WARNING, v1::STRENGTH_HEURISTIC);
    found.Title("an input is far off those before it")
        .Explain(absl::StrFormat(
            "The input %s has the scale (root of the mean square) %.3g in step %d. In the %d "
            "batches that were checked before, it was %.3g to %.3g.",
            name, value, step, input.batches, input.low, input.high))
        .Cause("scale", 0.8)
        .Measured("scale of the input", value)
        .Threshold(value > input.high ? input.high * kFar : input.low / kFar,
                   "30 times beyond the batches before, and twice their own spread in logarithms")
        .Fix(
            "Compare this batch with earlier ones: is its normalisation missing, or applied twice "
            "(pixels of 0 to 255 for 0 to 1)? Is a row corrupt?");
    return Placed(step, rank, name, value, input, found);
  }

  static v1::Verdict Constant(int64_t step, uint32_t rank, const std::string& name, double rows,
                              const Input& input) {
    analysis::FindingBuilder found(v1::LEVEL_WARNING, v1::STRENGTH_HEURISTIC);
    found.Title("an input is constant")
        .Explain(absl::StrFormat(
            "In step %d all elements of a row of the input %s are equal, in each of the %.0f rows. "
            "None of the %d batches that were checked before was like this.",
            step, name, rows, input.batches))
        .Cause("constant", 0.8)
        .Measured("rows with equal elements", rows, "rows")
        .Threshold(0, "earlier batches vary within a row")
        .Fix(
            "Look at the rows of this batch: a file that cannot be read, a decoder that returns "
            "an empty image, a mask that covers all of it.");
    return Placed(step, rank, name, rows, input, found);
  }

  static v1::Verdict Placed(int64_t step, uint32_t rank, const std::string& name, double value,
                            const Input& input, analysis::FindingBuilder& found) {
    found.Samples(input.batches)
        .Witness("input", name)
        .Witness("step", static_cast<double>(step))
        .Witness("value", value)
        .Witness("least scale before", input.low)
        .Witness("largest scale before", input.high)
        .At("", std::string(kScale) + name, step, step, std::vector<uint32_t>{rank});
    return found.Take();
  }

  std::map<std::pair<uint32_t, std::string>, Input> inputs_;  // by rank and name
  std::map<std::string, uint32_t> reported_;                  // by name: 1 constant, 2 far off
};

}  // namespace plumbline::rules
