// Runs an engine on whole batches and returns its verdicts, or single ones of them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "plumbline/v1/batch.pb.h"
#include "rules/engine/engine.h"

namespace plumbline::rules::testing {

using Verdicts = std::vector<v1::Verdict>;

inline Verdicts VerdictsOn(std::vector<v1::Batch> batches, const EngineConfig& config) {
  Verdicts verdicts;
  auto engine = Engine::Create(config, [&](const v1::Verdict& v) { verdicts.push_back(v); });
  EXPECT_TRUE(engine.ok()) << engine.status();
  if (!engine.ok()) return verdicts;
  for (v1::Batch& batch : batches) {
    const absl::Status status = (*engine)->Add(std::move(batch));
    EXPECT_TRUE(status.ok()) << status;
  }
  (*engine)->Finish();
  return verdicts;
}

// Returns the verdicts of one rule, run alone, without those of meta/ rules, which always run.
inline Verdicts VerdictsOf(const std::string& rule, std::vector<v1::Batch> batches) {
  Verdicts verdicts = VerdictsOn(std::move(batches), {.rules = {rule}});
  std::erase_if(verdicts, [&](const v1::Verdict& v) { return v.rule() != rule; });
  return verdicts;
}

// Returns the first verdict of a rule. If there is none, returns null.
inline const v1::Verdict* Of(const Verdicts& verdicts, std::string_view rule) {
  const auto found = std::find_if(verdicts.begin(), verdicts.end(),
                                  [&](const v1::Verdict& v) { return v.rule() == rule; });
  return found == verdicts.end() ? nullptr : &*found;
}

// Returns the one verdict of a rule.
inline v1::Verdict Only(const Verdicts& verdicts, std::string_view rule) {
  const auto count = std::count_if(verdicts.begin(), verdicts.end(),
                                   [&](const v1::Verdict& v) { return v.rule() == rule; });
  EXPECT_EQ(count, 1) << rule;
  return count == 0 ? v1::Verdict() : *Of(verdicts, rule);
}

// Returns "pass", the short id of an inconclusive reason, "PROVED" or "heuristic".
inline std::string Outcome(const v1::Verdict& verdict) {
  if (verdict.kind() == v1::Verdict::KIND_PASS) return "pass";
  if (verdict.kind() == v1::Verdict::KIND_INCONCLUSIVE)
    return verdict.reason().substr(0, verdict.reason().find(':'));
  return verdict.finding().strength() == v1::STRENGTH_PROVED ? "PROVED" : "heuristic";
}

inline v1::Level Highest(const Verdicts& verdicts) {
  v1::Level level = v1::LEVEL_UNSPECIFIED;
  for (const v1::Verdict& v : verdicts) level = std::max(level, v.finding().level());
  return level;
}

// Returns the number of findings of this rule. If `cause` is given, counts only findings with it.
inline int Findings(const Verdicts& verdicts, std::string_view rule, std::string_view cause = "") {
  return static_cast<int>(
      std::count_if(verdicts.begin(), verdicts.end(), [&](const v1::Verdict& v) {
        return v.kind() == v1::Verdict::KIND_FINDING && v.rule() == rule &&
               (cause.empty() || v.finding().cause().id() == cause);
      }));
}

}  // namespace plumbline::rules::testing
