// Formats the rule catalogue as text, Markdown and JSON.
#pragma once

#include <string>

#include "audit/render/text_util.h"
#include "rules/catalogue.h"

namespace plumbline::audit {

// Returns one line per rule: id, level, title. If `planned`, also the planned rules, marked as
// such.
std::string RuleListText(const TextStyle& style, bool planned);

// Returns {"schema": "plumbline.rules/1", "rules": [{"id", "group", "level", "status", "since",
// "title", "options"}]}; status is "built" or "planned".
std::string RuleListJson(bool planned);

// Return Markdown: the rule's own page and its options; for a planned rule, the known facts.
std::string RulePage(const rules::RuleInfo& info);
std::string PlannedPage(const rules::PlannedRule& rule);

// Returns a table of all rules with links to the pages, as Markdown.
std::string RuleIndexPage();

}  // namespace plumbline::audit
