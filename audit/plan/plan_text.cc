#include <algorithm>

#include "audit/plan/plan_report.h"

namespace plumbline::audit {
namespace {

// Columns as wide as what is in them; the first is flush left, numbers flush right.
std::string Aligned(const PlanTable& table) {
  std::vector<std::vector<std::string>> rows = {table.columns};
  rows.insert(rows.end(), table.rows.begin(), table.rows.end());
  std::vector<size_t> widths(table.columns.size());
  for (const auto& row : rows) {
    for (size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
  }
  std::string out;
  for (const auto& row : rows) {
    std::string line = "  ";
    for (size_t c = 0; c < row.size(); ++c) {
      const std::string gap(widths[c] - row[c].size(), ' ');
      line += (c == 0 ? "" : "  ") + (c == 0 ? row[c] + gap : gap + row[c]);
    }
    out += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return out;
}

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
    if (!table.rows.empty()) out += Aligned(table);
    if (!table.below.empty()) out += "  " + Wrapped(table.below, style, "  ");
  }
  out += "\n" + Inked(style, Ink::kBold, "Assumed") + "\n";
  for (const std::string& line : PlanAssumptions(report))
    out += "  " + Wrapped(line, style, "    ");
  return out + "\n" + Inked(style, Ink::kBold, PlanTollLine(report)) + "\n";
}

}  // namespace plumbline::audit
