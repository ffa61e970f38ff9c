// A plan in words: text for a terminal, JSON (schema plumbline.plan/1), one HTML page with a plot.
// The same plan gives the same bytes. Thread-safe.
#pragma once

#include <string>
#include <vector>

#include "analysis/plan/plan.h"
#include "audit/render/text_util.h"

namespace plumbline::audit {

struct PlanReport {
  plan::Plan plan;
  std::string model;               // as the user named it; may be empty
  std::string gpu, dtype;          // as the user named them
  std::vector<std::string> notes;  // what was assumed of the model
};

std::string PlanText(const PlanReport& report, const TextStyle& style);
std::string PlanJson(const PlanReport& report);
std::string PlanHtml(const PlanReport& report);

// ---- what all three say ------------------------------------------------------------------------

struct PlanTable {
  std::string title;
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows;
  std::string below;  // one sentence, or nothing
};

std::string PlanHeadline(const PlanReport& report);  // what is planned
std::string PlanTollLine(const PlanReport& report);  // which limit is paid, and the next one
std::vector<std::string> PlanVerdicts(const PlanReport& report);
std::vector<PlanTable> PlanTables(const PlanReport& report);
std::vector<std::string> PlanAssumptions(const PlanReport& report);

}  // namespace plumbline::audit
