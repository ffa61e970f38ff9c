// Texts of health/rl-collapse.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <tuple>

#include "analysis/policy/policy.h"
#include "plumbline/v1/finding.pb.h"
#include "rules/analysis_names.h"

namespace plumbline::rules {

// The fixed texts of one condition.
struct CollapseWords {
  const char* title;
  const char* cause;
  const char* measure;  // what the threshold bounds
  double threshold;
  const char* source;
  const char* fix;
};

// Returns the texts of the series' condition. Equal conditions have the same object.
const CollapseWords& CollapseWordsOf(PolicyKind kind, const PolicySeries& series);
// Returns what to do if the condition of the series `op` is a note.
std::string FixOfNote(const std::string& op, const PolicySeries& series);
// Orders rewards: training before evaluation, the total before a term, a short name before a long
// one.
std::tuple<bool, bool, size_t> RankOfReward(const std::string& op);
// Returns the level of a mean reward that fell.
v1::Level LevelOfFall(const std::string& op, const PolicySeries& series);
// Returns what the series did, in one sentence.
std::string CollapseText(PolicyKind kind, const std::string& op, const PolicySeries& series);
// Returns the measured value of CollapseWords::measure.
double CollapseMeasure(PolicyKind kind, const PolicySeries& series);
// Returns " The reward `op` fell from ...", or that it did not. If it has under ten points, returns
// an empty string.
std::string RewardText(const std::string& op, const RewardCourse& reward);
// Returns a pass or inconclusive verdict for a series without a condition. If the rule does not
// judge its kind, returns nullopt.
std::optional<v1::Verdict> RestOfPolicy(PolicyKind kind, const PolicySeries& series);

}  // namespace plumbline::rules
