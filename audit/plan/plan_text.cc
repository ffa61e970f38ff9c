#include "audit/plan/plan_report.h"

namespace plumbline::audit {
namespace {

std::string Wrapped(const std::string& text, const TextStyle& style, const std::string& indent) {
  std::string out;
  for (const std::string& line :
       Wrap(Printable(text), static_cast<size_t>(style.width) - indent.size()))
    out += (out.empty() ? "" : indent) + line + "\n";
  return out;
}

}  // namespace

std::string PlanText(const PlanReport& report, const TextStyle& style) {
  std::string out = Wrapped(PlanHeadline(report), style, "  ") + "\n";
  for (const std::string& line : PlanVerdicts(report)) out += "  " + Wrapped(line, style, "    ");
  for (const PlanTable& table : PlanTables(report)) {
    out += "\n" + Inked(style, Ink::kBold, table.title) + "\n";
    if (!table.rows.empty()) {
      std::vector<std::vector<std::string>> rows = {table.columns};
      rows.insert(rows.end(), table.rows.begin(), table.rows.end());
      out += TextColumns(rows, false);
    }
    if (!table.below.empty()) out += "  " + Wrapped(table.below, style, "  ");
  }
  out += "\n" + Inked(style, Ink::kBold, "Assumed") + "\n";
  for (const std::string& line : PlanAssumptions(report))
    out += "  " + Wrapped(line, style, "    ");
  return out + "\n" + Inked(style, Ink::kBold, PlanBottleneckLine(report)) + "\n";
}

}  // namespace plumbline::audit
