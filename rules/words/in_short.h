// A finding in short: what is wrong, where, what to do first and the command for it. Lengths are
// in characters, not bytes. Thread-safe.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "plumbline/v1/finding.pb.h"
#include "rules/words/fix_commands.h"

namespace plumbline::rules {

inline constexpr size_t kMostAct = 90;    // characters of what to do first
inline constexpr size_t kMostShort = 50;  // of the short forms, which serve rows

struct InShort {
  std::string title;                 // at most kMostShort
  std::string where;                 // "layers.3 routing, rank 37"
  std::string act;                   // one sentence, at most kMostAct
  std::string act_short;             // at most kMostShort
  std::vector<FixCommand> commands;  // all that the finding names
  // The first of them; empty: none is known.
  std::string command() const { return commands.empty() ? "" : commands.front().text; }
};

// A rule may say it itself, in `details`: "act", "command", "title_short", "act_short". Where it
// does not: the act is the first sentence of `fix` without what says where it is set, up to a
// clause that fits, or else to read the rule's page; commands are those of CommandsIn(fix).
InShort ShortOf(const v1::Finding& finding);

// "0", "0–3, 7"; at most eight ranges, then "and N more".
std::string RankText(const v1::FindingSite& site);

}  // namespace plumbline::rules
