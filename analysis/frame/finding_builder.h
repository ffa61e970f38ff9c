// Builds a finding: each part is set once, in the order in which the user reads it.
//
//   return FindingBuilder(v1::LEVEL_ERROR, v1::STRENGTH_PROVED)
//       .Title("ranks disagree on the dtype of a collective")
//       .Explain("Call 3 of group dp: dtype bf16 on rank 0; f32 on ranks 1, 2.")
//       .Cause("different-dtype", 1)
//       .Measured("different values of dtype", 2, "")
//       .Threshold(1, "every rank must ask for the same")
//       .Samples(3)
//       .Fix("Find what runs on these ranks only.")
//       .Take();
//
// The engine sets rule, run and fingerprint. If At is not called, it also sets layer, op, steps and
// ranks. docs/writing_a_rule.md describes each part.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "analysis/frame/verdicts.h"
#include "plumbline/v1/finding.pb.h"

namespace plumbline::analysis {

class FindingBuilder {
 public:
  FindingBuilder();  // level and strength are set later
  FindingBuilder(v1::Level level, v1::Strength strength);

  FindingBuilder& Level(v1::Level level);
  FindingBuilder& Strength(v1::Strength strength);
  // What is wrong, in at most 70 characters and without numbers, because findings of one
  // fingerprint are merged.
  FindingBuilder& Title(std::string title);
  // Sentences that the user can verify, with the numbers.
  FindingBuilder& Explain(std::string explanation);
  // `confidence` is how often it is the cause of such a finding, 0 to 1.
  FindingBuilder& Cause(std::string id, double confidence = 1);
  FindingBuilder& Measured(std::string name, double value, std::string unit = "");
  FindingBuilder& Threshold(double value, std::string source);
  FindingBuilder& Samples(uint64_t count);
  // For statistical findings. `kind` is "probability", "run-length" or "measured".
  FindingBuilder& FalseAlarm(std::string kind, double value);
  FindingBuilder& Assume(std::string assumption);
  // A fact that the user can look up: "token", 17.
  FindingBuilder& Witness(const std::string& key, double value);
  FindingBuilder& Witness(const std::string& key, std::string_view value);
  FindingBuilder& Witness(const std::string& key, const char* value) {
    return Witness(key, std::string_view(value));
  }
  FindingBuilder& Fix(std::string fix);
  // Time that ranks lost in the judged steps, summed over ranks, if it was measured.
  FindingBuilder& Lost(double rank_seconds, bool on_gpus);
  template <typename Ranks>
  FindingBuilder& At(const std::string& layer, const std::string& op, int64_t step_first,
                     int64_t step_last, const Ranks& ranks) {
    SetPlace(verdict_, layer, op, step_first, step_last, ranks);
    return *this;
  }

  // For rare parts: a bias, a forecast, nested details.
  v1::Verdict& verdict() { return verdict_; }
  v1::Finding& finding() { return *verdict_.mutable_finding(); }

  // Returns the verdict with its finding. The builder must not be used afterwards.
  v1::Verdict Take();

 private:
  v1::Verdict verdict_;
};

}  // namespace plumbline::analysis
