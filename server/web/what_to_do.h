// A finding in short: what is wrong, where, and what to do first.
#pragma once

#include <string>
#include <vector>

#include "plumbline/v1/finding.pb.h"

namespace plumbline::server {

struct FixCommand {
  std::string where;  // "Megatron-LM"; empty: not said
  std::string text;   // to be copied
  bool operator==(const FixCommand&) const = default;
};

struct InShort {
  std::string title;                 // at most kShort characters
  std::string where;                 // "layers.3 routing, rank 37"
  std::string act;                   // one sentence: what to do first
  std::vector<FixCommand> commands;  // all that the finding names
  // The first of them; empty: none is known.
  std::string command() const { return commands.empty() ? "" : commands.front().text; }
};

constexpr size_t kShort = 72;

// A rule may say it itself, in `details`: "act", "command", "title_short". Where it does not: the
// act is the first sentence of `fix` without what says where it is set, or else to read the rule's
// page; commands are what `fix` has between backticks, or as "(Megatron-LM: --option; DeepSpeed:
// key=value)"; the short title is the title up to its first clause that fits.
InShort ShortOf(const v1::Finding& finding);

// "0", "0–3, 7"; at most eight ranges, then "and N more".
std::string RankText(const v1::FindingSite& site);

}  // namespace plumbline::server
