// Audits of dumps in a test, and what they say.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "audit/audit.h"
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
  const TempDir dir;
  return Audit({dir.Write("a.safetensors", bytes)});
}

// The problems of one file, a line each.
inline std::string Problems(const AuditResult& result) {
  std::string out;
  for (const InputReport& input : result.inputs) {
    for (const Problem& problem : input.problems) out += input.Line(problem) + "\n";
  }
  return out;
}

inline bool Judged(const AuditResult& result) { return result.coverage.judged > 0; }

}  // namespace plumbline::audit::testing
