// A finding in short: what is wrong, where, what to do first, and the command for it. Lengths are
// in characters, not bytes. Thread-safe.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "plumbline/v1/finding.pb.h"
#include "rules/words/fix_commands.h"

namespace plumbline::rules {

inline constexpr size_t kMostAct = 90;    // characters of what to do first
inline constexpr size_t kMostShort = 50;  // characters of the short forms, which are used in rows

struct InShort {
  std::string title;                 // at most kMostShort
  std::string where;                 // "layers.3 routing, rank 37"
  std::string act;                   // one sentence, at most kMostAct
  std::string act_short;             // at most kMostShort
  std::vector<FixCommand> commands;  // all commands that the finding names
  // Returns the first command. If none is known, returns an empty string.
  std::string command() const { return commands.empty() ? "" : commands.front().text; }
};

// Returns the short form. A rule may set parts of it in `details`: "act", "command", "title_short",
// "act_short", "place" (of the finding). If it does not, the act is the first sentence of `fix`,
// without the place of settings, up to a clause that fits. If no clause fits, the act is to read
// the rule's page. The commands are those of CommandsIn(fix).
InShort ShortOf(const v1::Finding& finding);

// Returns "0", "0–3, 7"; at most eight ranges, then "and N more".
std::string RankText(const v1::FindingSite& site);

}  // namespace plumbline::rules
