// The rule catalogue as text, Markdown and JSON.
#pragma once

#include <string>

#include "audit/render/text_util.h"
#include "rules/catalogue.h"

namespace plumbline::audit {

// One line a rule: id, level, title. `planned`: then those that are planned, marked so.
std::string RuleListText(const TextStyle& style, bool planned);

// {"schema": "plumbline.rules/1", "rules": [{"id", "group", "level", "status", "since", "title",
// "options"}]}; status is "built" or "planned".
std::string RuleListJson(bool planned);

// The rule's own page and its options; of a planned rule what is known of it. Markdown.
std::string RulePage(const rules::RuleInfo& info);
std::string PlannedPage(const rules::PlannedRule& rule);

// A table of all rules that links to the pages. Markdown.
std::string RuleIndexPage();

}  // namespace plumbline::audit
