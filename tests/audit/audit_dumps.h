// Audits of dumps in a test, and helpers that read their results.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "audit/session/audit.h"
#include "tests/audit/dump_builder.h"

namespace plumbline::audit::testing {

inline AuditResult Audit(const std::vector<std::string>& paths) {
  AuditOptions options;
  options.paths = paths;
  auto result = RunAudit(options, nullptr);
  EXPECT_TRUE(result.ok()) << result.status();
  return *std::move(result);
}

inline AuditResult AuditBytes(const std::string& bytes) {
  const TempFolder dir;
  return Audit({dir.Write("a.safetensors", bytes)});
}

// The problems of one file, one per line.
inline std::string Problems(const AuditResult& result) {
  std::string out;
  for (const InputReport& input : result.inputs) {
    for (const Problem& problem : input.problems) out += input.Line(problem) + "\n";
  }
  return out;
}

inline bool Judged(const AuditResult& result) { return result.coverage.judged > 0; }

// The rule's first verdict, or null.
inline const v1::Verdict* VerdictOf(const AuditResult& result, const std::string& rule) {
  for (const v1::Verdict* verdict : result.report.verdicts()) {
    if (verdict->rule() == rule) return verdict;
  }
  return nullptr;
}

// One change in a dump, and the expected message.
struct Change {
  const char* name;
  std::function<void(Dump&)> apply;
  const char* expected;
};

inline std::function<void(Dump&)> SetTo(const char* key, const char* value) {
  return [key, value](Dump& dump) { dump.metadata[key] = value; };
}

// Applies each change alone to a dump that `make` returns.
inline void ExpectProblems(const std::function<Dump()>& make, const std::vector<Change>& changes) {
  for (const Change& change : changes) {
    Dump dump = make();
    change.apply(dump);
    EXPECT_THAT(Problems(AuditBytes(dump.File())), ::testing::HasSubstr(change.expected))
        << change.name;
  }
}

}  // namespace plumbline::audit::testing
