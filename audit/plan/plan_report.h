// Writes a plan as text for a terminal, JSON (schema plumbline.plan/1) or one HTML page with a
// plot. The same plan gives the same bytes. Thread-safe.
#pragma once

#include <string>
#include <vector>

#include "audit/render/text_util.h"
#include "calculators/plan/plan.h"

namespace plumbline::audit {

struct PlanReport {
  plan::Plan plan;
  std::string model;               // as given by the user; may be empty
  std::string gpu, dtype;          // as given by the user
  std::vector<std::string> notes;  // assumptions about the model
};

std::string PlanText(const PlanReport& report, const TextStyle& style);
std::string PlanJson(const PlanReport& report);
std::string PlanHtml(const PlanReport& report);

// ---- texts that all three formats share
// ----------------------------------------------------------

struct PlanTable {
  std::string title;
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows;
  std::string below;  // one sentence, or empty
};

std::string PlanHeadline(const PlanReport& report);        // what is planned
std::string PlanBottleneckLine(const PlanReport& report);  // the limit that binds, and the next one
std::vector<std::string> PlanVerdicts(const PlanReport& report);
std::vector<PlanTable> PlanTables(const PlanReport& report);
std::vector<std::string> PlanAssumptions(const PlanReport& report);

}  // namespace plumbline::audit
