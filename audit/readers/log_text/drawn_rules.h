// Recognises horizontal rules of tables that are drawn with the signs U+2500 to U+257F.
#pragma once

#include <string_view>

namespace plumbline::audit {

// Returns true if the line consists of at least three such signs and nothing else.
bool IsDrawnRule(std::string_view line);

// Returns true if the line is the top rule of a box with a title: "╭── Metrics ──╮".
bool IsTitledRule(std::string_view line);

// Both require IsDrawnRule(line). Returns true if the rule begins a box.
bool IsTopRule(std::string_view line);
// Returns true if the rule is between two rows of a box.
bool IsInnerRule(std::string_view line);

}  // namespace plumbline::audit
