// Reductions of a batch changed by hand, and what the rules of collectives say of them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "plumbline/v1/batch.pb.h"
#include "rules/engine/engine.h"

namespace plumbline::rules::testing {

using Verdicts = std::vector<v1::Verdict>;

// What the rules of collectives say.
inline Verdicts Judge(std::vector<v1::Batch> batches) {
  Verdicts verdicts;
  auto engine = Engine::Create({.rules = {"precision/collective-*"}},
                               [&](const v1::Verdict& v) { verdicts.push_back(v); });
  EXPECT_TRUE(engine.ok());
  for (v1::Batch& batch : batches) {
    const absl::Status status = (*engine)->Add(std::move(batch));
    EXPECT_TRUE(status.ok()) << status;
  }
  (*engine)->Finish();
  return verdicts;
}

inline v1::Level Highest(const Verdicts& verdicts) {
  v1::Level level = v1::LEVEL_UNSPECIFIED;
  for (const v1::Verdict& v : verdicts) level = std::max(level, v.finding().level());
  return level;
}

inline std::string Text(const Verdicts& verdicts) {
  std::string text;
  for (const v1::Verdict& v : verdicts) absl::StrAppend(&text, v.ShortDebugString(), "\n");
  return text;
}

// Of "precision/" and `rule`; null: none.
inline const v1::Verdict* Of(const Verdicts& verdicts, const std::string& rule) {
  for (const v1::Verdict& v : verdicts) {
    if (v.rule() == "precision/" + rule) return &v;
  }
  return nullptr;
}

inline v1::ReductionCall& CallOf(v1::Batch& batch, int i) {
  return *batch.mutable_evidence(i)->mutable_reduction()->mutable_call();
}

inline void ForEachCall(v1::Batch& batch, const std::function<void(v1::ReductionCall&)>& change) {
  for (int i = 0; i < batch.evidence_size(); ++i) change(CallOf(batch, i));
}

}  // namespace plumbline::rules::testing
