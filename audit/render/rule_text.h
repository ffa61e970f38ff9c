// The rule catalogue as text, Markdown and JSON.
#pragma once

#include <string>

#include "audit/render/text_util.h"
#include "rules/rule.h"

namespace plumbline::audit {

// One line a rule: id, level, status, title.
std::string RuleListText(const TextStyle& style);

// {"schema": "plumbline.rules/1", "rules": [{"id", "group", "level", "status", "since", "title",
// "options"}]}
std::string RuleListJson();

// The rule's own page and its options; of a planned rule what is known of it. Markdown.
std::string RulePage(const rules::RuleInfo& info);

// A table of all rules that links to the pages. Markdown.
std::string RuleIndexPage();

}  // namespace plumbline::audit
